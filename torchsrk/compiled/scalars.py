"""A particle's step as operations on single numbers, each made once: what a GPU keeps in registers."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from .operations import Kind, Operand
from .trace import CannotCompile

_MOST = 20_000  # numbers a particle, those included that turn out to be for nothing


@dataclass(frozen=True)
class Scalar:
    """A number that a step computes or reads.

    Attributes:
        template: its text, with {0}, {1} for the operands.
        operands: the numbers of these.
        particles: those that it depends on.
        form: alike for what is computed alike, of whatever particle.
    """

    template: str
    operands: tuple[int, ...]
    kind: Kind
    particles: frozenset[int]
    form: int


class Scalars:
    """All numbers of a step, by the number that each has: operands come before what is made of them."""

    def __init__(self, particles: int) -> None:
        self._most = _MOST * particles
        self._all: list[Scalar] = []
        self._known: dict[Hashable, int] = {}
        self._forms: dict[Hashable, int] = {}

    def __getitem__(self, number: int) -> Scalar:
        return self._all[number]

    def leaf(self, text: str, kind: Kind, particle: int | None = None, form: str = "") -> int:
        """What is there before the step: an input of a particle, or a number for all. ``form`` is its text for any."""
        known = self._known.get((text, kind))
        if known is not None:
            return known
        particles = frozenset() if particle is None else frozenset({particle})
        return self._add((text, kind), Scalar(text, (), kind, particles, self._form(form or text, kind)))

    def made(self, result: Operand, operands: Sequence[int]) -> int:
        """A number by a text with {0}, {1} in it for the operands."""
        template, kind = result
        key = (template, kind, *operands)
        known = self._known.get(key)
        if known is not None:
            return known
        particles = frozenset().union(*(self._all[number].particles for number in operands))
        form = self._form(template, kind, *(self._all[number].form for number in operands))
        return self._add(key, Scalar(template, tuple(operands), kind, particles, form))

    def named(self, number: int, place: int) -> Operand:
        """A number as the operand at a place of a template."""
        return f"{{{place}}}", self._all[number].kind

    def cone(self, results: Iterable[int]) -> list[int]:
        """All that results are made of, they included, in order."""
        met, waiting = set[int](), list(results)
        while waiting:
            number = waiting.pop()
            if number not in met:
                met.add(number)
                waiting += self._all[number].operands
        return sorted(met)

    def _form(self, *key: Hashable) -> int:
        return self._forms.setdefault(key, len(self._forms))

    def _add(self, key: Hashable, scalar: Scalar) -> int:
        if len(self._all) >= self._most:
            raise CannotCompile(f"a step computes more than {_MOST} numbers a particle, too many for registers")
        self._all.append(scalar)
        self._known[key] = len(self._all) - 1
        return self._known[key]
