"""Fresh noise: increments drawn from the counter, in any order, any number of times."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .increment import Increment, Needs
from .levy_area import LevyArea, MrongowiusRoesslerLevyArea
from .noise import StepNormals, Stream, fill_normal


class FreshNoise:
    """Independent increments for every step, a pure function of (seed, particle, step).

    Two runs with different step sizes see unrelated paths; to couple them use a BrownianPath, which answers the same
    call.

    Args:
        seed: 0 to 2**64 - 1.
        shape: (..., brownian); the leading dimensions are the particles, numbered in row-major order.
        first_particle: the number of the first one, for a batch that is part of a larger one.
        levy_area: how Lévy areas are approximated when a scheme asks for them.
    """

    def __init__(
        self,
        seed: int,
        shape: Sequence[int],
        *,
        dtype: torch.dtype,
        device: torch.device,
        first_particle: int = 0,
        levy_area: LevyArea | None = None,
    ) -> None:
        self.seed = seed
        self.shape = tuple(shape)
        self.dtype = dtype
        self.device = device
        self.first_particle = first_particle
        self.levy_area = MrongowiusRoesslerLevyArea() if levy_area is None else levy_area
        self._rows = math.prod(self.shape[:-1])

    def increment(self, step: int, t: float, dt: float, needs: Needs) -> Increment:
        """The increment of step number ``step``; fresh noise does not depend on ``t``."""
        W = self._normal(Stream.INCREMENT, step, math.sqrt(dt))
        H = A = None
        if needs is Needs.SPACE_TIME_AREA:
            H = self._normal(Stream.SPACE_TIME_AREA, step, math.sqrt(dt / 12.0)).view(self.shape)
        elif needs is Needs.LEVY_AREA:
            normals = StepNormals(self.seed, step, self.first_particle)
            A = self.levy_area.sample(W, dt, normals).view(*self.shape, self.shape[-1])
        return Increment(dt, W.view(self.shape), H, A)

    def _normal(self, stream: Stream, step: int, scale: float) -> Tensor:
        out = torch.empty(self._rows, self.shape[-1], dtype=self.dtype, device=self.device)
        return fill_normal(
            out, seed=self.seed, stream=stream, step=step, first_particle=self.first_particle, scale=scale
        )
