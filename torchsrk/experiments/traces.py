"""The error of the particles along a run: a distance to the target against iterations, step size by step size."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Annotated, Literal

import torch
from torch import Tensor

from ..brownian.noise import Stream, derive_seed, draw_uniform
from ..metrics import energy_distance_squared, kernel_stein_discrepancy
from ..metrics.stein import SteinKernel
from ..potentials import GaussianMixture, LogisticRegression, Potential
from ..sampling import NonFiniteStateError, sample
from ..sde import Langevin
from .base import Conclusion, Context, Finding, Result, Row, by_name
from .config import ConfigError, Count, Dimension, Positive, Range, Seed
from .estimates import Method, corrected_w2_squared, mean_and_error
from .fits import student_95
from .laws import invariant_error
from .reference_draws import Reference, reference_draws
from .targets import FAR, SEPARATION, mixture, regression
from .trace_figures import draw_traces

SCHEMES = ("em", "srk-ld")
KSD_LIMIT = 0.002  # the paper's, of the squared discrepancy of reference particles
_CHAIN, _SUBSAMPLE, _EXACT = range(3)  # what seeds are for


@dataclass(frozen=True)
class Metric:
    """An error in terms of ``clouds`` independent clouds of either law, stacked."""

    label: str
    clouds: int
    between: Callable[..., Tensor]


METRICS = {
    "w2": Metric("W2²", 2, corrected_w2_squared),
    "energy": Metric("squared energy distance", 1, energy_distance_squared),
}


@dataclass(frozen=True)
class Target:
    """A density, the step sizes to take on it, and the point (start, ..., start) that all particles leave from."""

    kind: Literal["mixture", "regression"]
    dim: Dimension
    step_sizes: tuple[Positive, ...]
    start: Annotated[float, Range(-1e6, 1e6)]
    observations: Count | None = None  # of the regression

    @property
    def name(self) -> str:
        return f"{self.kind}-d{self.dim}"

    @property
    def title(self) -> str:
        return f"{self.kind}, d = {self.dim}"


@dataclass(frozen=True)
class Settings:
    """Both schemes at every target's step sizes, by one metric."""

    metric: Literal["w2", "energy"]
    targets: tuple[Target, ...]
    iterations: tuple[Count, ...]  # after which the error is measured
    plateau: Count  # how many of the last of them are averaged
    particles: Count  # of a cloud; W2² takes two clouds of particles and two of the target
    repeats: Annotated[int, Range(2, 10**6)]  # independent runs, for the standard error
    reference: Reference = field(default_factory=Reference)
    data_seed: Seed = 0  # of the regression's data
    method: Method = "exact"  # of W2², see torchsrk.metrics

    @property
    def between(self) -> Callable[[Tensor, Tensor], Tensor]:
        """The error of stacked clouds, as the settings have it."""
        between = METRICS[self.metric].between
        return partial(between, method=self.method) if self.metric == "w2" else between

    def __post_init__(self) -> None:
        if len({target.name for target in self.targets}) < len(self.targets):
            raise ConfigError("targets: a kind and dimension is there twice; give its step sizes in one entry")
        if any(target.kind == "regression" and target.observations is None for target in self.targets):
            raise ConfigError("targets: a regression needs observations")
        if any(target.kind == "mixture" and target.observations is not None for target in self.targets):
            raise ConfigError("targets: a mixture has no observations")
        if self.plateau > len(self.iterations):
            raise ConfigError(f"plateau: at most the {len(self.iterations)} iterations; got {self.plateau}")
        needed = 2 * METRICS[self.metric].clouds * self.particles
        if self.reference.particles < needed:
            raise ConfigError(
                f"reference.particles: {needed} or more are needed for disjoint clouds of "
                f"{self.particles}; got {self.reference.particles}"
            )


Case = tuple[Target, str, float, int]  # with scheme, step size and repeat


def plan(settings: Settings) -> dict[str, Target | Case]:
    """Targets, of which the reference is measured, and traces."""
    references = ((_reference_unit(target), target) for target in settings.targets)
    return by_name((*references, *((_unit(*case), case) for case in _cases(settings))))


def _cases(settings: Settings) -> Iterator[Case]:
    for target in settings.targets:
        yield from product((target,), SCHEMES, target.step_sizes, range(settings.repeats))


def _unit(target: Target, scheme: str, h: float, repeat: int) -> str:
    return f"{target.name}-{scheme}-h{h:g}-run{repeat}"


def _reference_unit(target: Target) -> str:
    return f"reference-{target.name}"


def measure(settings: Settings, case: Target | Case, context: Context) -> Result:
    if isinstance(case, Target):
        return measure_reference(settings, case, context)
    return measure_trace(settings, case, context)


def measure_reference(settings: Settings, target: Target, context: Context) -> Result:
    """The error that draws of the target itself show, and for draws of a chain their Stein discrepancy."""
    metric, potential = METRICS[settings.metric], potential_of(settings, target, context)
    pool = draws_of(settings, potential, context)
    floor = []
    for repeat in range(settings.repeats):
        drawn = chosen(pool, 2 * metric.clouds * settings.particles, seed=_seed(context, _EXACT, repeat), step=0)
        floor.append(float(settings.between(*drawn.chunk(2))))
    result: Result = {"floor": torch.tensor(floor, dtype=torch.float64)}
    if target.kind == "regression":
        score, n = -potential.grad(pool), len(pool)
        all_pairs = float(kernel_stein_discrepancy(pool, score, squared=True))
        itself = float(SteinKernel(pool, score, beta=-0.5, c=1.0).diagonal().double().mean())
        result |= {"ksd_squared_v": all_pairs, "ksd_squared_u": (n * all_pairs - itself) / (n - 1)}
    return result


def measure_trace(settings: Settings, case: Case, context: Context) -> Result:
    """The errors of one run, and of the first the last cloud that is finite.

    Schemes and step sizes share seeds, so that their runs make pairs.
    """
    target, scheme, h, repeat = case
    metric, potential = METRICS[settings.metric], potential_of(settings, target, context)
    pool, count = draws_of(settings, potential, context), metric.clouds * settings.particles
    start = torch.full((count, target.dim), target.start, dtype=context.dtype, device=context.device)
    seed = _seed(context, _CHAIN, repeat)
    states = states_along(potential, start, scheme, h, sorted(settings.iterations), seed=seed, context=context)
    errors, last = [], start
    for iteration, state in context.bar(states, unit="point", total=len(settings.iterations)):
        last = state
        exact = chosen(pool, count, seed=_seed(context, _SUBSAMPLE, repeat), step=iteration)
        errors.append(float(settings.between(state.double(), exact)))
    errors += [math.inf] * (len(settings.iterations) - len(errors))  # where particles are no longer finite
    result: Result = {"errors": torch.tensor(errors, dtype=torch.float64)}
    if repeat == 0:
        result["samples"] = last[: settings.particles].cpu()
    return result


def states_along(
    potential: Potential,
    start: Tensor,
    scheme: str,
    h: float,
    iterations: list[int],
    *,
    seed: int,
    context: Context,
) -> Iterator[tuple[int, Tensor]]:
    """The particles after each of the iterations; ends early where they diverge."""
    sde, done, state = Langevin(potential), 0, None
    x = start
    for iteration in iterations:
        if iteration > done:
            try:
                run = sample(
                    sde,
                    x,
                    state=state,
                    integrator=scheme,
                    step_size=h,
                    first_step=done,
                    num_steps=iteration - done,
                    seed=seed,
                    compile=context.compile,
                )
            except NonFiniteStateError:
                return
            x, state, done = run.final, run.state, run.step
            if float(x.abs().max()) > FAR:
                return
        yield iteration, x


def potential_of(settings: Settings, target: Target, context: Context) -> Potential:
    if target.kind == "mixture":
        return mixture(target.dim, context)
    assert target.observations is not None
    return regression(target.observations, target.dim, settings.data_seed, context)


def draws_of(settings: Settings, potential: Potential, context: Context) -> Tensor:
    """A pool of draws of the target: exact ones, or a fine chain's.

    All repeats choose from the one pool, as in the paper: its own deviation is in no standard error.
    """
    if isinstance(potential, GaussianMixture):
        return potential.sample((settings.reference.particles,), seed=_seed(context, _EXACT, 0))
    assert isinstance(potential, LogisticRegression)
    return reference_draws(potential, settings.reference, context)


def chosen(pool: Tensor, count: int, *, seed: int, step: int) -> Tensor:
    """Points of the pool without replacement, in float64."""
    keys = draw_uniform((len(pool), 1), seed=seed, stream=Stream.SUBSAMPLE, step=step, device=torch.device("cpu"))
    return pool[keys[:, 0].argsort(stable=True)[:count].to(pool.device)].double()


def _seed(context: Context, purpose: int, repeat: int) -> int:
    return derive_seed(derive_seed(context.seed, purpose), repeat)


def conclude(settings: Settings, results: Mapping[str, Result]) -> Conclusion:
    rows, plateaus = trace_rows(settings, results), plateau_rows(settings, results)
    references = [_reference_row(settings, target, results) for target in settings.targets]
    return Conclusion(
        tables={"traces": rows, "plateaus": plateaus, "references": references},
        figures={"traces": partial(draw_traces, settings, METRICS[settings.metric].label, rows, plateaus, references)},
        findings=findings(settings, plateaus, references),
    )


def _runs(settings: Settings, results: Mapping[str, Result], target: Target, scheme: str, h: float) -> Tensor:
    """(repeats, iterations)"""
    return torch.stack([results[_unit(target, scheme, h, k)]["errors"] for k in range(settings.repeats)])


def trace_rows(settings: Settings, results: Mapping[str, Result]) -> list[Row]:
    rows: list[Row] = []
    method = {"method": settings.method} if settings.metric == "w2" else {}
    for target in settings.targets:
        for scheme, h in product(SCHEMES, target.step_sizes):
            runs = _runs(settings, results, target, scheme, h)
            for iteration, values in zip(sorted(settings.iterations), runs.unbind(1), strict=True):
                where = {"target": target.name, "scheme": scheme, "step_size": h, "iteration": iteration}
                errors = dict(zip(("error", "standard_error"), mean_and_error(values), strict=True))
                rows.append(where | method | errors)
    return rows


def plateau_rows(settings: Settings, results: Mapping[str, Result]) -> list[Row]:
    """The mean of the last points, scheme by scheme, and how much higher Euler-Maruyama's is in the same repeat."""
    rows: list[Row] = []
    for target in settings.targets:
        for h in target.step_sizes:
            em, srk = (
                _runs(settings, results, target, scheme, h)[:, -settings.plateau :].mean(1) for scheme in SCHEMES
            )
            row: Row = {"target": target.name, "step_size": h}
            for name, values in (("em", em), ("srk_ld", srk), ("difference", em - srk)):
                row[name], row[f"{name}_standard_error"] = mean_and_error(values)
            rows.append(row | laws_of(settings, target, h))
    return rows


def laws_of(settings: Settings, target: Target, h: float) -> Row:
    """W2² of the schemes' exact laws on the mixture; empty where nothing like it is known."""
    known = settings.metric == "w2" and target.kind == "mixture"
    error = partial(invariant_error, separation=SEPARATION, dim=target.dim, step_size=h)
    return {
        f"{name}_law": error(scheme) if known else "" for name, scheme in zip(("em", "srk_ld"), SCHEMES, strict=True)
    }


def _reference_row(settings: Settings, target: Target, results: Mapping[str, Result]) -> Row:
    result = results[_reference_unit(target)]
    floor, error = mean_and_error(result["floor"])
    return {
        "target": target.name,
        "draws": "exact" if target.kind == "mixture" else "chain",
        "particles": settings.reference.particles,
        "ksd_squared_v": result.get("ksd_squared_v", ""),
        "ksd_squared_u": result.get("ksd_squared_u", ""),
        "error_of_draws": floor,
        "standard_error": error,
    }


def findings(settings: Settings, plateaus: list[Row], references: list[Row]) -> list[Finding]:
    """SRK-LD settles lower than Euler-Maruyama, by more than chance gives; a simulated reference is a faithful one."""
    found: list[Finding] = []
    titles = {target.name: target.title for target in settings.targets}
    for row in plateaus:
        em, srk = (_plateau(row, name) for name in ("em", "srk_ld"))
        place = f"{titles[row['target']]}, h = {row['step_size']:g}"
        label = METRICS[settings.metric].label
        text = f"{place}: {label} settles at {em} with Euler-Maruyama and, clearly lower, at {srk} with SRK-LD"
        found.append(
            Finding(text, row["difference"] > student_95(settings.repeats - 1) * row["difference_standard_error"])
        )
    for row in references:
        if row["draws"] == "chain":
            squared = row["ksd_squared_v"]
            text = (
                f"{titles[row['target']]}: the squared KSD of {row['particles']} reference particles is {squared:.2g}"
            )
            found.append(Finding(f"{text}; the paper asks for less than {KSD_LIMIT:g}", squared < KSD_LIMIT))
    return found


def _plateau(row: Row, name: str) -> str:
    law = row[f"{name}_law"]
    exact = f" ({law:.3g} by the exact law)" if law != "" else ""
    return f"{row[name]:.3g} ± {row[f'{name}_standard_error']:.2g}{exact}"
