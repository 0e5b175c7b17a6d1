"""What is compiled: a step, the noise that it draws, and the states that it moves."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Size, Tensor

from ..brownian.draws import Draw
from .fingerprint import fingerprint

# So few particles run one by one, with vectors along a particle's entries; more run side by side in a vector's lanes.
_FEW = 4


class Key(NamedTuple):
    """What a program depends on.

    Attributes:
        form: alike for problems that have the same program, with tensors of the same kinds in the same places.
        complete: that is all of it, as far as can be seen.
        tensors: what is in those places now.
    """

    form: Hashable
    complete: bool
    tensors: tuple[Tensor, ...]


@dataclass(frozen=True)
class Problem:
    """What is compiled: ``step(step_size, state, *normals, t)``, for states like ``state``.

    Attributes:
        step: a function of the time that passes in a step and of tensors: states (particles, *members, width), normals
            (particles, *members, components) for every entry of ``noise``, times their scale, and the time.
        noise: what a step draws.
        parts: what the step reads, to tell when it is another one. The first of them is what a program is for.
        substeps: how many steps of noise one step reads: normals are those of all of them, side by side.
    """

    step: Callable[..., Tensor]
    noise: tuple[Draw, ...]
    step_size: float
    state: Tensor
    parts: tuple[Any, ...]
    substeps: int = 1

    @property
    def members(self) -> Size:
        """The dimensions between the first and the last: of what is one particle to the program, the parts that have
        noise of their own."""
        return self.state.shape[1:-1]

    @property
    def width(self) -> int:
        """How many numbers a particle's state has."""
        return math.prod(self.members) * self.state.shape[-1]

    def flat_step(self, step_size: float, state: Tensor, *arguments: Any) -> Tensor:
        """The step on states (particles, numbers), with normals of that form."""
        if not self.members:
            return self.step(step_size, state, *arguments)
        *normals, t = arguments
        apart = [self._of_members(tensor) for tensor in normals]
        moved = self.step(step_size, state.reshape(-1, *self.members, self.state.shape[-1]), *apart, t)
        return moved.reshape(-1, self.width)

    def _of_members(self, normals: Tensor) -> Tensor:
        """Normals (particles, *members, numbers), from those of all members in turn, one substep after another."""
        apart = normals.reshape(len(normals), self.substeps, *self.members, -1)
        return apart.movedim(1, -2).flatten(-2)

    @property
    def owner(self) -> Any:
        return self.parts[0]

    @property
    def one_by_one(self) -> bool:
        return self.state.numel() <= _FEW * self.width

    def key(self) -> Key:
        """What a program for it depends on beside the step size."""
        mark, complete, tensors = fingerprint(*self.parts)
        shape = (*self.members, self.state.shape[-1])
        noise = tuple((draw.stream, draw.components, draw.part) for draw in self.noise)
        form = (shape, noise, self.substeps, self.state.dtype, self.one_by_one)
        surroundings = (torch.get_default_dtype(), os.environ.get("CC"), os.environ.get("TORCHSRK_CACHE"))
        return Key((mark, form, surroundings), complete, tensors)
