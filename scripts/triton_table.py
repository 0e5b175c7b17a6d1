"""What compiles to which tier on a CUDA device: every scheme on every shipped potential, in Triton's interpreter.

A step that is one kernel (tier 3) is run beside the eager one; for what is none the table has the reason, and on a CUDA
device it is captured in a CUDA graph (tier 2). Needs no GPU, and takes some minutes.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"
sys.path.insert(0, str(Path(__file__).parent.parent))

import torch

from tests.problems import potentials, sdes
from tests.test_family import SCHEMES
from torchsrk import Langevin, UnderdampedLangevin, sample
from torchsrk.compiled import CannotCompile, programs
from torchsrk.sampling import problem_of

_STEP_SIZE, _STEPS, _PARTICLES = 0.05, 2, 37
_LAST_COLUMN = f"difference from eager after {_STEPS} steps, in eps, or why"


def rows(dtype: torch.dtype) -> Iterator[tuple[str, str, str, str]]:
    """(target, scheme, tier, largest difference in units of rounding, or the reason)."""
    for name, (target, dim) in potentials(dtype).items():
        for scheme in SCHEMES:
            overdamped, underdamped = Langevin(target), UnderdampedLangevin(target, friction=1.5)
            yield (
                name,
                str(scheme),
                *outcome(overdamped if scheme.is_for(overdamped) else underdamped, scheme, dim, dtype),
            )
    torch.set_default_dtype(dtype)  # in which these SDEs are made
    for name, (sde, dim) in sdes().items():
        for scheme in SCHEMES:
            if scheme.is_for(sde) and name != "langevin":
                yield f"SDE: {name}", str(scheme), *outcome(sde.to(dtype=dtype), scheme, dim, dtype)


def outcome(sde: Any, scheme: Any, dim: int, dtype: torch.dtype) -> tuple[str, str]:
    """The kernel's states beside the eager ones, from the same state with the same noise."""
    x0 = torch.randn(_PARTICLES, dim, dtype=dtype, generator=torch.Generator().manual_seed(1))
    problem = replace(problem_of(sde, x0, integrator=scheme, step_size=_STEP_SIZE), language="triton")
    try:
        found = programs.find(problem)
    except CannotCompile as reason:
        return "2", str(reason)
    moved = found.steps.bind(problem, found.key, 5, 7, 1).advance_rows(problem.state, 0, first=3, last=3 + _STEPS)
    where = {"integrator": scheme, "step_size": _STEP_SIZE, "num_steps": _STEPS, "seed": 5}
    eager = sample(sde, x0, state=problem.state, first_step=3, first_particle=7, **where).state
    scale = eager.abs().amax(0).clamp_min(1.0)
    return "3", f"{float(((moved - eager).abs() / scale).max()) / torch.finfo(dtype).eps:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", choices=["float32", "float64"], action="append")
    for name in parser.parse_args().dtype or ["float32", "float64"]:
        print(f"\n{name}\n\n| target | scheme | tier | {_LAST_COLUMN} |\n|---|---|---|---|")
        for row in rows(getattr(torch, name)):
            print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
