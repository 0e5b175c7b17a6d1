"""W2² against seconds on the mixture: what a step costs, and which scheme is first at a given error.

Errors come from the law of the chain, which is known (see laws.py); clouds of particles confirm it. Only the rounds
read a clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice, product
from statistics import median, quantiles
from typing import Annotated, Any, Literal, NamedTuple

import torch
from torch import Tensor

from ..brownian.noise import Stream, derive_seed, fill_normal
from ..sampling import Run, sample
from ..sde import Langevin
from . import plots
from .base import Conclusion, Context, Finding, Result, Row, by_name
from .config import ConfigError, Count, Dimension, Positive, Range
from .estimates import Method, corrected_w2_squared, mean_and_error
from .fits import student
from .laws import LineMixture, gaussian_errors, line_errors, steps_below
from .targets import SEPARATION, mixture

SCHEMES = ("em", "srk-ld")
StepSize = Annotated[float, Range(0.001, 1.5)]  # from 2 on both schemes diverge
_BELOW = 0.1  # W2² where the corrected estimator's own bias is small against its noise


@dataclass(frozen=True)
class Settings:
    """Chains from N(start_shift·1, I); every step size competes for the time to an error."""

    dim: Dimension
    step_sizes: tuple[StepSize, ...]
    shown: tuple[StepSize, ...]  # step sizes drawn, and confirmed with clouds of particles
    levels: tuple[Positive, ...]  # of W2² to be reached, falling
    particles: Count  # of the runs that are timed
    steps: Annotated[int, Range(100, 10**8)]  # of the runs that are timed
    rounds: Annotated[int, Range(2, 10**4)]
    points: Count  # of a cloud whose error is estimated
    repeats: Annotated[int, Range(2, 10**4)]
    # Of every coordinate: only the mean has far to go, and it overshoots with no scheme.
    start_shift: Annotated[float, Range(0.0, 10.0)] = 2.0
    time: Annotated[float, Range(1.0, 1000.0)] = 12.0  # how far the chains are followed
    method: Method = "exact"  # of the estimates, see torchsrk.metrics

    def __post_init__(self) -> None:
        if not set(self.shown) <= set(self.step_sizes):
            raise ConfigError(f"shown: expected some of the step_sizes; got {list(self.shown)}")
        if len(self.levels) < 2 or sorted(self.levels, reverse=True) != list(self.levels):
            raise ConfigError(f"levels: expected two or more, falling; got {list(self.levels)}")


class Reached(NamedTuple):
    """The first of a scheme's step sizes at a level: its steps and their seconds."""

    step_size: float
    steps: int
    seconds: float


class Case(NamedTuple):
    kind: Literal["law", "cloud"]
    scheme: str
    step_size: float

    @property
    def unit(self) -> str:
        return f"{self.kind}-{self.scheme}-h{self.step_size:g}"


def plan(settings: Settings) -> dict[str, Case | int]:
    """Laws, clouds, and the numbers of rounds."""
    laws = [Case("law", *chosen) for chosen in product(SCHEMES, settings.step_sizes)]
    clouds = [Case("cloud", *chosen) for chosen in product(SCHEMES, settings.shown)]
    rounds = ((_round(number), number) for number in range(settings.rounds))
    return by_name((*((case.unit, case) for case in laws + clouds), *rounds))


def _round(number: int) -> str:
    return f"round-{number}"


def measure(settings: Settings, case: Case | int, context: Context) -> Result:
    if isinstance(case, int):
        return _race(settings, case, context)
    if case.kind == "law":
        return {"w2_squared": law_errors(settings, case.scheme, case.step_size)}
    return _cloud_errors(settings, case.scheme, case.step_size, context)


def law_errors(settings: Settings, scheme: str, h: float) -> Tensor:
    """W2² after every step: along a by quadrature, across a in closed form."""
    count, shift = math.ceil(settings.time / h), settings.start_shift * math.sqrt(settings.dim)  # all of it along a
    line = line_errors(LineMixture(SEPARATION), scheme, step_size=h, mean=shift, deviation=1.0)
    along = torch.tensor(list(islice(line, count)), dtype=torch.float64)
    steps = torch.arange(1, count + 1)
    across = gaussian_errors(scheme, step_size=h, curvature=1.0, mean=0.0, variance=1.0, steps=steps)
    return along + (settings.dim - 1) * across


def _cloud_errors(settings: Settings, scheme: str, h: float, context: Context) -> Result:
    """Corrected estimates of W2² at the end, one a repeat, and the last cloud."""
    target, steps, estimates = mixture(settings.dim, context), math.ceil(settings.time / h), []
    for repeat in context.bar(range(settings.repeats), unit="repeat"):
        seed = derive_seed(context.seed, repeat)
        run = _run(settings, scheme, h, particles=2 * settings.points, steps=steps, seed=seed, context=context)
        exact = target.sample((2 * settings.points,), seed=derive_seed(context.seed + 1, repeat))
        estimates.append(float(corrected_w2_squared(run.final, exact, settings.method)))
    return {"estimates": torch.tensor(estimates, dtype=torch.float64), "samples": run.final[: settings.points].cpu()}


def _race(settings: Settings, number: int, context: Context) -> Result:
    """Seconds a step; the schemes take turns, and the first changes from round to round.

    A run's own start (finding the compiled program, checks) is that of a short run, and taken off.
    """
    runs = {
        scheme: partial(
            _run, settings, scheme, settings.shown[0], particles=settings.particles, seed=number, context=context
        )
        for scheme in SCHEMES
    }
    for run in runs.values():
        run(steps=1)  # what is compiled, is compiled here
    seconds = {}
    for scheme in sorted(runs, reverse=bool(number % 2)):
        short, whole = (_clocked(partial(runs[scheme], steps=steps)) for steps in (1, settings.steps + 1))
        seconds[scheme] = (whole - short) / settings.steps
    return seconds


def _clocked(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _run(settings: Settings, scheme: str, h: float, *, particles: int, steps: int, seed: int, context: Context) -> Run:
    start = torch.empty(particles, settings.dim, dtype=context.dtype, device=context.device)
    fill_normal(start, seed=seed, stream=Stream.START).add_(settings.start_shift)
    sde = Langevin(mixture(settings.dim, context))
    return sample(sde, start, integrator=scheme, step_size=h, num_steps=steps, seed=seed, compile=context.compile)


def conclude(settings: Settings, results: Mapping[str, Result]) -> Conclusion:
    rounds = [results[_round(number)] for number in range(settings.rounds)]
    cost = {scheme: median(times[scheme] for times in rounds) for scheme in SCHEMES}
    traces = _trace_rows(settings, results, cost)
    clouds = _cloud_rows(settings, results)
    reached = _reached_rows(settings, results, cost)
    costs = [{"round": number, **times} for number, times in enumerate(rounds)]
    found = [_cost_finding(rounds), *_reached_findings(reached), _cloud_finding(clouds, settings.repeats)]
    return Conclusion(
        tables={"traces": traces, "clouds": clouds, "time_to_error": reached, "seconds_a_step": costs},
        figures={"wall_time": partial(draw, settings, traces, reached)},
        findings=found,
    )


def _trace_rows(settings: Settings, results: Mapping[str, Result], cost: Mapping[str, float]) -> list[Row]:
    return [
        {"scheme": scheme, "step_size": h, "step": step, "seconds": step * cost[scheme], "w2_squared": error}
        for scheme, h in product(SCHEMES, settings.step_sizes)
        for step, error in enumerate(results[Case("law", scheme, h).unit]["w2_squared"].tolist(), start=1)
    ]


def _cloud_rows(settings: Settings, results: Mapping[str, Result]) -> list[Row]:
    rows = []
    for scheme, h in product(SCHEMES, settings.shown):
        mean, error = mean_and_error(results[Case("cloud", scheme, h).unit]["estimates"])
        law = float(results[Case("law", scheme, h).unit]["w2_squared"][-1])
        where = {"scheme": scheme, "step_size": h, "method": settings.method}
        rows.append(where | {"w2_squared": mean, "standard_error": error, "law": law})
    return rows


def _reached_rows(settings: Settings, results: Mapping[str, Result], cost: Mapping[str, float]) -> list[Row]:
    rows = []
    for level, scheme in product(settings.levels, SCHEMES):
        curves = {h: results[Case("law", scheme, h).unit]["w2_squared"] for h in settings.step_sizes}
        first = first_at(level, curves, cost[scheme])
        rows.append({"w2_squared": level, "scheme": scheme, **first._asdict()})
    return rows


def first_at(level: float, curves: Mapping[float, Tensor], cost: float) -> Reached:
    """The step size that is soonest below the level for good; infinitely late where none is."""
    best = Reached(math.nan, 0, math.inf)
    for h, errors in curves.items():
        steps = steps_below(errors, level)
        if steps and steps * cost < best.seconds:
            best = Reached(h, steps, steps * cost)
    return best


def _cost_finding(rounds: list[Result]) -> Finding:
    low, middle, high = quantiles([times["srk-ld"] / times["em"] for times in rounds], n=4, method="inclusive")
    text = (
        f"a step of SRK-LD takes {middle:.2f} times as long as one of Euler-Maruyama (quartiles {low:.2f} to "
        f"{high:.2f}, {len(rounds)} rounds), for three times the gradients: between 1.5 and 4, as the paper's 2.5"
    )
    # Three gradients for one, less what both pay alike; wide, since a shared machine scatters it from run to run.
    return Finding(text, 1.5 < middle < 4)


def _reached_findings(rows: list[Row]) -> list[Finding]:
    """Rows come in pairs, Euler-Maruyama's and SRK-LD's, of falling levels."""
    pairs = list(zip(rows[::2], rows[1::2], strict=True))
    ratios = [em["seconds"] / srk["seconds"] for em, srk in pairs]
    em, srk = pairs[-1]
    if not math.isfinite(em["seconds"]) or not math.isfinite(srk["seconds"]):
        return [Finding(f"W2² ≤ {em['w2_squared']:g} is reached by both schemes at some of the step sizes", False)]
    least = (
        f"W2² ≤ {em['w2_squared']:g} is reached after {_milliseconds(em)} with Euler-Maruyama and after "
        f"{_milliseconds(srk)} with SRK-LD, each at its best step size: {ratios[-1]:.2f} times sooner"
    )
    shown = ", ".join(f"{ratio:.2f} at {em['w2_squared']:g}" for ratio, (em, _) in zip(ratios, pairs, strict=True))
    growing = f"the smaller the error, the more SRK-LD gains: times sooner by W2² are {shown}"
    return [Finding(least, ratios[-1] > 1), Finding(growing, ratios[-1] > ratios[0])]


def _milliseconds(row: Row) -> str:
    return f"{1000 * row['seconds']:.3g} ms ({row['steps']} steps of {row['step_size']:g})"


def _cloud_finding(rows: list[Row], repeats: int) -> Finding:
    near = [row for row in rows if row["law"] < _BELOW]
    noise = max((row["standard_error"] for row in near), default=0.0)
    apart = [abs(row["w2_squared"] - row["law"]) / row["standard_error"] for row in near]
    text = (
        f"clouds of particles have the errors of the law: at most {max(apart, default=0.0):.1f} standard errors apart "
        f"of up to {noise:.2g} in {len(near)} cases with W2² < {_BELOW:g}"
    )
    return Finding(text, bool(near) and noise < _BELOW and max(apart) < student(repeats - 1, 5.0))


def draw(settings: Settings, traces: list[Row], reached: list[Row], file: Any) -> None:
    """Errors over time, and the time to an error."""
    figure, (left, right) = plots.panels(2)
    for scheme, (rank, h) in product(SCHEMES, enumerate(sorted(settings.shown), start=1)):
        _draw_trace(left, traces, scheme, h, 0.25 + 0.75 * (rank / len(settings.shown)))
    left.set(xscale="log", yscale="log", xlabel="milliseconds", ylabel="W2² to the target")
    left.set_title(f"mixture, d = {settings.dim}, {settings.particles} particles")
    left.legend(loc="lower left", title="scheme (step size)")
    for scheme in SCHEMES:
        own = [row for row in reached if row["scheme"] == scheme and math.isfinite(row["seconds"])]
        times = [1000 * row["seconds"] for row in own]
        right.plot(
            [row["w2_squared"] for row in own],
            times,
            color=plots.COLOR_OF[scheme],
            marker=plots.MARKER_OF[scheme],
            label=plots.LABELS[scheme],
        )
    right.set(xscale="log", yscale="log", xlabel="W2² to be reached", ylabel="milliseconds to it")
    plots.label_round_numbers(right.xaxis)
    plots.label_round_numbers(right.yaxis)
    right.set_title("at the best step size")
    right.legend()
    plots.save(figure, file)


def _draw_trace(axis: Any, traces: list[Row], scheme: str, h: float, shade: float) -> None:
    own = [row for row in traces if (row["scheme"], row["step_size"]) == (scheme, h)]
    times, errors = [1000 * row["seconds"] for row in own], [row["w2_squared"] for row in own]
    color = plots.lighter(plots.COLOR_OF[scheme], shade)
    # A dot a step: there is no law between two.
    axis.plot(times, errors, color=color, marker=".", markersize=4, label=f"{plots.LABELS[scheme]} ({h:g})")
