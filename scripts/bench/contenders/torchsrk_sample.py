"""torchsrk.sample, eager or compiled."""

from __future__ import annotations

import warnings
from typing import Any

from cases import Case, Run
from torch import Tensor
from torch_targets import potential, start_of

from torchsrk import Langevin, sample


def build(case: Case, **options: bool) -> Run:
    # A run that could not be compiled must not be timed as if it had been.
    warnings.filterwarnings("error", message="compile=True: this run is eager")
    sde, x0 = Langevin(potential(case)), start_of(case)

    def run(steps: int, *, seed: int = 0, start: Any = None) -> Tensor:
        return sample(
            sde,
            x0 if start is None else start_of(case, start),
            integrator=case.scheme,
            step_size=case.step_size,
            num_steps=steps,
            seed=seed,
            **options,
        ).final

    return run
