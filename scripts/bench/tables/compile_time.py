"""What compilation costs the user: the first call in a new process, without and with a filled disk cache."""

from __future__ import annotations

from itertools import product
from tempfile import TemporaryDirectory

import problems
from cases import AUTOGRAD, HAND, SRK, Case
from contenders import TORCHSRK, TORCHSRK_EAGER
from crew import ContenderError, Crew, Worker, first_steps
from text import table

TITLE = "Compilation"


def plan(quick: bool) -> dict[str, Case]:
    chosen = [(AUTOGRAD, 100)] if quick else product((HAND, AUTOGRAD), (1, 100, 5_000, 50_000))
    cases = (Case(problems.mixture(), count, gradient=gradient, scheme=SRK) for gradient, count in chosen)
    return {str(case): case for case in cases}


def measure(case: Case, crew: Crew) -> dict:
    crew.dismiss()
    row: dict = {"gradient": case.gradient, "particles": case.particles, "steps": first_steps(case), "failed": ""}
    try:
        with TemporaryDirectory() as cache:
            row["cold"] = _first_call(TORCHSRK, case, cache)
            row["from disk"] = _first_call(TORCHSRK, case, cache)
            row["eager"] = _first_call(TORCHSRK_EAGER, case, cache)
    except ContenderError as error:
        row["failed"] = str(error)
    return row


def _first_call(contender: str, case: Case, cache: str) -> float:
    worker = Worker({"TORCHSRK_CACHE": cache})
    try:
        return worker.ask("prepare", "first", contender, case, first_steps(case))
    finally:
        worker.close()


def render(rows: list[dict]) -> str:
    lines = []
    for row in rows:
        what = [row["gradient"], str(row["particles"]), str(row["steps"])]
        seconds = (
            [f"failed: {row['failed'][:80]}", "", ""]
            if row["failed"]
            else [f"{row[name]:.2f}" for name in ("cold", "from disk", "eager")]
        )
        lines.append([*what, *seconds])
    header = ["gradient", "particles", "steps", "compiled, cold", "compiled, from the disk cache", "eager"]
    return f"""Seconds of the first call of `sample`, SRK-LD on the 20-D mixture in float32, each in a new process that
has imported torchsrk; what is imported in order to compile counts. Cold: with an empty cache on disk.

{table(header, lines)}"""
