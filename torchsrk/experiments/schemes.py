"""What a gradient buys: every scheme on four targets, by the error of its law and by the gradients to reach one.

On the Gaussian both come without sampling, from the matrices of the schemes (linear.py); schemes that are not linear
there, and all of them elsewhere, are run with particles (scheme_moments.py).
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Annotated, Any

import torch
from torch import Tensor

from ..sampling import sample
from . import scheme_figures
from .base import Conclusion, Context, Result
from .config import ConfigError, Count, OneOf, Positive, Range
from .fits import student_95
from .laws import steps_below
from .linear import gaussian_w2
from .scheme_findings import error_rows, findings, notes, overview_row, reached_row
from .scheme_moments import BATCHES, Chains, Trace, has_momentum, scheme_named, scheme_names, sde_of
from .scheme_targets import Target, case_of

Scheme = Annotated[str, OneOf(scheme_names)]
_LARGEST = 4.0  # step size, in units of the softest direction's time
_EXPLODED = 100.0  # a relative error of a second moment beyond which there is no law to speak of
_WORSE = 1.3  # times the fewest gradients: smaller steps need more still
_MOST_STEPS = 20_000
_WIDE = student_95(BATCHES - 1)  # standard errors
_SETTLED = 1e-7  # what is left of the start after the steps that are followed of a linear scheme


@dataclass(frozen=True)
class Settings:
    """Every scheme on every target from one far point, at step sizes that fall from the largest that could be of use.

    Times are in units of the softest direction: 1/m overdamped, 1/√m with momentum, m its curvature.
    """

    targets: tuple[Target, ...]
    schemes: tuple[Scheme, ...]
    per_octave: Annotated[int, Range(1, 100)] = 2  # step sizes of particles
    exact_per_octave: Annotated[int, Range(1, 100)] = 8  # step sizes where laws are exact
    smallest: Annotated[float, Range(1e-4, 1.0)] = 0.005  # step size in units of the stiffest direction: 1/L or 1/√L
    friction: Positive = 1.5  # in units of √m
    most_gradients: Annotated[int, Range(100, 10**7)] = 5000  # of a chain of particles
    # These ask for second derivatives too, whose price grows with the dimension: particles up to this one alone.
    dear: tuple[Scheme, ...] = ("ozaki", "tamed")
    dear_dim: Count = 2
    dear_gradients: Count = 500  # at most, of a chain of theirs
    chains: Count = 1000  # of the runs that are timed
    timed_steps: Annotated[int, Range(10, 10**6)] = 300
    rounds: Annotated[int, Range(1, 1000)] = 3

    def __post_init__(self) -> None:
        kinds = [target.kind for target in self.targets]
        if len(set(kinds)) < len(kinds):
            raise ConfigError(f"targets: each kind once; got {kinds}")


def plan(settings: Settings) -> dict[str, tuple[str, Target, str]]:
    """What is measured, on which target and of which scheme."""
    pairs = list(product(settings.targets, settings.schemes))
    errors = {f"{target.kind}-{scheme}": ("errors", target, scheme) for target, scheme in pairs}
    timed = [(target, scheme) for target, scheme in pairs if target.timed and not is_dear(settings, target, scheme)]
    return errors | {f"seconds-{target.kind}-{scheme}": ("seconds", target, scheme) for target, scheme in timed}


def is_dear(settings: Settings, target: Target, scheme: str) -> bool:
    return scheme in settings.dear and target.dim > settings.dear_dim


def measure(settings: Settings, asked: tuple[str, Target, str], context: Context) -> Result:
    what, target, name = asked
    case, scheme = case_of(target, context), scheme_named(name)
    chains = Chains(case, target, scheme, settings.friction * math.sqrt(case.softest), context)
    if what == "seconds":
        return seconds_a_step(settings, chains)
    if is_dear(settings, target, name) and not (case.is_gaussian and chains.linear(_unit_time(chains))):
        return {"skipped": 1}
    most = settings.dear_gradients if name in settings.dear else settings.most_gradients
    return sweep(settings, chains, most)


def _unit_time(chains: Chains, curvature: float | None = None) -> float:
    """1/m or 1/√m, for the least curvature or another."""
    m = chains.case.softest if curvature is None else curvature
    return 1.0 / math.sqrt(m) if has_momentum(chains.scheme) else 1.0 / m


def sweep(settings: Settings, chains: Chains, most_gradients: int) -> Result:
    """Columns, an entry for each step size from the largest down, until smaller ones have nothing more to tell."""
    unit, smallest = _unit_time(chains), settings.smallest * _unit_time(chains, chains.case.stiffest)
    is_exact = chains.case.is_gaussian and chains.linear(smallest) is not None
    per_octave = settings.exact_per_octave if is_exact else settings.per_octave
    points: list[dict[str, float]] = []
    fewest, h = math.inf, _LARGEST * unit
    while h >= smallest:
        point = _exact_point(chains, h) if is_exact else _sampled_point(chains, h, most_gradients)
        if point is None:  # more gradients than are to be spent
            break
        points.append({"step_size": h, **point})
        steps = point["steps"] or math.inf
        fewest = min(fewest, steps)
        is_hidden = not point["resolved"] and point["error"] < chains.target.tolerance
        if math.inf > steps > _WORSE * fewest or is_hidden:
            break
        h *= 2.0 ** (-1.0 / per_octave)
    columns = {key: [point[key] for point in points] for key in points[0]}
    return {"exact": int(is_exact), "unit_time": unit} | {
        key: torch.tensor(column, dtype=torch.float64) for key, column in columns.items()
    }


def _nothing(stable: bool) -> dict[str, float]:
    wrong = dict.fromkeys(("error", "second_moment", "mean", "w2"), math.inf)
    return wrong | {"noise": 0.0, "steps": 0.0, "stable": float(stable), "resolved": 1.0}


def _exact_point(chains: Chains, h: float) -> dict[str, float]:
    """On the Gaussian by the scheme's own matrices."""
    law, deviation = chains.linear(h), chains.case.curvatures.rsqrt()
    assert law is not None
    growth = law.growth()
    if not growth < 1.0:
        return _nothing(stable=False)
    second = law.stationary()
    worst = float((second / deviation.square() - 1.0).abs().max())
    w2 = float(gaussian_w2(torch.zeros_like(second), second, deviation))
    steps = 0
    if w2 < chains.target.tolerance:
        followed = math.ceil(math.log(_SETTLED) / math.log(max(growth, 1e-3))) + 2
        trace = law.trace(chains.target.start * deviation, min(followed, _MOST_STEPS))
        steps = steps_below(gaussian_w2(*trace, deviation), chains.target.tolerance)
    found = {"error": w2, "second_moment": worst, "mean": 0.0, "w2": w2, "noise": 0.0}
    return found | {"steps": float(steps), "stable": 1.0, "resolved": 1.0}


def _sampled_point(chains: Chains, h: float, most_gradients: int) -> dict[str, float] | None:
    """By particles; None if that would take too many gradients."""
    steps = math.ceil(chains.target.time * _unit_time(chains) / h)
    if steps * chains.scheme.gradients_per_step > most_gradients:
        return None
    trace = chains.trace(h, steps, chains.linear(h))
    if trace is None:
        return _nothing(stable=False)
    values, errors = (part[0] for part in trace.tail().values())
    apart = (values[1] - 1.0).abs()
    worst = int(apart.argmax())
    if float(apart[worst]) > _EXPLODED:
        return _nothing(stable=False)
    found = {"second_moment": float(apart[worst]), "mean": float(values[0].abs().max()), "w2": math.nan}
    found |= {"error": found["second_moment"], "noise": float(errors[1, worst])}
    distances, noise = _distances(chains, trace)
    if chains.case.is_gaussian:
        tail, tail_noise = _distances(chains, trace.tail())
        found |= {"error": float(tail[0]), "w2": float(tail[0]), "noise": float(tail_noise[0])}
    points = steps_below(distances, chains.target.tolerance)
    reached = float(trace.steps[points - 1]) if points else 0.0
    resolved = float(_WIDE * noise[-1]) <= chains.target.tolerance
    return found | {"steps": reached if resolved else 0.0, "stable": 1.0, "resolved": float(resolved)}


def _distances(chains: Chains, trace: Trace) -> tuple[Tensor, Tensor]:
    """What is to fall below the tolerance, at every point of time, less what noise adds; and the noise.

    Second moments: the worst error less half its 95 % interval. A chain that is narrow and off may have them right, so
    variances and squares of means count on their own too. W2: as of Gaussians with these moments, which no other law
    of these moments is nearer than, less the expectation of what noise adds to its square.
    """
    values, errors = trace.values()
    mean, second = values.unbind(1)
    if not chains.case.is_gaussian:
        variance = second - mean.square()
        apart = torch.maximum((second - 1.0).abs(), (variance - 1.0).abs()) - _WIDE * errors[:, 1]
        apart = torch.maximum(apart, mean.square() - errors[:, 0].square())
        return apart.clamp_min(0.0).amax(-1), errors[:, 1].amax(-1)
    spread = (second - mean.square()).clamp_min(0.0).sqrt()
    noise = errors[:, 0].square() + 0.25 * errors[:, 1].square()
    square = mean.square() + (spread - 1.0).square() - noise
    total = (square / chains.case.curvatures).sum(-1).clamp_min(0.0).sqrt()
    return total, 0.5 * (noise / chains.case.curvatures).sum(-1).sqrt()


def seconds_a_step(settings: Settings, chains: Chains) -> Result:
    """Of all chains together, in the quickest of the rounds, less what a run of one step takes for its start."""
    start = chains.case.start(0.0).to(chains.context.device, chains.context.dtype).repeat(settings.chains, 1)
    run = partial(
        sample,
        sde_of(chains.scheme, chains.case.potential, chains.friction),
        start,
        integrator=chains.scheme,
        step_size=0.05 * _unit_time(chains, chains.case.stiffest),
        seed=chains.context.seed,
        compile=chains.context.compile,
    )
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", RuntimeWarning)
        run(num_steps=1)  # what is compiled, is compiled here
        is_compiled = chains.context.compile and not any("this run is eager" in str(note.message) for note in said)
        steps = settings.timed_steps if is_compiled else max(2, settings.timed_steps // 50)
        short, whole = (
            min(_clocked(partial(run, num_steps=count)) for _ in range(settings.rounds)) for count in (1, steps + 1)
        )
    return {"seconds": max(0.0, whole - short) / steps, "compiled": int(is_compiled)}


def _clocked(run: Any) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def conclude(settings: Settings, results: Mapping[str, Result]) -> Conclusion:
    pairs = list(product(settings.targets, settings.schemes))
    errors = [row for target, name in pairs for row in error_rows(target, name, results)]
    reached = [reached_row(target, name, results) for target, name in pairs]
    overview = [overview_row(settings.targets, name, reached) for name in settings.schemes]
    return Conclusion(
        tables={"errors": errors, "reached": reached, "overview": overview},
        figures={
            "errors": partial(scheme_figures.draw_errors, settings, errors),
            "gradients": partial(scheme_figures.draw_gradients, settings, reached),
        },
        findings=findings(settings.targets, errors, reached),
        notes=notes(settings.targets, settings.friction, reached),
    )
