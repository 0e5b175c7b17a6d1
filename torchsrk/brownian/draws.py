"""What a scheme's needs mean in normals, and how an increment is made of them: fresh noise and compiled steps both read
it here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from .increment import Increment, Needs
from .levy_area import LevyArea
from .noise import Stream


@dataclass(frozen=True)
class Draw:
    """Normals that a step reads: ``components`` a particle from a stream, times a scale; ``part`` of an increment."""

    stream: Stream
    components: int
    scale: float
    part: str = ""


@lru_cache
def draws(needs: Needs, dt: float, brownian: int) -> tuple[Draw, ...]:
    """What a step draws, but for the series of Lévy areas. The increment is always there, and first."""
    kinds = {
        Needs.INCREMENT: Draw(Stream.INCREMENT, brownian, math.sqrt(dt), "W"),
        Needs.SPACE_TIME_AREA: Draw(Stream.SPACE_TIME_AREA, brownian, math.sqrt(dt / 12.0), "H"),
        Needs.SPACE_TIME_TIME_AREA: Draw(Stream.SPACE_TIME_TIME_AREA, brownian, math.sqrt(dt / 720.0), "K"),
        Needs.BETWEEN: Draw(Stream.BETWEEN, brownian, 1.0, "Z"),
        Needs.UNIFORM: Draw(Stream.UNIFORM, 1, 1.0, "u"),
    }
    return tuple(draw for need, draw in kinds.items() if need in needs | Needs.INCREMENT)


def levy_draws(needs: Needs, dt: float, brownian: int, levy_area: LevyArea) -> tuple[Draw, ...]:
    """What Lévy areas draw."""
    if Needs.LEVY_AREA not in needs:
        return ()
    asked = _Recorder()
    levy_area.sample_piece(torch.zeros(1, brownian), dt, asked)
    return tuple(Draw(stream, components, 1.0) for stream, components in asked.components.items())


def assemble(dt: float, parts: Mapping[str, Tensor], levy_area: Callable[[Tensor], Tensor] | None = None) -> Increment:
    """The increment of the parts that ``draws`` asks for; ``levy_area`` gives areas from W, if they are needed."""
    if "u" in parts:
        parts = {**parts, "u": uniform(parts["u"])}
    return Increment(dt, **parts, A=None if levy_area is None else levy_area(parts["W"]))


def uniform(normal: Tensor) -> Tensor:
    """Uniform numbers from standard normals, by their distribution function."""
    return 0.5 * torch.erfc(normal * -math.sqrt(0.5))


class GivenNormals:
    """A source of normals that has them already."""

    def __init__(self, tensors: Mapping[Stream, Tensor]) -> None:
        self.tensors = tensors

    def draw(self, stream: Stream, like: Tensor, components: int, *, first_row: int = 0, first: int = 0) -> Tensor:
        return self.tensors[stream][:, first : first + components].clone()


class _Recorder:
    """Gives zeros for normals, and remembers how many were asked for."""

    def __init__(self) -> None:
        self.components: dict[Stream, int] = {}

    def draw(self, stream: Stream, like: Tensor, components: int, *, first_row: int = 0, first: int = 0) -> Tensor:
        self.components[stream] = max(self.components.get(stream, 0), first + components)
        return like.new_zeros(len(like), components)
