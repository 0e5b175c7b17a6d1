"""Richardson-Romberg extrapolation of Euler-Maruyama, 2E_h - E_2h on one path, beside SRK-LD per gradient.

Errors are those of exact laws (spectral.py), which are moments, so that an extrapolated law has them too; what noise
costs is in closed form on a Gaussian, and particles on coupled paths show both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from ..brownian.noise import derive_seed
from ..coupling import coupled_positions, periods_of
from ..integrators import integrator_named
from ..potentials import GaussianMixture
from ..sde import Langevin
from . import plots
from .base import Conclusion, Context, Finding, Result, Row
from .config import Count, Range
from .estimates import mean_and_error
from .fits import student, student_95
from .rate_targets import TARGETS, block_of, law_on, target_named
from .rates import fit
from .targets import SEPARATION

SCHEMES = ("em", "srk-ld", "lm")
EXTRAPOLATED = "em-extrapolated"
LABELS = {
    "em": "Euler-Maruyama",
    "srk-ld": "SRK-LD",
    "lm": "Leimkuhler-Matthews",
    EXTRAPOLATED: "Euler-Maruyama, extrapolated",
}
_COLORS = dict(zip(LABELS, plots.COLORS, strict=False))
_MARKERS = dict(zip(LABELS, "osD^", strict=True))
_ORDERS = {"em": 1.0, "srk-ld": 2.0, EXTRAPOLATED: 2.0}
_APART = 2  # places between a step size and its double
_NEAR, _ORDER = 3.0, 0.3
_TIME = 12.0


@dataclass(frozen=True)
class Settings:
    """Step sizes fall by √2 from the largest that a target allows; particles run at one of them, on the mixture."""

    step_sizes: Annotated[int, Range(6, 30)]
    particles: Count
    repeats: Annotated[int, Range(3, 10**6)]
    targets: tuple[Literal["mixture", "regression", "quartic"], ...] = TARGETS  # type: ignore[assignment]
    checked: Annotated[float, Range(0.01, 0.5)] = 0.25  # the shorter of two step sizes of particles


def step_sizes(settings: Settings, target: str) -> list[float]:
    own = target_named(target)
    return [own.largest[0] / own.curvature * 2.0 ** (-k / _APART) for k in range(settings.step_sizes)]


def _law(target: str, scheme: str, number: int) -> str:
    return f"law-{target}-{scheme}-{number}"


def plan(settings: Settings) -> dict[str, tuple[str, str, float] | None]:
    """Targets, schemes and step sizes of laws; the particles have none to choose."""
    laws = {
        _law(target, scheme, number): (target, scheme, h)
        for target, scheme in product(settings.targets, SCHEMES)
        for number, h in enumerate(step_sizes(settings, target))
    }
    return {**laws, "particles": None}


def measure(settings: Settings, law: tuple[str, str, float] | None, context: Context) -> Result:
    if law is None:
        return _particles(settings, context)
    target, scheme, h = law
    block = next(iter(target_named(target).potentials))
    own, _ = law_on(target, block, scheme, h, shift=0.0)
    return {"moments": own.stationary()[0]}


def _particles(settings: Settings, context: Context) -> Result:
    """Means of x² and of 2x² - y², y at steps twice as long on the same path, and their variances: (repeats,) each."""
    target = GaussianMixture(torch.tensor([SEPARATION], dtype=torch.float64))
    plain, both = [], []
    for repeat in context.bar(range(settings.repeats), unit="repeat"):
        ends = coupled_positions(
            Langevin(target),
            target.sample((settings.particles,), seed=derive_seed(context.seed, repeat)),
            integrator=integrator_named("em"),
            step_size=settings.checked,
            levels=2,
            periods=periods_of(_TIME, settings.checked, 2),
            seed=derive_seed(context.seed + 1, repeat),
        )[-1, ..., 0].square()
        plain.append(ends[0])
        both.append(2.0 * ends[0] - ends[1])
    values = {"plain": torch.stack(plain), "both": torch.stack(both)}
    found = {f"{name}_mean": value.mean(1) for name, value in values.items()}
    return found | {f"{name}_variance": value.var(1) for name, value in values.items()}


def gaussian_variances(h: float) -> tuple[float, float, float]:
    """On N(0, 1), of one particle's x², of 2x² - y² on one path, and of 2x² - y² on two.

    Two steps of h and one of 2h make a linear pair with Var x = 1/(1 - h/2), Var y = 1/(1 - h), and a covariance that
    solves c = (1 - h)²(1 - 2h)c + 2h(2 - h); Cov(x², y²) = 2c².
    """
    x, y = 1.0 / (1.0 - h / 2.0), 1.0 / (1.0 - h)
    c = 2.0 * h * (2.0 - h) / (1.0 - (1.0 - h) ** 2 * (1.0 - 2.0 * h))
    apart = 8.0 * x**2 + 2.0 * y**2
    return 2.0 * x**2, apart - 8.0 * c**2, apart


def conclude(settings: Settings, results: Mapping[str, Result]) -> Conclusion:
    rows = [row for target in settings.targets for row in error_rows(settings, target, results)]
    variances = [
        dict(zip(("step_size", "plain", "one_path", "two_paths"), (h, *gaussian_variances(h)), strict=True))
        for h in step_sizes(settings, "mixture")
    ]
    seen = _particle_row(settings, results["particles"])
    orders = [_order_row(rows, *pair) for pair in product(settings.targets, LABELS)]
    return Conclusion(
        tables={"errors": rows, "variances": variances, "particles": [seen], "orders": orders},
        figures={"romberg": partial(draw, settings.targets, rows)},
        findings=[
            *(_order_finding(row) for row in orders if row["scheme"] in _ORDERS),
            _variance_finding(variances),
            _particle_finding(settings, seen),
        ],
        notes=[_gain(rows, target) for target in settings.targets],
    )


def error_rows(settings: Settings, target: str, results: Mapping[str, Result]) -> list[Row]:
    """W2 of every law, and the relative error of its second moment about the target's mean.

    An extrapolated law may have negative masses: W2 is taken in its linearized form, for all alike. Laws whose errors
    are not told from those of polynomials are left out.
    """
    block = next(iter(target_named(target).potentials))
    _, transport = law_on(target, block, "em", step_sizes(settings, target)[-1], shift=0.0)
    own = block_of(target, block)
    weights = transport.basis.project((transport.basis.nodes - own.mean).square().sum(-1, keepdim=True))[0]
    rows = []
    for scheme, number in product(LABELS, range(settings.step_sizes)):
        moments = _moments(results, target, scheme, number)
        if moments is None:
            continue
        h, w2 = step_sizes(settings, target)[number], math.sqrt(float(transport.linearized(moments.unsqueeze(0))))
        if w2 < target_named(target).resolved[False]:
            continue
        rows.append(
            {
                "target": target,
                "scheme": scheme,
                "step_size": h,
                "gradients_a_time": _gradients(scheme) / h,
                "w2": w2,
                "second_moment": abs(float(weights @ moments) / float(weights[0]) - 1.0),
            }
        )
    return rows


def _moments(results: Mapping[str, Result], target: str, scheme: str, number: int) -> Tensor | None:
    """Of a law; for the extrapolated one with the step size of this number as the shorter, if there is its double."""
    if scheme != EXTRAPOLATED:
        found: Tensor = results[_law(target, scheme, number)]["moments"]
        return found
    if number < _APART:
        return None
    short, double = (results[_law(target, "em", k)]["moments"] for k in (number, number - _APART))
    return torch.as_tensor(2.0 * short - double)


def _gradients(scheme: str) -> float:
    """In a step: half a step twice as long comes with each that is extrapolated."""
    return 1.5 if scheme == EXTRAPOLATED else integrator_named(scheme).gradients_per_step


def _order_row(rows: Sequence[Row], target: str, scheme: str) -> Row:
    """Over the shorter half of step sizes."""
    own = [row for row in rows if (row["target"], row["scheme"]) == (target, scheme)]
    own = own[len(own) // 2 :]
    line = fit([row["step_size"] for row in own], [row["w2"] for row in own])
    return {"target": target, "scheme": scheme, "order": line.slope, "margin": line.half_width}


def _order_finding(row: Row) -> Finding:
    text = f"{row['target']}: W2 of {LABELS[row['scheme']]} goes like h^({row['order']:.2f} ± {row['margin']:.2f})"
    return Finding(text, abs(row["order"] - _ORDERS[row["scheme"]]) < _ORDER)


def _variance_finding(variances: Sequence[Row]) -> Finding:
    last = variances[-1]
    one, two = (last[key] / last["plain"] for key in ("one_path", "two_paths"))
    text = (
        f"on a Gaussian at h = {last['step_size']:.2g} an extrapolated estimate of E x² has {one:.2f} times the "
        f"variance of a plain one on one path, and {two:.2f} times on two"
    )
    return Finding(text, one < 1.2 and two > 4.0)


def _particle_row(settings: Settings, result: Result) -> Row:
    """What particles on the mixture show, with standard errors over repeats."""
    row: Row = {"step_size": settings.checked}
    exact = {"plain": [(1.0, settings.checked)], "both": [(2.0, settings.checked), (-1.0, 2.0 * settings.checked)]}
    own = block_of("mixture", "along")
    for name, parts in exact.items():
        row[f"{name}_law"] = sum(share * _second_moment(h) for share, h in parts)
        row[name], row[f"{name}_error"] = mean_and_error(result[f"{name}_mean"])
        row[f"{name}_variance"] = float(result[f"{name}_variance"].mean())
    return row | {"target": float(own.deviation.square())}


def _second_moment(h: float) -> float:
    own, transport = law_on("mixture", "along", "em", h, shift=0.0)
    weights = transport.basis.project(transport.basis.nodes.square())[0]
    return float(weights @ own.stationary()[0])


def _particle_finding(settings: Settings, row: Row) -> Finding:
    wide = student(settings.repeats - 1, _NEAR)
    margin = student_95(settings.repeats - 1)
    gaps = [abs(row[name] - row[f"{name}_law"]) / row[f"{name}_error"] for name in ("plain", "both")]
    text = (
        f"particles on the mixture at h = {row['step_size']:g}, where E x² is {row['target']:.4f}: "
        f"{row['plain']:.4f} ± {margin * row['plain_error']:.4f} ({row['plain_law']:.4f} by the law), extrapolated "
        f"{row['both']:.4f} ± {margin * row['both_error']:.4f} ({row['both_law']:.4f}), with "
        f"{row['both_variance'] / row['plain_variance']:.2f} times the variance"
    )
    return Finding(text, max(gaps) < wide)


def _gain(rows: Sequence[Row], target: str) -> str:
    """Gradients in a unit of time at which others err as the extrapolated law does at its shortest steps."""
    own = {scheme: [row for row in rows if (row["target"], row["scheme"]) == (target, scheme)] for scheme in LABELS}
    last = own[EXTRAPOLATED][-1]
    told = [
        f"{LABELS[scheme]} {_needed(own[scheme], last['w2']) / last['gradients_a_time']:.2g} times"
        for scheme in SCHEMES
    ]
    return (
        f"{target}: for W2 of {last['w2']:.2g}, which extrapolation has with {last['gradients_a_time']:.3g} gradients "
        f"in a unit of time, those of others, by their powers of h: {', '.join(told)}"
    )


def _needed(own: Sequence[Row], w2: float) -> float:
    """By the power between the two rows nearest to a W2, beyond the ends too; nan where these are level."""
    x, y = ([math.log(row[key]) for row in own] for key in ("w2", "gradients_a_time"))
    wanted = math.log(w2)
    k = min(max(sum(value > wanted for value in x), 1), len(x) - 1)
    rise = x[k] - x[k - 1]
    return math.exp(y[k - 1] + (wanted - x[k - 1]) * (y[k] - y[k - 1]) / rise) if rise else math.nan


def draw(targets: Sequence[str], rows: Sequence[Row], file: Any) -> None:
    """W2 of laws against gradients in a unit of time, a panel for each target."""
    count = len(targets)
    figure, axes = plots.panels(count, width=4.8, height=4.0, columns=min(2, count), share_y=True)
    for axis, target in zip(axes, targets, strict=True):
        for scheme, label in LABELS.items():
            own = [row for row in rows if (row["target"], row["scheme"]) == (target, scheme)]
            look = {"color": _COLORS[scheme], "marker": _MARKERS[scheme]}
            axis.plot([row["gradients_a_time"] for row in own], [row["w2"] for row in own], **look, label=label)
        axis.set(xscale="log", yscale="log", title=target_named(target).title)
        axis.set_xlabel("gradients in a unit of time")
        plots.label_round_numbers(axis.xaxis)
    figure.supylabel("W2 of the law to the target")
    # In the cell that three panels leave free.
    place: dict[str, Any] = {"loc": "outside lower center", "ncols": min(2, count)}
    hole: dict[str, Any] = {"loc": "center", "bbox_to_anchor": (0.77, 0.27)}
    figure.legend(*axes[0].get_legend_handles_labels(), **(hole if count == 3 else place))
    plots.save(figure, file)
