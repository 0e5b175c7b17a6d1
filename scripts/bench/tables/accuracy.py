"""Time to a given distance from the target: what a step costs times how many a scheme needs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict

import numpy as np
from scipy.special import ndtr

import problems
from cases import EM, SRK, Case, Entry
from contenders import DIFFRAX, TORCHSRK, TORCHSRK_EAGER
from crew import ContenderError, Crew
from tables import peers
from text import digits, failure, quartiles, table

TITLE = "Time to a given error"
TARGETS = (0.1, 0.01)  # of W₂²
END, LOOK_EVERY = 8.0, 0.05

# Powers of two, and one and a half times those: their multiples are exact times.
_EM_STEPS = tuple(factor * 2.0**-power for power in (6, 5, 4, 3, 2) for factor in (1.0, 1.5))
_SRK_STEPS = tuple(factor * 2.0**-power for power in (3, 2, 1, 0) for factor in (1.0, 1.5))
# What each scheme is: whose states to measure, on which grid of step sizes.
_SCHEMES = {
    "em": (TORCHSRK_EAGER, EM, _EM_STEPS),
    "srk-ld": (TORCHSRK_EAGER, SRK, _SRK_STEPS),
    "sra1": (DIFFRAX, SRK, _SRK_STEPS),
}
COSTS = "costs"


def plan(quick: bool) -> dict[str, tuple[str, int, bool]]:
    return {kind: (kind, peers.particles(quick), quick) for kind in (COSTS, *_SCHEMES)}


def measure(case: tuple[str, int, bool], crew: Crew) -> dict:
    kind, particles, quick = case
    if kind == COSTS:
        outcomes = crew.race(peers.entries(particles), check_law=False)
        return {"kind": kind, "particles": particles, "outcomes": {k: asdict(v) for k, v in outcomes.items()}}
    contender, scheme, grid = _SCHEMES[kind]
    row: dict = {"kind": kind, "found": [], "failed": ""}
    for step_size in grid[2::3] if quick else grid:
        run = Case(problems.mixture(), particles, scheme=scheme, other_step_size=step_size)
        try:
            steps = _steps_until(list(_errors(Entry("accuracy", contender, run), crew)))
        except ContenderError as error:
            row["failed"] = str(error)
            break
        row["found"].append({"step_size": step_size, "steps": dict(zip(map(str, TARGETS), steps, strict=True))})
    return row


def _errors(entry: Entry, crew: Crew) -> Iterator[tuple[int, float]]:
    """(steps, W₂²) along a run from 0 to the end."""
    step_size, shift = entry.case.step_size, entry.case.problem.parameters["shift"]
    chunk = max(1, round(LOOK_EVERY / step_size))
    crew.prepare(entry)
    state = None
    for number in range(math.ceil(END / step_size / chunk)):
        state = crew.ask(entry, "state", chunk, number, state)  # the chunk's number as its seed
        yield (number + 1) * chunk, wasserstein2_squared(state, shift)


def _steps_until(errors: list[tuple[int, float]]) -> list[int | None]:
    """For each target the steps after which the error stays below it, or None.

    Stays: a scheme with a large step may pass the target's variance on the way to its own, too large one.
    """
    found: list[int | None] = []
    for target in TARGETS:
        last_above = max((i for i, (_, error) in enumerate(errors) if not error <= target), default=-1)
        found.append(errors[last_above + 1][0] if last_above + 1 < len(errors) else None)
    return found


def wasserstein2_squared(x: np.ndarray, shift: np.ndarray) -> float:
    """W₂² between the law of the particles and ½N(a, I) + ½N(-a, I), without the bias of clouds in high dimension.

    Started from 0, every scheme's law is a product, as the target is: along a, something to be compared by its sorted
    values with the mixture's quantiles; in all directions orthogonal to it, one centred isotropic Gaussian, of which
    the standard deviation is all there is to know.
    """
    particles, dim = x.shape
    norm = float(np.linalg.norm(shift))
    along = x.astype(float) @ (shift / norm)
    rest = np.square(x.astype(float)).sum() - np.square(along).sum()
    deviation = math.sqrt(rest / (particles * (dim - 1))) if math.isfinite(rest) else math.inf
    ranks = (np.arange(particles) + 0.5) / particles
    grid = np.linspace(-10.0 - norm, 10.0 + norm, 1 << 16)
    quantiles = np.interp(ranks, 0.5 * (ndtr(grid - norm) + ndtr(grid + norm)), grid)
    return (dim - 1) * (deviation - 1.0) ** 2 + float(np.square(np.sort(along) - quantiles).mean())


def render(rows: list[dict]) -> str:
    by_kind = {row["kind"]: row for row in rows}
    costs = by_kind.pop(COSTS)
    lines = []
    for name, scheme, gradient, called in peers.CONTENDERS:
        outcome = costs["outcomes"][peers.label(name, scheme, gradient)]
        kind = "sra1" if "SRA1" in called else scheme
        if kind not in by_kind:
            continue
        why = failure(outcome) or failure(by_kind[kind])
        found = [why] * len(TARGETS) if why else [_time(outcome, *_best(by_kind[kind], target)) for target in TARGETS]
        lines.append([name, called, gradient, *found])
    header = ["contender", "scheme", "gradient", *(f"W₂² ≤ {target}" for target in TARGETS)]
    particles = costs["particles"]
    return f"""The 20-D mixture, {particles} particles from 0, float32. For every step size of a grid, the steps after
which W₂² stays below the target until time {END:g}; then the step size with the fewest. W₂² is measured from the cloud,
direction by direction, which the symmetry of target and start allows. Contenders with the same scheme share its number
of steps; the time is that number times the measured cost of a step of `{TORCHSRK}` and its peers.

{table(header, lines)}"""


def _best(row: dict, target: float) -> tuple[int, float]:
    """The fewest steps and their step size; no steps if none get there."""
    tried = [(found["steps"][str(target)], found["step_size"]) for found in row["found"]]
    return min((pair for pair in tried if pair[0]), default=(0, 0.0))


def _time(outcome: dict, steps: int, step_size: float) -> str:
    if not steps:
        return "not reached"
    milliseconds = 1e3 * steps * quartiles(outcome["seconds"])[1]
    return f"{digits(milliseconds)} ms: {steps} steps of {digits(step_size)}"
