"""All peers on one problem: the 20-D mixture in float32."""

from __future__ import annotations

from dataclasses import asdict

import problems
from cases import AUTOGRAD, EM, HAND, SRK, Case, Entry
from contenders import (
    BLACKJAX,
    BY_HAND,
    BY_TORCH_COMPILE,
    DIFFRAX,
    JAX,
    JAX_RBG,
    POSTERIORS,
    TORCHEBM,
    TORCHSDE,
    TORCHSRK,
    TORCHSRK_EAGER,
)
from crew import Crew
from text import failure, per_particle_step, ratio, same_law, table

TITLE = "All peers"

# Who runs which scheme with which gradient, and what the library calls it. torchsrk's own come first: they are what the
# others' laws and times are held against.
CONTENDERS = (
    (TORCHSRK_EAGER, EM, HAND, "em"),
    (TORCHSRK_EAGER, SRK, HAND, "srk-ld"),
    (TORCHSRK, EM, HAND, "em"),
    (TORCHSRK, EM, AUTOGRAD, "em"),
    (TORCHSRK, SRK, HAND, "srk-ld"),
    (BY_HAND, EM, HAND, "em"),
    (BY_HAND, SRK, HAND, "srk-ld"),
    (BY_TORCH_COMPILE, EM, HAND, "em, 4 steps a graph"),
    (BY_TORCH_COMPILE, SRK, HAND, "srk-ld, 4 steps a graph"),
    (JAX, EM, HAND, "em"),
    (JAX, SRK, HAND, "srk-ld"),
    (JAX_RBG, EM, HAND, "em"),
    (JAX_RBG, SRK, HAND, "srk-ld"),
    (DIFFRAX, EM, HAND, "Euler"),
    (DIFFRAX, SRK, HAND, "SRA1"),
    (BLACKJAX, EM, HAND, "sgld"),
    (TORCHSDE, EM, HAND, "euler"),
    (TORCHSDE, SRK, HAND, "srk (SRA1)"),
    (TORCHEBM, EM, HAND, "LangevinDynamics"),
    (POSTERIORS, EM, AUTOGRAD, "sgld"),
)


def particles(quick: bool) -> int:
    return 5_000 if quick else 50_000


def entries(count: int) -> list[Entry]:
    """All contenders as entries of one race."""
    target = problems.mixture()
    return [
        Entry(label(name, scheme, gradient), name, Case(target, count, gradient=gradient, scheme=scheme))
        for name, scheme, gradient, _ in CONTENDERS
    ]


def label(name: str, scheme: str, gradient: str) -> str:
    return f"{name}, {scheme}, {gradient}"


def plan(quick: bool) -> dict[str, int]:
    return {"all": particles(quick)}


def measure(count: int, crew: Crew) -> dict:
    outcomes = crew.race(entries(count))
    return {"particles": count, "outcomes": {name: asdict(outcome) for name, outcome in outcomes.items()}}


def render(rows: list[dict]) -> str:
    (row,) = rows
    outcomes, lines = row["outcomes"], []
    for name, scheme, gradient, called in CONTENDERS:
        outcome = outcomes[label(name, scheme, gradient)]
        cost = per_particle_step(outcome, row["particles"])
        over = ratio(outcome, outcomes[label(TORCHSRK, scheme, gradient)])
        call = "-" if failure(outcome) else f"{outcome['first_call']:.1f}"
        lines.append([name, called, gradient, cost, over, call, same_law([outcome])])
    header = ["contender", "scheme", "gradient", "ns a particle-step", f"times {TORCHSRK}", "first call, s", "same law"]
    return f"""The 20-D mixture, {row["particles"]} particles, float32. The ratio is over `{TORCHSRK}` with the scheme
of the same order (em, or srk-ld) and the same kind of gradient. SRA1 takes two gradients a step and SRK-LD three.
`{BY_TORCH_COMPILE}` draws its noise with torchsrk's kernel. First calls include compilation, with empty caches.

{table(header, lines)}"""
