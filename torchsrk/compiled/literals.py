"""The numbers in a step's code: which of them depend on the step size, and how."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..derived import Formula, Ledger
from .evaluation import evaluate
from .lowering import StepCode
from .trace import CannotCompile, TracedStep

T = TypeVar("T")

# So near that a step of it has the same form, and so far that its numbers are others.
_OTHER_STEP_SIZE = 1.0 + 2.0**-6


@dataclass(frozen=True)
class Reading:
    """A step as it was traced with a step size, what it was made into, and the numbers made from the step size on the
    way; ``number`` is that of the number of particles."""

    traced: TracedStep
    made: Any
    ledger: Ledger
    step_size: float
    number: int

    @property
    def code(self) -> StepCode:
        """The code of a step, in C or with the same attributes in Triton."""
        return self.made if isinstance(self.made, StepCode) else self.made.code


@dataclass(frozen=True)
class Literals:
    """A step's numbers, each with the function of the step size that it is, if it is one.

    Attributes:
        known: they are known for every step size, and not for the one alone that was traced.
    """

    values: tuple[float, ...]
    functions: tuple[Formula | None, ...]
    known: bool

    @staticmethod
    def of_one_step_size(reading: Reading) -> Literals:
        """Numbers that may depend on the step size in ways that were not seen."""
        return Literals(reading.code.literals, (None,) * len(reading.code.literals), known=False)

    def for_one_step_size(self, step_size: float) -> Literals:
        """The same numbers as they are at a step size, and at no other one."""
        values = self.values if not self.known else tuple(self.at(step_size) or ())
        return Literals(values, (None,) * len(values), known=False)

    def at(self, step_size: float) -> list[float] | None:
        """All of them, for a step size; None for one by which a step has others."""
        pairs = zip(self.values, self.functions, strict=True)
        try:
            return [value if again is None else float(again(step_size)) for value, again in pairs]
        except (ArithmeticError, ValueError):
            return None


class _Differs(CannotCompile):
    """Two readings of one step size say different things."""

    def __init__(self, second: Reading) -> None:
        super().__init__("a step depends on the number of particles")
        self.second = second


Read = Callable[[float, Reading | None], Reading]


def read_with_literals(read: Read, step_size: float) -> tuple[Reading, Literals]:
    """A step and its numbers, by two readings with different numbers of particles and, if it takes another one, step
    sizes; ``read`` makes one, from the step size and the reading before."""

    def literals_by(first: Reading) -> tuple[Reading, Literals]:
        with suppress(CannotCompile):  # of a step size that makes another step, say one with more terms
            literals = literals_of(first, read(_OTHER_STEP_SIZE * step_size, first))
            if literals is not None:
                return first, literals
        return _checked(read, first), Literals.of_one_step_size(first)

    return _of_two(read, step_size, literals_by)


def read_twice(read: Read, step_size: float) -> Reading:
    """A step, by two readings with different numbers of particles."""
    return _of_two(read, step_size, partial(_checked, read))


def _of_two(read: Read, step_size: float, settled: Callable[[Reading], T]) -> T:
    """What is made of a reading. A step that seems to depend on the number of particles is read anew with others: where
    a loop has as many rounds as there were particles, the two can't be told apart."""
    first = read(step_size, None)
    try:
        return settled(first)
    except _Differs as found:
        return settled(read(step_size, found.second))


def _checked(read: Read, first: Reading) -> Reading:
    """A reading that another one of more particles agrees with."""
    second = read(first.step_size, first)
    if not have_same_numbers(first, second):
        raise _Differs(second)
    return first


def literals_of(first: Reading, second: Reading) -> Literals | None:
    """The numbers of the first reading, by what the second, of another step size, has in their places.

    None if one of them changes with the step size and was not seen to be made from it, or decides what a step does.
    """
    if first.ledger.decided or second.ledger.decided or not first.code.is_like(second.code):
        return None
    if not _are_alike(_before_the_run(first), _before_the_run(second)):
        return None
    functions: list[Formula | None] = []
    for value, other in zip(first.code.literals, second.code.literals, strict=True):
        again = None if _are_same(value, other) else first.ledger.function(value, second.step_size, other)
        if again is None and not _are_same(value, other):
            return None
        functions.append(again)
    return Literals(first.code.literals, tuple(functions), known=True)


def have_same_numbers(first: Reading, second: Reading) -> bool:
    """Whether two readings are of the same code with the same numbers."""
    return first.made.is_like(second.made) and all(map(_are_same, first.code.literals, second.code.literals))


def _before_the_run(reading: Reading) -> list[Tensor]:
    """What torch computes before a run: numbers made from the step size may have gone into it."""
    nodes = (*reading.code.uniforms, *reading.code.tables)
    return [torch.as_tensor(value) for value in evaluate(reading.traced, nodes, reading.traced.constants)]


def _are_alike(here: Sequence[Tensor], there: Sequence[Tensor]) -> bool:
    pairs = zip(here, there, strict=True)
    return all(a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all()) for a, b in pairs)


def _are_same(a: float, b: float) -> bool:
    """The same number, NaN and the sign of 0 included."""
    return (a == b and math.copysign(1.0, a) == math.copysign(1.0, b)) or (a != a and b != b)
