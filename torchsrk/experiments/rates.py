"""Gradients needed for W2 ≤ ε, against ε and against the dimension: the exponents of the paper's Table 1 and Examples.

No sampling: laws after every step come from moments (spectral.py), on targets made of blocks (rate_targets.py), on
N(0, I) for schemes that tie coordinates together (rate_radial.py), and from a transfer operator on the non-convex one.
For every ε and d the step size that needs the fewest gradients counts, if it is neither the largest nor the smallest
tried.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Annotated, Literal

import torch
from torch import Tensor

from ..integrators import integrator_named
from .base import Conclusion, Context, Finding, Result, Row
from .config import ConfigError, Dimension, Range, check_known
from .fits import Line, fit_line
from .rate_figures import draw_dimensions, draw_errors
from .rate_targets import (
    SCHEMES,
    TARGETS,
    WHOLES,
    applies,
    refusal,
    refusal_in_dimensions,
    table_of,
    target_named,
    traces,
)
from .scheme_figures import LABELS
from .scheme_moments import has_momentum

_LEAST = 6  # points of a fit
_NARROW = {"w2": 0.05, "dim": 0.15}  # half-widths of 95 % intervals
_NEAR = 0.15  # how far an exponent may be from one over the order of the law's error, relative
_ROOM = 0.1  # above a bound's exponent, which is one for small ε


@dataclass(frozen=True)
class Settings:
    """Step sizes fall from the largest that a target allows, evenly in their logarithm, as far as takes a law's error
    through so many decades at the scheme's order."""

    step_sizes: Annotated[int, Range(6, 1000)]
    decades: Annotated[float, Range(0.5, 4.0)] = 2.0  # of errors
    errors_per_decade: Annotated[int, Range(3, 100)] = 10  # ε
    dims: tuple[Dimension, ...] = (2, 4, 6, 10, 16, 26, 40, 64, 100)
    targets: tuple[Literal["mixture", "regression", "quartic", "gaussian", "non-convex"], ...] = (*TARGETS, *WHOLES)  # type: ignore[assignment]
    schemes: tuple[str, ...] = SCHEMES
    start_shift: Annotated[float, Range(0.1, 4.0)] = 2.0  # a chain starts so many deviations off in every direction

    def __post_init__(self) -> None:
        check_known(self.schemes, SCHEMES, key="schemes")
        if any(dim % 2 for dim in self.dims) or len(set(self.dims)) < 3:
            raise ConfigError(f"dims: three or more even numbers, as blocks have two; got {list(self.dims)}")


def tolerances(settings: Settings) -> list[float]:
    """The ε, falling: from where no target is reached to where laws are no longer told from exact ones."""
    return [10 ** (-k / settings.errors_per_decade) for k in range(7 * settings.errors_per_decade)]


def step_sizes(settings: Settings, target: str, scheme: str) -> list[float]:
    """Falling."""
    found, own = integrator_named(scheme), target_named(target)
    largest = own.largest[1] if has_momentum(found) else own.largest[0] / own.curvature
    assert found.law_order is not None
    ratio = 10 ** (-settings.decades / found.law_order / (settings.step_sizes - 1))
    return [largest * ratio**k for k in range(settings.step_sizes)]


def pairs(settings: Settings) -> list[tuple[str, str]]:
    """Targets and schemes with a law there."""
    chosen = product(settings.targets, settings.schemes)
    return [pair for pair in chosen if applies(*pair) and not refusal(*pair)]


def plan(settings: Settings) -> dict[str, tuple[str, str, float]]:
    """Targets, schemes and step sizes."""
    return {
        f"{target}-{scheme}-{number}": (target, scheme, h)
        for target, scheme in pairs(settings)
        for number, h in enumerate(step_sizes(settings, target, scheme))
    }


def measure(settings: Settings, case: tuple[str, str, float], context: Context) -> Result:
    """W2² of every block after every step, and of the law that is kept. Nothing here is random."""
    after, kept = traces(*case, settings.start_shift, settings.dims)
    return {**{f"after_{block}": trace for block, trace in after.items()}, **{f"kept_{b}": w for b, w in kept.items()}}


def _whole(target: str, result: Result, dim: int) -> tuple[Tensor, float]:
    """W2 after every step, and of the law that is kept, in so many dimensions."""
    own, blocks = target_named(target), [key.removeprefix("after_") for key in result if key.startswith("after_")]
    after = own.squared({block: result[f"after_{block}"] for block in blocks}, dim)
    kept = own.squared({block: torch.tensor(result[f"kept_{block}"]) for block in blocks}, dim)
    return after.clamp_min(0.0).sqrt(), math.sqrt(max(0.0, float(kept)))


def conclude(settings: Settings, results: Mapping[str, Result]) -> Conclusion:
    needed, kept, exponents = [], [], []
    for target, scheme in pairs(settings):
        sizes, own = _resolved(settings, target, scheme, results)
        laws = [_whole(target, result, target_named(target).smallest_dim) for result in own]
        kept += [
            {"target": target, "scheme": scheme, "step_size": h, "w2": w} for h, (_, w) in zip(sizes, laws, strict=True)
        ]
        against = _against_error(settings, target, scheme, sizes, [trace for trace, _ in laws])
        wide = _against_dimension(settings, target, scheme, sizes, own)
        needed += [*against, *wide]
        exponents.append(_exponents(target, scheme, sizes, [w for _, w in laws], against, wide))
    refused = [*_refused(settings), *map(_too_narrow, filter(_lacks_dimensions, exponents))]
    return Conclusion(
        tables={
            "gradients": needed,
            "invariant_errors": kept,
            "exponents": exponents,
            **({"refused": refused} if refused else {}),
        },
        figures={
            "rates": partial(draw_errors, settings.targets, needed, exponents),
            "rates-dimensions": partial(draw_dimensions, settings.targets, needed, exponents),
        },
        findings=[finding for row in exponents for finding in _findings(row)],
        notes=[f"not measured: {row['target']}, {LABELS[row['scheme']]}: {row['why']}" for row in refused],
    )


def _resolved(
    settings: Settings, target: str, scheme: str, results: Mapping[str, Result]
) -> tuple[list[float], list[Result]]:
    """Step sizes, falling, down to the last whose law's error is told from that of its polynomials, and their laws."""
    own = target_named(target)
    least = own.resolved[has_momentum(integrator_named(scheme))]
    sizes = step_sizes(settings, target, scheme)
    found = [results[f"{target}-{scheme}-{number}"] for number in range(len(sizes))]
    count = next((k for k, one in enumerate(found) if _whole(target, one, own.smallest_dim)[1] < least), len(sizes))
    return sizes[:count], found[:count]


def fewest(laws: Sequence[Tensor], epsilons: Sequence[float]) -> list[tuple[int, int] | None]:
    """For each ε the trace of W2 that stays at or below it soonest, and after how many steps.

    None where that is the first or the last trace, or where none does.
    """
    wanted = torch.tensor(epsilons, dtype=torch.float64)
    table = torch.full((len(laws), len(epsilons)), math.inf, dtype=torch.float64)
    for row, trace in zip(table, laws, strict=True):
        # The largest of what is yet to come, from the end backwards: it rises, so that a search finds the last above ε.
        ahead = torch.searchsorted(trace.flip(0).cummax(0).values, wanted, right=True)
        row.copy_(torch.where(ahead > 0, len(trace) + 1.0 - ahead.double(), math.inf))
    best = table.argmin(0).tolist() if len(laws) else []
    steps = [float(table[k, column]) for column, k in enumerate(best)]
    inside = [0 < k < len(laws) - 1 and count < math.inf for k, count in zip(best, steps, strict=True)]
    return [(k, round(n)) if sure else None for k, n, sure in zip(best, steps, inside, strict=True)]


def _rows(
    target: str, scheme: str, sizes: Sequence[float], laws: Sequence[Tensor], epsilons: Sequence[float], dim: int
) -> list[Row | None]:
    """The fewest gradients for every ε; None where the step size that needs them is at an end of those tried."""
    a_step = integrator_named(scheme).gradients_per_step
    return [
        found
        and {
            "target": target,
            "scheme": scheme,
            "w2": epsilon,
            "dim": dim,
            "step_size": sizes[found[0]],
            "gradients": found[1] * a_step,
            # The rates hide this factor. W2 after the first of the shortest steps is nearly that of the start.
            "gradients_over_logarithm": found[1] * a_step / math.log(float(laws[-1][0]) / epsilon),
        }
        for epsilon, found in zip(epsilons, fewest(laws, epsilons), strict=True)
    ]


def _against_error(
    settings: Settings, target: str, scheme: str, sizes: Sequence[float], laws: Sequence[Tensor]
) -> list[Row]:
    rows = _rows(target, scheme, sizes, laws, tolerances(settings), target_named(target).smallest_dim)
    return [row | {"against": "w2"} for row in rows if row is not None]


def _against_dimension(
    settings: Settings, target: str, scheme: str, sizes: Sequence[float], results: Sequence[Result]
) -> list[Row]:
    """At the largest ε that every dimension has a best step size for."""
    if refusal_in_dimensions(target, scheme):
        return []
    each = [
        _rows(target, scheme, sizes, [_whole(target, one, dim)[0] for one in results], tolerances(settings), dim)
        for dim in settings.dims
    ]
    for rows in zip(*each, strict=True):
        found = [row | {"against": "dim"} for row in rows if row is not None]
        if len(found) == len(settings.dims):
            return found
    return []


def fit(xs: Sequence[float], ys: Sequence[float]) -> Line:
    """Of log y over log x; nan where points are too few."""
    if len(xs) < 3:
        return Line(math.nan, math.nan)
    x, y = ([math.log(value) for value in values] for values in (xs, ys))
    return fit_line(x, y)


def _exponents(
    target: str, scheme: str, sizes: Sequence[float], kept: Sequence[float], against: list[Row], wide: list[Row]
) -> Row:
    many = against if len(against) >= _LEAST else []
    inverse = [1.0 / row["w2"] for row in many]
    divided, plain = (fit(inverse, [row[key] for row in many]) for key in ("gradients_over_logarithm", "gradients"))
    in_dim = fit([row["dim"] for row in wide], [row["gradients_over_logarithm"] for row in wide])
    # The law's order over the step sizes that were best somewhere.
    used = {row["step_size"] for row in many}
    told = [(h, w) for h, w in zip(sizes, kept, strict=True) if h in used]
    order = fit([h for h, _ in told], [w for _, w in told])
    table = table_of(target, scheme)
    return {
        "target": target,
        "scheme": scheme,
        "exponent": divided.slope,
        "exponent_margin": divided.half_width,
        "table_1": table[0],
        "exponent_with_logarithm": plain.slope,
        "largest_w2": many[0]["w2"] if many else math.nan,
        "smallest_w2": many[-1]["w2"] if many else math.nan,
        "order_in_step_size": order.slope,
        "order_margin": order.half_width,
        "exponent_in_dim": in_dim.slope,
        "exponent_in_dim_margin": in_dim.half_width,
        "table_1_in_dim": table[1],
        "w2_in_dim": wide[0]["w2"] if wide else math.nan,
    }


def _findings(row: Row) -> list[Finding]:
    """The paper's bounds hold, and exponents are what the order of the law's error says."""
    name = f"{row['target']}: {LABELS[row['scheme']]}"
    if not math.isfinite(row["exponent"]):
        return [Finding(f"{name} has a best step size inside those tried for {_LEAST} ε or more", False)]
    found = [_error_finding(name, row)]
    return [*found, _dimension_finding(name, row)] if math.isfinite(row["exponent_in_dim"]) else found


def _error_finding(name: str, row: Row) -> Finding:
    text = (
        f"{name} needs ε^-({row['exponent']:.3f} ± {row['exponent_margin']:.3f}) gradients, times log(1/ε), for ε from "
        f"{row['largest_w2']:.2g} to {row['smallest_w2']:.2g}; its law errs like h^({row['order_in_step_size']:.2f})"
    )
    near = abs(row["exponent"] * row["order_in_step_size"] - 1.0) < _NEAR
    return Finding(text + _bound("ε^-", row["table_1"]), near and _holds(row, "exponent", "table_1", "w2"))


def _dimension_finding(name: str, row: Row) -> Finding:
    text = (
        f"{name} needs d^({row['exponent_in_dim']:.3f} ± {row['exponent_in_dim_margin']:.3f}) gradients for "
        f"W2 ≤ {row['w2_in_dim']:.2g}"
    )
    return Finding(text + _bound("d^", row["table_1_in_dim"]), _holds(row, "exponent_in_dim", "table_1_in_dim", "dim"))


def _bound(power: str, exponent: float) -> str:
    return f"; the paper's bound is {power}{exponent:.2g}" if math.isfinite(exponent) else ""


def _holds(row: Row, exponent: str, bound: str, against: str) -> bool:
    below = not row[exponent] > row[bound] + _ROOM  # true where there is no bound
    return bool(below and row[f"{exponent}_margin"] <= _NARROW[against])


def _refused(settings: Settings) -> list[Row]:
    """What has no law here, and why."""
    rows = [
        {"target": target, "scheme": scheme, "against": "w2 and dim", "why": refusal(target, scheme)}
        for target, scheme in product(settings.targets, settings.schemes)
        if applies(target, scheme)
    ]
    ties = {
        ("of blocks" if target in TARGETS else target, scheme): refusal_in_dimensions(target, scheme)
        for scheme, target in product(settings.schemes, settings.targets)
        if applies(target, scheme)
    }
    wide = [
        {"target": target, "scheme": scheme, "against": "dim", "why": f"in d, {why}"}
        for (target, scheme), why in ties.items()
        if why
    ]
    return [row for row in rows if row["why"]] + wide


def _lacks_dimensions(row: Row) -> bool:
    return math.isnan(row["exponent_in_dim"]) and not refusal_in_dimensions(row["target"], row["scheme"])


def _too_narrow(row: Row) -> Row:
    why = "in d, no ε has a best step size at all d: errors are resolved over too few step sizes"
    return {"target": row["target"], "scheme": row["scheme"], "against": "dim", "why": why}
