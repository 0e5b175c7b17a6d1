"""What one round of a repeat reads, as a rule for all rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from torch import fx

from .repeats import Repeat


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


class Column:
    """What the node at one place in a round is given at one place, in all rounds: of one type, as repeats have it.

    Attributes:
        numbers: of each round, where that must move on evenly: the places of nodes, or whole numbers.
    """

    def __init__(self, leaves: list[Any], places: dict[fx.Node, int]) -> None:
        self.leaves = leaves
        kind = leaves[0]
        if isinstance(kind, fx.Node):
            self.numbers: np.ndarray | None = np.array([places[leaf] for leaf in leaves])
        else:
            is_number = isinstance(kind, int) and not isinstance(kind, bool)
            self.numbers = np.array(leaves) if is_number else None

    def follows(self, middle: int) -> np.ndarray:
        """Of every round, whether it has what the two in the middle have, or let expect."""
        numbers, leaves = self.numbers, self.leaves
        if numbers is not None:
            start = numbers[middle]
            return numbers == start + (np.arange(len(numbers)) - middle) * (numbers[middle + 1] - start)
        if isinstance(leaves[0], float):
            return np.ones(len(leaves), dtype=bool)
        return np.array([bool(leaf == leaves[middle]) for leaf in leaves])


def columns_of(found: Repeat, given: Sequence[Sequence[Any]], places: dict[fx.Node, int]) -> list[list[Column]]:
    """Those of every node of a round; ``given`` are the leaves of all nodes of the graph."""
    rows = (given[found.place(number, 0) : found.end : found.period] for number in range(found.period))
    return [[Column(list(leaves), places) for leaves in zip(*of_node, strict=True)] for of_node in rows]


class Rounds:
    """A repeat whose rounds all read by the same rule.

    Attributes:
        repeat: the rounds that do.
        peeled: how many of the found rounds come before them.
        arguments: of every node of a round, in their order.
    """

    def __init__(
        self, found: Repeat, columns: Sequence[Sequence[Column]], places: dict[fx.Node, int], first: int, last: int
    ) -> None:
        """From the round ``first`` of the repeat to ``last`` at most."""
        self._places = places
        first, last = self._regular(columns, first, last)
        self.peeled = first
        self.repeat = Repeat(found.place(0, first), found.period, last - first)
        self.arguments = [[self._rule(column.leaves[first:last]) for column in of_node] for of_node in columns]

    def _regular(self, columns: Sequence[Sequence[Column]], first: int, last: int) -> tuple[int, int]:
        """The rounds around the middle one that follow its rule."""
        middle = (first + last) // 2
        for column in chain.from_iterable(columns):
            others = np.flatnonzero(~column.follows(middle))
            before, after = others[others < middle], others[others > middle]
            first = max(first, int(before[-1]) + 1) if len(before) else first
            last = min(last, int(after[0])) if len(after) else last
        return first, last

    def _number(self, leaf: Any) -> int | None:
        """What must move on evenly: a node's place, or a whole number."""
        if isinstance(leaf, fx.Node):
            return self._places[leaf]
        return leaf if isinstance(leaf, int) and not isinstance(leaf, bool) else None

    def _rule(self, leaves: list[Any]) -> Argument:
        first = leaves[0]
        if isinstance(first, float):
            same = all(repr(leaf) == repr(first) for leaf in leaves)
            return Fixed(first) if same else Numbers(tuple(leaves))
        start, then = self._number(first), self._number(leaves[1])
        if start is None or then is None or start == then:
            return Fixed(first)
        return Moving(start, then - start) if isinstance(first, fx.Node) else Advancing(start, then - start)
