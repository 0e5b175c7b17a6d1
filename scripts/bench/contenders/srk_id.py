"""SRK-ID on an SDE with general noise, by the way its Lévy areas are drawn: the case's scheme."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from cases import Case, Run
from torch_targets import refuse_eager_fallback, start_of
from torchsrk import SDE, sample
from torchsrk.brownian import FourierLevyArea, LevyArea, MrongowiusRoesslerLevyArea

DEFAULT, FOURIER, AS_EXACT = "default", "fourier, 3000 terms", "mrongowius-roessler, as exact as fourier"


def levy_area(scheme: str, step_size: float, m: int) -> LevyArea | None:
    """The approximation; AS_EXACT has the terms after which its declared error is that of Fourier's 3000."""
    if scheme == DEFAULT:
        return None
    fourier = FourierLevyArea(3000)
    if scheme == FOURIER:
        return fourier
    method = MrongowiusRoesslerLevyArea
    error = fourier.error(step_size, m)
    return method(math.ceil((step_size * method.coefficient(m) / error) ** (1 / method.exponent)))


def build(case: Case, **options: bool) -> Run:
    refuse_eager_fallback()
    dim = case.problem.dim
    mixing = torch.linspace(0.1, 1.0, dim * dim, dtype=getattr(torch, case.dtype)).view(dim, dim)

    def sigma(x: Tensor) -> Tensor:
        return torch.sin(x).unsqueeze(-1) * mixing + torch.eye(dim, dtype=x.dtype)

    sde = SDE(torch.neg, sigma, "general")
    area, x0 = levy_area(case.scheme, case.step_size, dim), start_of(case)

    def run(steps: int, *, seed: int = 0, start: Any = None) -> Tensor:
        x = x0 if start is None else start_of(case, start)
        return sample(
            sde,
            x,
            integrator="srk-id",
            step_size=case.step_size,
            num_steps=steps,
            seed=seed,
            levy_area=area,
            **options,
        ).final

    return run
