"""What is timed: a problem at a size, in a precision, with a gradient and a scheme."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from problems import Problem

HAND, AUTOGRAD = "hand", "autograd"
EM, SRK = "em", "srk-ld"  # for another library: its nearest scheme of that order


@dataclass(frozen=True)
class Case:
    """One problem to be run by a contender; particles start from 0."""

    problem: Problem
    particles: int
    dtype: str = "float32"
    gradient: str = HAND
    scheme: str = EM
    other_step_size: float | None = None

    def __str__(self) -> str:
        return f"{self.problem.name}, {self.particles} particles, {self.dtype}, {self.gradient}, {self.scheme}"

    @property
    def step_size(self) -> float:
        return self.problem.step_size if self.other_step_size is None else self.other_step_size

    @property
    def shape(self) -> tuple[int, int]:
        return (self.particles, self.problem.dim)


class Run(Protocol):
    """A prepared contender. It returns when the state is ready, as what ``numpy.asarray`` takes."""

    def __call__(self, steps: int, *, seed: int = 0, start: Any = None) -> Any: ...


Build = Callable[..., Run]


@dataclass(frozen=True)
class Entry:
    """A contender in a race: who runs what, under which label, in which process."""

    label: str
    contender: str
    case: Case
    process: str = ""  # by default one for each contender

    @property
    def process_name(self) -> str:
        return self.process or self.contender
