"""What one round of a repeat reads, as a rule for all rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from .repeats import Repeat, leaves


@dataclass(frozen=True)
class Fixed:
    """The same for every round."""

    value: Any


@dataclass(frozen=True)
class Advancing:
    """A whole number that grows by as much at every round."""

    start: int
    by: int


@dataclass(frozen=True)
class Numbers:
    """A number of each round's own."""

    values: tuple[float, ...]


@dataclass(frozen=True)
class Moving:
    """A node that is ``by`` places further on at every round."""

    place: int
    by: int


Argument = Fixed | Advancing | Numbers | Moving


class Rounds:
    """A repeat whose rounds all read by the same rule.

    Attributes:
        repeat: the rounds that do.
        peeled: how many of the found rounds come before them.
        arguments: of every node of a round, in their order.
    """

    def __init__(
        self, nodes: Sequence[fx.Node], places: dict[fx.Node, int], found: Repeat, first: int, last: int
    ) -> None:
        """From the round ``first`` of the repeat to ``last`` at most."""
        self._places = places
        given = [
            [leaves(node) for node in nodes[found.place(number, 0) : found.end : found.period]]
            for number in range(found.period)
        ]
        first, last = self._regular(given, first, last)
        self.peeled = first
        self.repeat = Repeat(found.place(0, first), found.period, last - first)
        self.arguments = [
            [self._rule([row[slot] for row in rows[first:last]]) for slot in range(len(rows[0]))] for rows in given
        ]

    def _regular(self, given: list[list[list[Any]]], first: int, last: int) -> tuple[int, int]:
        """The rounds around the middle one that follow its rule."""
        middle = (first + last) // 2
        for rows in given:
            for slot in range(len(rows[0])):
                for step in (-1, 1):
                    end = first - 1 if step < 0 else last
                    for round_ in range(middle, end, step):
                        if not self._follows(
                            rows[middle][slot], rows[middle + 1][slot], rows[round_][slot], round_ - middle
                        ):
                            first, last = (round_ + 1, last) if step < 0 else (first, round_)
                            break
        return first, last

    def _number(self, leaf: Any) -> int | None:
        """What must move on evenly: a node's place, or a whole number."""
        if isinstance(leaf, fx.Node):
            return self._places[leaf]
        return leaf if isinstance(leaf, int) and not isinstance(leaf, bool) else None

    def _follows(self, middle: Any, after: Any, leaf: Any, rounds: int) -> bool:
        start, then, now = map(self._number, (middle, after, leaf))
        if isinstance(leaf, float):
            return True
        if start is None or then is None or now is None:
            return bool(leaf == middle)
        return now == start + rounds * (then - start)

    def _rule(self, leaves: list[Any]) -> Argument:
        first = leaves[0]
        if isinstance(first, float):
            same = all(repr(leaf) == repr(first) for leaf in leaves)
            return Fixed(first) if same else Numbers(tuple(leaves))
        start, then = self._number(first), self._number(leaves[1])
        if start is None or then is None or start == then:
            return Fixed(first)
        return Moving(start, then - start) if isinstance(first, fx.Node) else Advancing(start, then - start)
