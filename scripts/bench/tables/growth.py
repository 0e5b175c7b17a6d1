"""How torchsrk's cost grows: with particles, with the dimension, and SRK-ID's with the number of Brownian motions."""

from __future__ import annotations

from dataclasses import asdict

import problems
from cases import Case, Entry
from contenders import SRK_ID, SRK_ID_EAGER, TORCHSRK, TORCHSRK_EAGER
from contenders import srk_id as srk_id_areas
from crew import Crew
from text import per_particle_step, table

TITLE = "Growth of the cost"
PARTICLES, DIMENSION, BROWNIAN = "particles", "dimension", "brownian"
_FIXED_PARTICLES, _SRK_ID_PARTICLES = 5_000, 1_000


def plan(quick: bool) -> dict[str, tuple[str, int]]:
    sizes = {
        PARTICLES: (1, 1_000) if quick else (1, 10, 100, 1_000, 10_000, 50_000, 200_000),
        DIMENSION: (2, 20) if quick else (2, 5, 10, 20, 50, 100, 200, 500),
        BROWNIAN: (2, 5) if quick else (2, 5, 10, 20),
    }
    return {f"{kind}-{size}": (kind, size) for kind, values in sizes.items() for size in values}


def measure(case: tuple[str, int], crew: Crew) -> dict:
    kind, size = case
    if kind == BROWNIAN:
        run = Case(problems.general_noise(size), _SRK_ID_PARTICLES, scheme=srk_id_areas.DEFAULT)
        entries = [Entry(name, name, run) for name in (SRK_ID_EAGER, SRK_ID)]
    else:
        run = Case(problems.mixture(), size)
        if kind == DIMENSION:
            run = Case(problems.mixture(size), _FIXED_PARTICLES)
        entries = [Entry(name, name, run) for name in (TORCHSRK_EAGER, TORCHSRK)]
    outcomes = {name: asdict(outcome) for name, outcome in crew.race(entries, check_law=False).items()}
    return {"kind": kind, "size": size, "particles": run.particles, "outcomes": outcomes}


def render(rows: list[dict]) -> str:
    parts = ["Nanoseconds a particle and step, float32; the mixture with gradients by hand, Euler-Maruyama.\n"]
    names = dict.fromkeys((PARTICLES, DIMENSION), (TORCHSRK, TORCHSRK_EAGER)) | {BROWNIAN: (SRK_ID, SRK_ID_EAGER)}
    titles = {
        PARTICLES: "particles, in 20-D",
        DIMENSION: f"dimension, {_FIXED_PARTICLES} particles",
        BROWNIAN: f"dimension and Brownian motions, {_SRK_ID_PARTICLES} particles, general noise",
    }
    for kind, contenders in names.items():
        lines = [
            [str(row["size"]), *(per_particle_step(row["outcomes"][name], row["particles"]) for name in contenders)]
            for row in rows
            if row["kind"] == kind
        ]
        parts.append(table([titles[kind], *contenders], lines))
    return "\n".join(parts)
