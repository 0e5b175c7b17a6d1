"""Whole SRK-ID steps, by the way their Lévy areas are drawn."""

from __future__ import annotations

from dataclasses import asdict

import problems
from cases import Case, Entry
from contenders import SRK_ID, SRK_ID_EAGER
from contenders.srk_id import AS_EXACT, DEFAULT, FOURIER
from crew import Crew
from text import per_particle_step, ratio, table

TITLE = "SRK-ID by its Lévy areas"
_M = 10


def plan(quick: bool) -> dict[str, tuple[str, int]]:
    return {dtype: (dtype, 20 if quick else 1_000) for dtype in ("float32", "float64")}


def measure(case: tuple[str, int], crew: Crew) -> dict:
    dtype, particles = case
    target = problems.general_noise(_M)
    runs = [(SRK_ID, DEFAULT), (SRK_ID, AS_EXACT), *((SRK_ID_EAGER, area) for area in (DEFAULT, AS_EXACT, FOURIER))]
    entries = [Entry(f"{name}, {area}", name, Case(target, particles, dtype, scheme=area)) for name, area in runs]
    outcomes = {name: asdict(outcome) for name, outcome in crew.race(entries, check_law=False).items()}
    return {"dtype": dtype, "particles": particles, "outcomes": outcomes}


def render(rows: list[dict]) -> str:
    lines = []
    for row in rows:
        for scheme, outcome in row["outcomes"].items():
            cost = per_particle_step(outcome, row["particles"])
            lines.append([row["dtype"], scheme, cost, ratio(row["outcomes"][f"{SRK_ID_EAGER}, {FOURIER}"], outcome)])
    header = ["dtype", "steps, Lévy area", "ns a particle-step", "Fourier's step over it"]
    particles = rows[0]["particles"]
    return f"""General noise, m = d = {_M}, h = 0.001, {particles} particles. The default takes as many terms as keep
the strong order at this step size; "as exact" takes as many as match the error of the Fourier series of 3000 terms.
That series is a matrix product of torch's in blocks that fit the cache; its noise is too much for a compiled step.

{table(header, lines)}"""
