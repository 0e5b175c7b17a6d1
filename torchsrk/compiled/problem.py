"""What is compiled: a step, the noise that it draws, and the states that it moves."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Size, Tensor

from ..brownian.draws import Draw
from .fingerprint import fingerprint

# So few particles run one by one, with vectors along a particle's entries; more run side by side in a vector's lanes.
_FEW = 4
# When this code was read: source that was written later is not what runs.
IMPORTED = time.time()


class Form:
    """Parts that are equal or not as a whole, hashed once however many names a program is looked for under."""

    __slots__ = ("_hash", "_parts")

    def __init__(self, *parts: Hashable) -> None:
        self._parts, self._hash = parts, hash(parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Form) and self._hash == other._hash and self._parts == other._parts


class Key(NamedTuple):
    """What a program depends on.

    Attributes:
        form: alike for problems that have the same program, with tensors of the same kinds in the same places.
        complete: that is all of it, as far as can be seen.
        tensors: what is in those places now.
    """

    form: Form
    complete: bool
    tensors: tuple[Tensor, ...]


@dataclass(frozen=True)
class Places:
    """Numbers that are others in every step, and the same for all particles: the rows of a minibatch, say, which are
    whole, or a time that is to be known better than the states are.

    Attributes:
        shape: of a step's.
        of: those of the steps from one to another, (steps, *shape).
    """

    shape: tuple[int, ...]
    of: Callable[[int, int], Tensor]
    dtype: torch.dtype = torch.int64


@dataclass(frozen=True)
class Uneven:
    """Steps that have lengths of their own, from step number 0 on.

    Attributes:
        starts, lengths: of every step.
        noise: what a step of a length draws.
    """

    starts: Sequence[float]
    lengths: Sequence[float]
    noise: Callable[[float], tuple[Draw, ...]]


@dataclass(frozen=True)
class Problem:
    """What is compiled: ``step(step_size, state, *normals, t, *places)``, for states like ``state``.

    Attributes:
        step: a function of the time that passes in a step and of tensors: states (particles, *members, width), normals
            (particles, *members, components) for every entry of ``noise``, times their scale, the time, and ``places``.
        noise: what a step draws.
        parts: what the step reads, to tell when it is another one. The first of them is what a program is for.
        substeps: how many steps of noise one step reads: normals are those of all of them, side by side.
        language: what it is compiled by way of, "c" or "triton".
        uneven: the steps of a run that are not all of ``step_size``; a program of C is the same for them.
    """

    step: Callable[..., Tensor]
    noise: tuple[Draw, ...]
    step_size: float
    state: Tensor
    parts: tuple[Any, ...]
    substeps: int = 1
    places: tuple[Places, ...] = ()
    language: str = "c"
    uneven: Uneven | None = None

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
        normals, others = arguments[: len(self.noise)], arguments[len(self.noise) :]
        apart = [self._of_members(tensor) for tensor in normals]
        moved = self.step(step_size, state.reshape(-1, *self.members, self.state.shape[-1]), *apart, *others)
        return moved.reshape(-1, self.width)

    def _of_members(self, normals: Tensor) -> Tensor:
        """Normals (particles, *members, numbers), from those of all members in turn, one substep after another."""
        apart = normals.reshape(len(normals), self.substeps, *self.members, -1)
        return apart.movedim(1, -2).flatten(-2)

    def first_places(self) -> list[Tensor]:
        """Places to try a step with."""
        return [torch.zeros(drawn.shape, dtype=drawn.dtype) for drawn in self.places]

    @property
    def owner(self) -> Any:
        return self.parts[0]

    @property
    def one_by_one(self) -> bool:
        return self.language == "c" and self.state.numel() <= _FEW * self.width

    def key(self) -> Key:
        """What a program for it depends on beside the step size."""
        mark, complete, tensors = fingerprint(*self.parts)
        surroundings = (torch.get_default_dtype(), os.environ.get("CC"), os.environ.get("TORCHSRK_CACHE"))
        return Key(Form(mark, self.form(), surroundings), complete, tensors)

    def form(self) -> tuple[Hashable, ...]:
        """What of a program is told by the states and the noise alone."""
        shape = (*self.members, self.state.shape[-1])
        noise = tuple((draw.stream, draw.components, draw.part) for draw in self.noise)
        places = tuple((drawn.shape, drawn.dtype) for drawn in self.places)
        where = (self.language, self.state.device)
        return shape, noise, self.substeps, self.state.dtype, self.one_by_one, places, where
