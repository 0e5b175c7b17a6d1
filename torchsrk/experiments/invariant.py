"""W2 of the law that Euler-Maruyama and SRK-ID keep on the non-convex target on a line (Theorem 3), against step size.

By a transfer operator, which samples nothing, and by particles beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Annotated, Any, Literal, NamedTuple

import torch

from ..brownian.noise import derive_seed
from ..integrators import integrator_named
from ..sampling import sample
from ..sde import ItoDiffusion
from . import plots
from .base import Conclusion, Context, Finding, Result, Row, by_name
from .config import Count, Range
from .estimates import corrected_w2_squared, mean_and_error
from .fits import fit_line, student, student_95
from .transfer import LineNonConvex, invariant_w2

SCHEMES = ("em", "srk-id")
_NEAR = 3.0  # standard errors within which particles are to show the law's W2²
_ORDER = 0.15  # how far the order in the step size may be from 1


@dataclass(frozen=True)
class Settings:
    """Laws at all step sizes, for every γ; particles at some of the step sizes, for the first γ."""

    step_sizes: tuple[Annotated[float, Range(0.01, 1.5)], ...]
    checked: tuple[Annotated[float, Range(0.01, 1.5)], ...]  # step sizes that particles run at
    particles: Count  # of a cloud; an estimate takes two of the chain's and two of exact draws
    repeats: Annotated[int, Range(3, 10**6)]
    beta: Annotated[float, Range(0.05, 100.0)] = 0.33
    gammas: tuple[Annotated[float, Range(0.05, 10.0)], ...] = (0.5,)
    time: Annotated[float, Range(1.0, 1000.0)] = 20.0  # of a chain, from exact draws
    fineness: Annotated[float, Range(0.2, 4.0)] = 1.0  # of the operator's grid


class Case(NamedTuple):
    kind: Literal["law", "particles"]
    scheme: str
    gamma: float
    step_size: float

    @property
    def unit(self) -> str:
        return f"{self.kind}-{self.scheme}-g{self.gamma:g}-h{self.step_size:g}"


def _laws(settings: Settings) -> list[Case]:
    return [Case("law", *chosen) for chosen in product(SCHEMES, settings.gammas, settings.step_sizes)]


def _clouds(settings: Settings) -> list[Case]:
    return [Case("particles", *chosen) for chosen in product(SCHEMES, settings.gammas[:1], settings.checked)]


def plan(settings: Settings) -> dict[str, Case]:
    return by_name((case.unit, case) for case in (*_laws(settings), *_clouds(settings)))


def measure(settings: Settings, case: Case, context: Context) -> Result:
    result: Result = {"w2": _law_w2(settings, case)}
    if case.kind == "particles":
        repeats = context.bar(range(settings.repeats), unit="repeat")
        estimates = [_estimate(settings, case, repeat, context) for repeat in repeats]
        result["estimates"] = torch.tensor(estimates, dtype=torch.float64)
    return result


def _law_w2(settings: Settings, case: Case) -> float:
    target, scheme = LineNonConvex(settings.beta, case.gamma), integrator_named(case.scheme)
    return invariant_w2(target, scheme, step_size=case.step_size, fineness=settings.fineness)


def _estimate(settings: Settings, case: Case, repeat: int, context: Context) -> float:
    target = LineNonConvex(settings.beta, case.gamma).potential
    seed = derive_seed(context.seed, 2 * repeat)
    draws = target.sample((4 * settings.particles,), seed=seed, dtype=context.dtype, device=context.device)
    start, exact = draws.chunk(2)
    run = sample(
        ItoDiffusion(target, diffusion=target.scale, noise_type="isotropic"),
        start,
        integrator=case.scheme,
        step_size=case.step_size,
        num_steps=math.ceil(settings.time / case.step_size),
        seed=derive_seed(context.seed, 2 * repeat + 1),
        compile=context.compile,
    )
    return float(corrected_w2_squared(run.final, exact))


def conclude(settings: Settings, results: Mapping[str, Result]) -> Conclusion:
    laws = [_row(case) | {"w2": results[case.unit]["w2"]} for case in _laws(settings)]
    checks = [_row(case) | _check(results[case.unit]) for case in _clouds(settings)]
    orders = [_order(laws, *pair) for pair in product(SCHEMES, settings.gammas)]
    return Conclusion(
        tables={"laws": laws, "particles": checks, "orders": orders},
        figures={"invariant": partial(draw, settings, laws, checks)},
        findings=[*map(_order_finding, orders), *(_agreement(settings, row) for row in checks)],
        notes=[_gain(laws, gamma) for gamma in settings.gammas],
    )


def _row(case: Case) -> Row:
    return {"scheme": case.scheme, "gamma": case.gamma, "step_size": case.step_size}


def _check(result: Result) -> Row:
    mean, error = mean_and_error(result["estimates"])
    return {"w2_squared": mean, "standard_error": error, "law": result["w2"] ** 2}


def _order(laws: list[Row], scheme: str, gamma: float) -> Row:
    own = [row for row in laws if (row["scheme"], row["gamma"]) == (scheme, gamma)]
    line = fit_line([math.log(row["step_size"]) for row in own], [math.log(row["w2"]) for row in own])
    return {"scheme": scheme, "gamma": gamma, "order": line.slope, "half_width": line.half_width}


def _order_finding(row: Row) -> Finding:
    text = (
        f"γ = {row['gamma']:g}: W2 of the law that {plots.LABELS[row['scheme']]} keeps is of order "
        f"h^({row['order']:.3f} ± {row['half_width']:.3f}), so that W2 ≤ ε takes steps of order ε"
    )
    return Finding(text, abs(row["order"] - 1.0) < _ORDER)


def _agreement(settings: Settings, row: Row) -> Finding:
    apart = (row["w2_squared"] - row["law"]) / row["standard_error"]
    text = (
        f"γ = {row['gamma']:g}, h = {row['step_size']:g}: particles of {plots.LABELS[row['scheme']]} show W2² "
        f"{row['w2_squared']:.4g} ± {row['standard_error']:.2g}, {apart:+.1f} standard errors from the law's "
        f"{row['law']:.4g}"
    )
    # An estimate that noise hides agrees with anything.
    told = row["standard_error"] < 0.2 * row["law"]
    return Finding(text, told and abs(apart) < student(settings.repeats - 1, _NEAR))


def _gain(laws: list[Row], gamma: float) -> str:
    em, srk = ([row["w2"] for row in laws if (row["scheme"], row["gamma"]) == (name, gamma)] for name in SCHEMES)
    ratios = [a / b for a, b in zip(em, srk, strict=True)]
    return f"γ = {gamma:g}: Euler-Maruyama's W2 is {min(ratios):.2f} to {max(ratios):.2f} times SRK-ID's"


def draw(settings: Settings, laws: list[Row], checks: list[Row], file: Any) -> None:
    """A panel for each γ, all with one range of W2: laws as lines, particles as points."""
    figure, axes = plots.panels(len(settings.gammas), share_y=True)
    for axis, gamma in zip(axes, settings.gammas, strict=True):
        for scheme in SCHEMES:
            color = plots.COLOR_OF[scheme]
            own = [row for row in laws if (row["scheme"], row["gamma"]) == (scheme, gamma)]
            axis.plot([row["step_size"] for row in own], [row["w2"] for row in own], color=color, label=_label(scheme))
            seen = [row for row in checks if (row["scheme"], row["gamma"]) == (scheme, gamma)]
            roots = [math.sqrt(max(row["w2_squared"], 0.0)) for row in seen]
            wide = student_95(settings.repeats - 1)
            bars = [wide * row["standard_error"] / (2.0 * row["law"] ** 0.5) for row in seen]
            if seen:
                axis.errorbar(
                    [row["step_size"] for row in seen],
                    roots,
                    yerr=bars,
                    color=color,
                    **plots.POINTS,
                    label=f"{plots.LABELS[scheme]}, particles (bars: 95 %)",
                )
        steps = [min(settings.step_sizes), max(settings.step_sizes)]
        lowest = min(row["w2"] for row in laws if row["gamma"] == gamma)
        axis.plot(steps, [0.7 * lowest * h / steps[0] for h in steps], label="order h", **plots.GUIDE)
        axis.set(xscale="log", yscale="log", xlabel="step size h")
        axis.set_title(f"non-convex target, β = {settings.beta:g}, γ = {gamma:g}, d = 1")
        plots.label_round_numbers(axis.xaxis)
        plots.label_round_numbers(axis.yaxis)
    axes[0].set_ylabel("W2 of the law that is kept")
    axes[0].legend(loc="upper left")
    plots.save(figure, file)


def _label(scheme: str) -> str:
    return f"{plots.LABELS[scheme]}, its law"
