"""W2 of the law that Euler-Maruyama and SRK-ID keep on the non-convex target (Theorem 3), against step size.

On a line by a transfer operator, which samples nothing, and by particles beside it; in more dimensions by particles.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Annotated, Literal, NamedTuple

import torch
from torch import Tensor

from ..brownian.noise import derive_seed
from ..integrators import integrator_named
from ..potentials import NonConvex
from ..sampling import sample
from ..sde import ItoDiffusion
from ..theory import non_convex_constants
from . import plots
from .base import Conclusion, Context, Finding, Result, Row, by_name
from .config import ConfigError, Count, Range
from .estimates import corrected_w2_squared, mean_and_error
from .fits import fit_line, student, student_95
from .invariant_figures import SCHEMES, draw
from .transfer import LineNonConvex, invariant_w2

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
    dims: tuple[Annotated[int, Range(2, 20)], ...] = ()  # in which there are particles alone
    dims_particles: Count = 1000  # of a cloud there
    dims_repeats: Annotated[int, Range(3, 10**6)] = 10

    def __post_init__(self) -> None:
        for dim in self.dims:
            hills = NonConvex(beta=self.beta, gamma=self.gammas[0], dim=dim)
            try:
                non_convex_constants(hills)
            except ValueError as error:
                raise ConfigError(f"dims: take fewer than {dim}, or a larger beta: {error}") from error


class Case(NamedTuple):
    kind: Literal["law", "particles"]
    scheme: str
    gamma: float
    step_size: float
    dim: int = 1

    @property
    def unit(self) -> str:
        wide = f"-d{self.dim}" if self.dim > 1 else ""
        return f"{self.kind}-{self.scheme}-g{self.gamma:g}-h{self.step_size:g}{wide}"


def _laws(settings: Settings) -> list[Case]:
    return [Case("law", *chosen) for chosen in product(SCHEMES, settings.gammas, settings.step_sizes)]


def _clouds(settings: Settings) -> list[Case]:
    return [Case("particles", *chosen) for chosen in product(SCHEMES, settings.gammas[:1], settings.checked)]


def _wide_clouds(settings: Settings) -> list[Case]:
    chosen = product(settings.dims, SCHEMES, settings.checked)
    return [Case("particles", scheme, settings.gammas[0], h, dim) for dim, scheme, h in chosen]


def plan(settings: Settings) -> dict[str, Case]:
    cases = (*_laws(settings), *_clouds(settings), *_wide_clouds(settings))
    return by_name((case.unit, case) for case in cases)


def measure(settings: Settings, case: Case, context: Context) -> Result:
    result: Result = {"w2": _law_w2(settings, case)} if case.dim == 1 else {}
    if case.kind == "particles":
        count = settings.repeats if case.dim == 1 else settings.dims_repeats
        repeats = context.bar(range(count), unit="repeat")
        estimates = [_estimate(settings, case, repeat, context) for repeat in repeats]
        result["estimates"] = torch.tensor(estimates, dtype=torch.float64)
    return result


def _law_w2(settings: Settings, case: Case) -> float:
    target, scheme = LineNonConvex(settings.beta, case.gamma), integrator_named(case.scheme)
    return invariant_w2(target, scheme, step_size=case.step_size, fineness=settings.fineness)


def _estimate(settings: Settings, case: Case, repeat: int, context: Context) -> float:
    target = NonConvex(beta=settings.beta, gamma=case.gamma, dim=case.dim)
    particles = settings.particles if case.dim == 1 else settings.dims_particles
    seed = derive_seed(context.seed, 2 * repeat)
    draws = target.sample((4 * particles,), seed=seed, dtype=context.dtype, device=context.device)
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
    wide = [_row(case) | {"dim": case.dim} | _shown(results[case.unit]["estimates"]) for case in _wide_clouds(settings)]
    orders = [_order(laws, *pair) for pair in product(SCHEMES, settings.gammas)]
    return Conclusion(
        tables={"laws": laws, "particles": checks, "orders": orders, **({"dimensions": wide} if wide else {})},
        figures={"invariant": partial(draw, settings, laws, checks, wide)},
        findings=[
            *map(_order_finding, orders),
            *(_agreement(settings, row) for row in checks),
            *(_near(settings, wide, dim) for dim in settings.dims),
        ],
        notes=[*(_gain(laws, gamma) for gamma in settings.gammas), *map(_told, wide)],
    )


def _shown(estimates: Tensor) -> Row:
    """W2² over repeats with a 95 % interval, and W2 where the interval is above 0."""
    mean, error = mean_and_error(estimates)
    half_width = student_95(len(estimates) - 1) * error
    return {"w2_squared": mean, "half_width": half_width, "w2": math.sqrt(mean) if mean > half_width else ""}


def _told(row: Row) -> str:
    return (
        f"d = {row['dim']}, h = {row['step_size']:g}: particles of {plots.LABELS[row['scheme']]} show W2² "
        f"{row['w2_squared']:.4g} ± {row['half_width']:.2g} (95 %)"
    )


def _near(settings: Settings, wide: list[Row], dim: int) -> Finding:
    """At the largest step, which noise hides least: no more than twice apart, as on a line."""
    h = max(settings.checked)
    em, srk = (
        next(row for row in wide if (row["scheme"], row["dim"], row["step_size"]) == (name, dim, h)) for name in SCHEMES
    )
    if not (em["w2"] and srk["w2"]):
        return Finding(f"d = {dim}, h = {h:g}: W2² of both schemes is above 0, beyond 95 % intervals", False)
    ratio = em["w2"] / srk["w2"]
    return Finding(f"d = {dim}, h = {h:g}: Euler-Maruyama's W2 is {ratio:.2f} times SRK-ID's", 1.0 < ratio < 2.0)


def _row(case: Case) -> Row:
    return {"scheme": case.scheme, "gamma": case.gamma, "step_size": case.step_size}


def _check(result: Result) -> Row:
    mean, error = mean_and_error(result["estimates"])
    half_width = student_95(len(result["estimates"]) - 1) * error
    return {"w2_squared": mean, "standard_error": error, "half_width_95": half_width, "law": result["w2"] ** 2}


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
