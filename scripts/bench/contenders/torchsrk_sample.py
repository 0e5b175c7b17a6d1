"""torchsrk.sample, eager or compiled."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from cases import Case, Run
from torch_targets import potential, refuse_eager_fallback, start_of
from torchsrk import Langevin, sample


def build(case: Case, **options: bool) -> Run:
    refuse_eager_fallback()
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
