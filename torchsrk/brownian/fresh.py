"""Fresh noise: increments drawn from the counter, in any order, any number of times."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from .draws import Draw, assemble, draws
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
        dtype, device: of the increments.
        first_particle: the number of the first one, for a batch that is part of a larger one.
        levy_area: how Lévy areas are approximated when a scheme asks for them.
        overwrite: draw into the same memory at every step: an increment is good until the next one is asked for.
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
        overwrite: bool = False,
    ) -> None:
        self.seed = seed
        self.shape = tuple(shape)
        self.dtype = dtype
        self.device = device
        self.first_particle = first_particle
        self.levy_area = MrongowiusRoesslerLevyArea() if levy_area is None else levy_area
        self._rows = math.prod(self.shape[:-1])
        self._overwrite = overwrite
        self._memory: dict[str, tuple[Tensor, Tensor]] = {}  # what is filled, and the same numbers as they are seen
        self._places: set[int] = set()
        self._last_asked: tuple[float, Needs] | None = None

    def increment(self, step: int, t: float, dt: float, needs: Needs) -> Increment:
        """The increment of step number ``step``; fresh noise does not depend on ``t``."""
        if self._last_asked != (dt, needs):
            self._last_asked = (dt, needs)
            self._draws, self._has_areas = draws(needs, dt, self.shape[-1]), Needs.LEVY_AREA in needs
        parts = {draw.part: self._normals(draw, step) for draw in self._draws}
        return assemble(dt, parts, partial(self._levy_area, step, dt) if self._has_areas else None)

    def _levy_area(self, step: int, dt: float, W: Tensor) -> Tensor:
        normals = StepNormals(self.seed, step, self.first_particle)
        return self.levy_area.sample(W.view(self._rows, -1), dt, normals).view(*W.shape, W.shape[-1])

    def apart(self, x: Tensor) -> Tensor:
        """x, or a copy of it if it lies in memory that the next increment is drawn into."""
        return x.clone() if x.untyped_storage().data_ptr() in self._places else x

    def _normals(self, draw: Draw, step: int) -> Tensor:
        filled, seen = self._memory.get(draw.part) or self._room(draw)
        fill_normal(
            filled,
            seed=self.seed,
            stream=draw.stream,
            step=step,
            first_particle=self.first_particle,
            scale=draw.scale,
        )
        return seen

    def _room(self, draw: Draw) -> tuple[Tensor, Tensor]:
        filled = torch.empty(1, self._rows, draw.components, dtype=self.dtype, device=self.device)
        room = filled, filled.view(*self.shape[:-1], draw.components)
        if self._overwrite:
            self._memory[draw.part] = room
            self._places.add(filled.untyped_storage().data_ptr())
        return room


def start_normals(seed: int, step: int = 0, first_particle: int = 0) -> Callable[[Tensor], Tensor]:
    """What gives a scheme's ``init`` its normals: of the shape, dtype and device of a tensor (..., components).

    Args:
        seed: of the run.
        step: the number of the step that they are drawn at.
        first_particle: the number of the first particle.
    """

    def normals(like: Tensor) -> Tensor:
        out = torch.empty(like.shape, dtype=like.dtype, device=like.device).view(-1, like.shape[-1])
        where = {"seed": seed, "stream": Stream.VELOCITY, "step": step, "first_particle": first_particle}
        return fill_normal(out, **where).view(like.shape)

    return normals
