"""torchsrk beside a jax scan, over sizes, precisions, gradients, targets and schemes."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import asdict
from itertools import product

import problems
from cases import AUTOGRAD, EM, HAND, SRK, Case, Entry
from contenders import JAX, JAX_RBG, TORCHSRK, TORCHSRK_EAGER
from crew import Crew
from text import failure, per_particle_step, ratio, ratios, same_law, table

TITLE = "Throughput beside a jax scan"
_LAW_FROM = 5_000  # with fewer particles a moment says too little


def plan(quick: bool) -> dict[str, Case]:
    """Precision changes last: it restarts the workers."""
    targets = (problems.mixture(), problems.logistic_regression(), problems.network(), problems.deep_network())
    particles = (1, 5_000) if quick else (1, 100, 5_000, 50_000)
    cases = [
        Case(target, count, dtype, gradient, scheme)
        for dtype, target, gradient, scheme, count in product(
            ("float32", "float64"), targets, (HAND, AUTOGRAD), (EM, SRK), particles
        )
    ]
    # A quick run takes every choice at least once, but not every combination.
    return {str(case): case for case in (cases[::7] if quick else cases)}


def measure(case: Case, crew: Crew) -> dict:
    names = [TORCHSRK_EAGER, TORCHSRK, JAX]
    if case.problem.name == "mixture" and case.gradient == HAND:
        names.append(JAX_RBG)  # once to see what jax's other generator does: the noise is the same for all targets
    outcomes = crew.race([Entry(name, name, case) for name in names], check_law=case.particles >= _LAW_FROM)
    return {
        "problem": f"{case.problem.name}, {case.problem.dim}-D",
        "dtype": case.dtype,
        "gradient": case.gradient,
        "scheme": case.scheme,
        "particles": case.particles,
        "outcomes": {name: asdict(outcome) for name, outcome in outcomes.items()},
    }


def render(rows: list[dict]) -> str:
    parts = [
        f"""Nanoseconds a particle and step: the median over rounds and its quartiles. The ratio says how many times
longer `{JAX}` takes than `{TORCHSRK}`, as the median of the rounds' ratios. "First call" is in seconds and includes
compilation, unless code of an earlier row serves again, as torchsrk's does for any number of particles. "Same law":
E‖x‖² of all contenders agrees with that of `{TORCHSRK_EAGER}` within four standard errors after the same steps (from
{_LAW_FROM} particles on). `{JAX}` draws with jax's default generator, threefry; with rbg it is listed for one target.
""",
        _summary(rows),
    ]
    for problem in dict.fromkeys(row["problem"] for row in rows):
        parts += [f"### {problem[0].upper()}{problem[1:]}\n", _one_problem(r for r in rows if r["problem"] == problem)]
    return "\n".join(parts)


def _summary(rows: list[dict]) -> str:
    """The ratio by number of particles: the middle case and the extremes."""
    lines = []
    for particles in sorted({row["particles"] for row in rows}):
        found = [_ratio(row) for row in rows if row["particles"] == particles]
        known = sorted(value for value in found if value is not None)
        if known:
            middle = f"{statistics.median(known):.2f}"
            lines.append(
                [str(particles), middle, f"{known[0]:.2f}", f"{known[-1]:.2f}", f"{len(known)} of {len(found)}"]
            )
    return table([f"particles, {JAX} over {TORCHSRK}", "median case", "least", "most", "cases"], lines)


def _ratio(row: dict) -> float | None:
    slow, fast = row["outcomes"][JAX], row["outcomes"][TORCHSRK]
    if slow["failed"] or fast["failed"]:
        return None
    return statistics.median(ratios(slow["seconds"], fast["seconds"]))


def _one_problem(rows: Iterable[dict]) -> str:
    rows = list(rows)
    names = [TORCHSRK, TORCHSRK_EAGER, JAX]
    if any(JAX_RBG in row["outcomes"] for row in rows):
        names.append(JAX_RBG)
    header = ["dtype", "gradient", "scheme", "particles", *names, "ratio", "first call: torchsrk, jax", "same law"]
    return table(header, [_line(row, names) for row in rows])


def _line(row: dict, names: list[str]) -> list[str]:
    outcomes = row["outcomes"]
    costs = [per_particle_step(outcomes[name], row["particles"]) if name in outcomes else "" for name in names]
    calls = ", ".join(
        "-" if failure(outcomes[name]) else f"{outcomes[name]['first_call']:.1f}" for name in (TORCHSRK, JAX)
    )
    what = [row["dtype"], row["gradient"], row["scheme"], str(row["particles"])]
    return [*what, *costs, ratio(outcomes[JAX], outcomes[TORCHSRK]), calls, same_law(outcomes.values())]
