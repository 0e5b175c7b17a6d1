"""How much of a step is its noise: a sampler on these random numbers can't take less."""

from __future__ import annotations

from dataclasses import asdict
from itertools import product

import problems
from cases import EM, SRK, Case, Entry
from contenders import NOISE_KERNEL, TORCHSRK, TORCHSRK_EAGER
from crew import Crew
from text import per_particle_step, ratio, table

TITLE = "The noise alone"


def plan(quick: bool) -> dict[str, Case]:
    particles = (5_000,) if quick else (5_000, 50_000)
    chosen = product(("float32", "float64"), (EM, SRK), particles)
    cases = (Case(problems.mixture(), count, dtype, scheme=scheme) for dtype, scheme, count in chosen)
    return {str(case): case for case in cases}


def measure(case: Case, crew: Crew) -> dict:
    # One process for all three: the same threads on the same memory.
    entries = [Entry(name, name, case, process="noise bound") for name in (TORCHSRK, TORCHSRK_EAGER, NOISE_KERNEL)]
    outcomes = {name: asdict(outcome) for name, outcome in crew.race(entries, check_law=False).items()}
    return {"dtype": case.dtype, "scheme": case.scheme, "particles": case.particles, "outcomes": outcomes}


def render(rows: list[dict]) -> str:
    names, lines = (NOISE_KERNEL, TORCHSRK, TORCHSRK_EAGER), []
    for row in rows:
        outcomes = row["outcomes"]
        costs = [per_particle_step(outcomes[name], row["particles"]) for name in names]
        fractions = [ratio(outcomes[NOISE_KERNEL], outcomes[name]) for name in names[1:]]
        lines.append([row["dtype"], row["scheme"], str(row["particles"]), *costs, *fractions])
    header = ["dtype", "scheme", "particles", *names, *(f"noise over {name}" for name in names[1:])]
    return f"""The 20-D mixture, gradients by hand. `{NOISE_KERNEL}` draws the normals of a step and does nothing else:
one a coordinate for em, two for srk-ld, with as many threads as there are cores. Nanoseconds a particle and step.

{table(header, lines)}"""
