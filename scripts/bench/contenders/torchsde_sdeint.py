"""torchsde.sdeint: euler, and srk (which is SRA1 for additive noise) for SRK-LD's order."""

from __future__ import annotations

import math
from typing import Any

import torch
import torchsde
from torch import Tensor, nn

from cases import EM, Case, Run
from torch_targets import potential, start_of
from torchsrk import Langevin
from torchsrk.potentials import Potential


class DiagonalLangevin(nn.Module):
    """The Langevin SDE declared with diagonal noise, which spares ``euler`` a matrix product a particle."""

    noise_type, sde_type = "diagonal", "ito"

    def __init__(self, target: Potential, sigma: Tensor) -> None:
        super().__init__()
        self.target, self.sigma = target, sigma

    def f(self, t: Tensor, x: Tensor) -> Tensor:
        return -self.target.grad(x)

    def g(self, t: Tensor, x: Tensor) -> Tensor:
        return self.sigma


def build(case: Case) -> Run:
    target, h = potential(case), case.step_size
    # For srk it is additive noise that is quicker: two stages instead of the four of the diagonal scheme.
    sde = DiagonalLangevin(target, math.sqrt(2) + start_of(case)) if case.scheme == EM else Langevin(target)
    method = "euler" if case.scheme == EM else "srk"

    @torch.no_grad()
    def run(steps: int, *, seed: int = 0, start: Any = None) -> Tensor:
        x0 = start_of(case, start)
        path = torchsde.BrownianInterval(
            t0=0.0,
            t1=steps * h,
            size=x0.shape,
            dtype=x0.dtype,
            entropy=seed,
            levy_area_approximation="none" if case.scheme == EM else "space-time",
        )
        return torchsde.sdeint(sde, x0, torch.tensor([0.0, steps * h]), bm=path, dt=h, method=method)[-1]

    return run
