"""Gradients needed for W2 ≤ ε: the exponents of the paper's Table 1, on targets whose laws are known.

No sampling: on a Gaussian both schemes are linear and the law after k steps is in closed form; on a mixture on a line
it comes by quadrature. For every ε the step size that needs the fewest gradients counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, product
from statistics import geometric_mean
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from ..integrators import integrator_named
from . import plots
from .base import Conclusion, Context, Finding, Result, Row
from .config import ConfigError, Count, Positive, Range
from .fits import Line, fit_line
from .laws import LineMixture, gaussian_errors, line_errors, steps_below

TABLE = {"em": 1.0, "srk-ld": 2.0 / 3.0}  # the paper's exponents: gradients of order ε^-this, up to logarithms
SCHEMES = tuple(TABLE)
ORDERS = {"em": 1, "srk-ld": 2}  # weak orders, and so those of the error of the invariant law on smooth potentials
LARGEST = 1.0  # step size, as a multiple of 1/L


@dataclass(frozen=True)
class Settings:
    """Step sizes are given as multiples of 1/L, the largest curvature: from 1 down, evenly in their logarithm."""

    smallest_em: Annotated[float, Range(0.001, 0.2)]
    smallest_srk_ld: Annotated[float, Range(0.001, 0.2)]
    per_decade: Annotated[int, Range(5, 1000)]  # step sizes
    largest_error: Positive  # ε
    smallest_error: Positive
    errors: Annotated[int, Range(4, 1000)]  # how many of them, evenly in their logarithm
    targets: tuple[Literal["gaussian", "mixture"], ...] = ("gaussian", "mixture")
    curvatures: Count = 10  # of the Gaussian: eigenvalues from 1 to condition, evenly in their logarithm
    condition: Annotated[float, Range(1.0, 1e6)] = 10.0
    separation: Annotated[float, Range(0.0, 0.99)] = 0.9  # of the mixture, strongly convex below 1
    start_shift: Annotated[float, Range(0.1, 20.0)] = (
        3.0  # a chain starts from the target's shape, this far off in every direction
    )
    time: Annotated[float, Range(1.0, 1000.0)] = 25.0  # how long a chain is followed

    def __post_init__(self) -> None:
        if not self.smallest_error < self.largest_error < self.start_shift:
            raise ConfigError(
                f"largest_error: between smallest_error ({self.smallest_error:g}) and start_shift "
                f"({self.start_shift:g}); got {self.largest_error:g}"
            )


def tolerances(settings: Settings) -> list[float]:
    """The ε, falling."""
    ratio = (settings.smallest_error / settings.largest_error) ** (1 / (settings.errors - 1))
    return [settings.largest_error * ratio**k for k in range(settings.errors)]


def multiples(settings: Settings, scheme: str) -> list[float]:
    """The step sizes times L, falling."""
    smallest = {"em": settings.smallest_em, "srk-ld": settings.smallest_srk_ld}[scheme]
    count = math.ceil(settings.per_decade * math.log10(LARGEST / smallest)) + 1
    return [LARGEST * 10 ** (-k / settings.per_decade) for k in range(count)]


def cases(settings: Settings) -> list[tuple[str, str, float]]:
    pairs = product(settings.targets, SCHEMES)
    return [(target, scheme, z) for target, scheme in pairs for z in multiples(settings, scheme)]


def _unit(target: str, scheme: str, z: float) -> str:
    return f"{target}-{scheme}-{z:.4g}"


def plan(settings: Settings) -> list[str]:
    return [_unit(*case) for case in cases(settings)]


def measure(settings: Settings, unit: str, context: Context) -> Result:
    """For each ε the steps after which W2 stays below it (0: never), and W2 at the end. Nothing here is random."""
    target, scheme, z = next(case for case in cases(settings) if _unit(*case) == unit)
    trace = gaussian_trace if target == "gaussian" else mixture_trace
    errors = trace(settings, scheme, z)
    steps = [steps_below(errors, epsilon) for epsilon in tolerances(settings)]
    return {"steps": torch.tensor(steps, dtype=torch.int64), "last_error": float(errors[-1])}


def gaussian_trace(settings: Settings, scheme: str, z: float) -> Tensor:
    """W2 after every step, on a Gaussian with these curvatures."""
    h, count = z / settings.condition, settings.curvatures
    steps = torch.arange(1, math.ceil(settings.time / h) + 1)
    total = torch.zeros(len(steps), dtype=torch.float64)
    for k in range(count):
        curvature = settings.condition ** (k / max(1, count - 1))
        start = {"mean": settings.start_shift, "variance": 1 / curvature}
        total += gaussian_errors(scheme, step_size=h, curvature=curvature, steps=steps, **start)
    return total.sqrt()


def mixture_trace(settings: Settings, scheme: str, z: float) -> Tensor:
    """W2 after every step, on a mixture on a line; its largest curvature is 1."""
    target = LineMixture(settings.separation)
    line = line_errors(target, scheme, step_size=z, mean=settings.start_shift, deviation=1.0)
    return torch.tensor(list(islice(line, math.ceil(settings.time / z))), dtype=torch.float64).sqrt()


def start_error(settings: Settings, target: str) -> float:
    """W2 of the start, nearly: its shift."""
    return settings.start_shift * math.sqrt(settings.curvatures if target == "gaussian" else 1)


def conclude(settings: Settings, results: Mapping[str, Result]) -> Conclusion:
    rows = [
        _best_row(settings, results, target, scheme, number)
        for target, scheme in product(settings.targets, SCHEMES)
        for number in range(settings.errors)
    ]
    last = [
        {
            "target": target,
            "scheme": scheme,
            "step_size_times_L": z,
            "w2": results[_unit(target, scheme, z)]["last_error"],
        }
        for target, scheme, z in cases(settings)
    ]
    exponents = [_exponent_row(settings, rows, last, *pair) for pair in product(settings.targets, SCHEMES)]
    return Conclusion(
        tables={"gradients": rows, "invariant_errors": last, "exponents": exponents},
        figures={"rates": partial(draw, settings, rows, exponents)},
        findings=[*map(_exponent_finding, exponents), *(_gain_finding(rows, target) for target in settings.targets)],
    )


def _best_row(settings: Settings, results: Mapping[str, Result], target: str, scheme: str, number: int) -> Row:
    """The fewest gradients for an ε, and the step size that needs them."""
    steps = {z: int(results[_unit(target, scheme, z)]["steps"][number]) for z in multiples(settings, scheme)}
    reached = {z: count for z, count in steps.items() if count}
    best = min(reached, key=lambda z: reached[z], default=math.nan)
    gradients = reached.get(best, math.inf) * integrator_named(scheme).gradients_per_step
    epsilon = tolerances(settings)[number]
    # Table 1's rates hide this factor.
    logarithm = math.log(start_error(settings, target) / epsilon)
    return {
        "target": target,
        "scheme": scheme,
        "w2": epsilon,
        "step_size_times_L": best,
        "gradients": gradients,
        "gradients_over_logarithm": gradients / logarithm,
    }


def fit(xs: Sequence[float], ys: Sequence[float]) -> Line:
    """Of log y over log x."""
    x, y = ([math.log(value) for value in values] for values in (xs, ys))
    return fit_line(x, y)


def _exponent_row(settings: Settings, rows: list[Row], last: list[Row], target: str, scheme: str) -> Row:
    own = [row for row in rows if (row["target"], row["scheme"]) == (target, scheme)]
    epsilons = [row["w2"] for row in own]
    plain, divided = (fit(epsilons, [row[key] for row in own]) for key in ("gradients", "gradients_over_logarithm"))
    small = [row for row in last if (row["target"], row["scheme"]) == (target, scheme)][-settings.per_decade :]
    order = fit([row["step_size_times_L"] for row in small], [row["w2"] for row in small])
    return {
        "target": target,
        "scheme": scheme,
        "exponent": -divided.slope,
        "exponent_margin": divided.half_width,
        "exponent_with_logarithm": -plain.slope,
        "exponent_with_logarithm_margin": plain.half_width,
        "table_1": TABLE[scheme],
        "order_in_step_size": order.slope,
        "order_margin": order.half_width,
    }


def _exponent_finding(row: Row) -> Finding:
    """The bound of Table 1 holds; what is reached is one over the order of the invariant law's error."""
    name = f"{row['target']}: {plots.LABELS[row['scheme']]}"
    if not math.isfinite(row["exponent"]):
        return Finding(f"{name} reaches every ε with one of the step sizes", False)
    reached = 1 / ORDERS[row["scheme"]]
    bound = f"{row['table_1']:.2g}"
    verdict = (
        f"as in Table 1 (ε^-{bound})"
        if abs(row["exponent"] - row["table_1"]) < 0.1
        else f"better than the bound of Table 1 (ε^-{bound}): on a smooth target the law's error is of weak order"
    )
    text = (
        f"{name} needs ε^-({row['exponent']:.3f} ± {row['exponent_margin']:.3f}) gradients, times log(1/ε), {verdict}; "
        "the error of its invariant law is of order "
        f"h^({row['order_in_step_size']:.3f} ± {row['order_margin']:.3f})"
    )
    near = abs(row["exponent"] - reached) < 0.1 and abs(row["order_in_step_size"] - ORDERS[row["scheme"]]) < 0.2
    return Finding(text, near and row["exponent"] < row["table_1"] + 0.1)


def _gain_finding(rows: list[Row], target: str) -> Finding:
    em, srk = ([row for row in rows if (row["target"], row["scheme"]) == (target, scheme)] for scheme in SCHEMES)
    ratios = [a["gradients"] / b["gradients"] for a, b in zip(em, srk, strict=True)]
    text = (
        f"{target}: Euler-Maruyama needs {ratios[0]:.2g} times the gradients of SRK-LD for W2 ≤ {em[0]['w2']:.2g}, and "
        f"{ratios[-1]:.3g} times for W2 ≤ {em[-1]['w2']:.2g}"
    )
    return Finding(text, ratios[-1] > max(1.0, ratios[0]))


def draw(settings: Settings, rows: list[Row], exponents: list[Row], file: Any) -> None:
    """A panel for each target, with lines of the fitted exponents."""
    titles = {
        "gaussian": f"Gaussian, d = {settings.curvatures}, condition number {settings.condition:g}",
        "mixture": f"mixture on a line, ‖a‖ = {settings.separation:g}",
    }
    figure, axes = plots.panels(len(settings.targets), share_y=True)
    for axis, target in zip(axes, settings.targets, strict=True):
        for fitted in (row for row in exponents if row["target"] == target):
            own = [row for row in rows if (row["target"], row["scheme"]) == (target, fitted["scheme"])]
            _draw_scheme(axis, own, fitted)
        axis.set(xscale="log", yscale="log", xlabel="ε: W2 to be reached", title=titles[target])
        plots.label_round_numbers(axis.xaxis)
        plots.label_round_numbers(axis.yaxis)
        axis.legend()
    axes[0].set_ylabel("gradients, over log(W2 of the start/ε)")
    plots.save(figure, file)


def _draw_scheme(axis: Any, own: list[Row], fitted: Row) -> None:
    epsilons, counts = ([row[key] for row in own] for key in ("w2", "gradients_over_logarithm"))
    color, exponent = plots.COLOR_OF[fitted["scheme"]], fitted["exponent"]
    label = f"{plots.LABELS[fitted['scheme']]}: ε^-({exponent:.3f} ± {fitted['exponent_margin']:.3f})"
    axis.plot(epsilons, counts, color=color, marker="o", linestyle="none", label=label)
    scale = geometric_mean(counts) * geometric_mean(epsilons) ** exponent
    axis.plot(epsilons, [scale * epsilon**-exponent for epsilon in epsilons], color=color, alpha=0.6)
    # The paper's exponent, from where the points begin.
    bound = [counts[0] * (epsilons[0] / epsilon) ** fitted["table_1"] for epsilon in epsilons]
    axis.plot(epsilons, bound, **plots.GUIDE | {"color": color}, label=f"Table 1: ε^-{fitted['table_1']:.2g}")
