"""torchebm's Langevin dynamics, an Euler-Maruyama step with randn_like."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchebm.core import BaseModel
from torchebm.samplers import LangevinDynamics

from cases import EM, HAND, Case, Run
from torch_targets import potential, start_of
from torchsrk.potentials import Potential


class Energy(BaseModel):
    """A potential as torchebm wants it; ``gradient`` is torchebm's own, by autograd."""

    def __init__(self, target: Potential, dtype: torch.dtype) -> None:
        super().__init__(dtype=dtype)
        self.target = target

    def forward(self, x: Tensor) -> Tensor:
        return self.target(x)


class EnergyWithGradient(Energy):
    """The same with the gradient by hand."""

    def gradient(self, x: Tensor) -> Tensor:
        return self.target.grad(x)


def build(case: Case) -> Run:
    if case.scheme != EM:
        raise ValueError("torchebm's schemes of higher order are so for the drift alone")
    dtype = getattr(torch, case.dtype)
    model = (EnergyWithGradient if case.gradient == HAND else Energy)(potential(case), dtype)
    sampler = LangevinDynamics(model, step_size=case.step_size, noise_scale=1.0, dtype=dtype, device="cpu")

    def run(steps: int, *, seed: int = 0, start: Any = None) -> Tensor:
        torch.manual_seed(seed)
        return sampler.sample(x=start_of(case, start), n_steps=steps)

    return run
