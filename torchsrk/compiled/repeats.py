"""Loops that Python has unrolled, found again in the list of a graph's nodes.

The nodes of one round of a loop follow those of the round before, operation by operation; what they read is the same
for all rounds, or moves on by as many nodes at every round.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, fx

_FEWEST_ROUNDS = 8
_LONGEST_ROUND = 512


@dataclass(frozen=True)
class Repeat:
    """``rounds`` rounds of ``period`` nodes each, from the node at ``first`` on."""

    first: int
    period: int
    rounds: int

    @property
    def end(self) -> int:
        return self.first + self.period * self.rounds

    def place(self, number: int, round_: int) -> int:
        """The place of a node in the list: its number in its round, and the round."""
        return self.first + round_ * self.period + number


def find_repeats(nodes: Sequence[fx.Node], given: Sequence[Sequence[Any]]) -> list[Repeat]:
    """Repeats that do not overlap, in their order, the longest preferred; ``given`` are the leaves of each node."""
    kinds: dict[Any, int] = {}
    results: dict[int, Any] = {}
    pairs = zip(nodes, given, strict=True)
    line = np.array([kinds.setdefault(_kind(node, own, results), len(kinds)) for node, own in pairs])
    found: list[Repeat] = []
    waiting = [(0, len(line))]
    while waiting:
        start, end = waiting.pop()
        best = _longest(line[start:end])
        if best is not None:
            best = Repeat(best.first + start, best.period, best.rounds)
            found.append(best)
            waiting += [(start, best.first), (best.end, end)]
    return sorted(found, key=lambda repeat: repeat.first)


def _longest(line: np.ndarray) -> Repeat | None:
    """Of all repeats, the one of the most nodes, and of these the one with the shortest round."""
    best, most = None, 0
    for period in range(1, min(_LONGEST_ROUND, len(line) // _FEWEST_ROUNDS) + 1):
        same = np.concatenate(([False], line[period:] == line[:-period], [False]))
        edges = np.flatnonzero(same[1:] != same[:-1])
        starts, lengths = edges[::2], edges[1::2] - edges[::2]
        if not len(lengths):
            continue
        longest = int(lengths.argmax())
        rounds = int(lengths[longest]) // period + 1
        if rounds >= _FEWEST_ROUNDS and rounds * period > most:
            best, most = Repeat(int(starts[longest]), period, rounds), rounds * period
    return best


def _kind(node: fx.Node, given: Sequence[Any], results: dict[int, Any]) -> Any:
    """What nodes have in common that are the same in different rounds; ``results`` has what is known of their values,
    which many share."""
    if node.op != "call_function":
        return node
    value = node.meta.get("val")
    result = results.get(id(value))
    if result is None:
        result = (value.shape, value.dtype, value.stride()) if isinstance(value, Tensor) else type(value)
        results[id(value)] = result
    fill = node.meta.get("fill")  # of a constant, which has no arguments left
    args, kwargs = node.args, node.kwargs
    words = tuple([leaf if isinstance(leaf, (bool, str)) else type(leaf) for leaf in given])
    form = (len(args), *kwargs, *[len(part) for part in args if isinstance(part, (list, tuple))])
    return id(node.target), form, words, result, None if fill is None or isinstance(fill, fx.Node) else repr(fill)


def leaves(node: fx.Node) -> list[Any]:
    """All that a node is given, one after another."""
    args, kwargs = node.args, node.kwargs
    parts = [*args, *kwargs.values()] if kwargs else [*args]
    for part in parts:
        if isinstance(part, (list, tuple)):
            found: list[Any] = []
            _collect(parts, found)
            return found
    return parts


def _collect(parts: Iterable[Any], found: list[Any]) -> None:
    for part in parts:
        if isinstance(part, (list, tuple)):
            _collect(part, found)
        else:
            found.append(part)


def with_leaves(node: fx.Node, others: Iterable[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A node's arguments with others in the place of its leaves."""
    rest = iter(others)

    def replaced(part: Any) -> Any:
        return [replaced(inner) for inner in part] if isinstance(part, (list, tuple)) else next(rest)

    return tuple(map(replaced, node.args)), {name: replaced(part) for name, part in node.kwargs.items()}
