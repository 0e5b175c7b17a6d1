"""Sums of parts that are each put into a place of their own among zeros, as one stack of these parts.

A loop that reads ``x[..., t]`` in round t leaves such a sum as its gradient: a row as long as the series in every
round. As a stack it is one number a round.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import fx

from .calls import Call, operation_name
from .trace import drop_unread

aten = torch.ops.aten
_FEWEST_PARTS = 8


class _Placed(NamedTuple):
    """``part`` at ``place`` along ``dim``, and zeros in all the others."""

    part: fx.Node
    dim: int
    place: int


def stack_what_is_placed(graph: fx.Graph) -> None:
    """Rewrite sums in which parts take most of the places along a dimension."""
    if sum(_placed(node) is not None for node in graph.nodes) < _FEWEST_PARTS:
        return
    for node in list(graph.nodes):
        if _is_sum(node) and not (len(node.users) == 1 and _is_sum(next(iter(node.users)))):
            _rewrite(node)
    drop_unread(graph)


def _rewrite(total: fx.Node) -> None:
    terms = _terms(total)
    found = [(term, _placed(term)) for term in terms]
    placed = [one for _, one in found if one is not None]
    if not placed:
        return
    shape, dim = total.meta["val"].shape, placed[0].dim
    parts: dict[int, list[fx.Node]] = {}
    others = []
    for term, one in found:
        if one is None or one.dim != dim or not _has_form(term, total):
            others.append(term)
        else:
            parts.setdefault(one.place, []).append(one.part)
    fewest = max(_FEWEST_PARTS, shape[dim] // 2)
    if len(parts) < fewest or not all(_has_form(other, total) for other in others):
        return
    with total.graph.inserting_before(total):
        made, *more = (_stack(total, dim, layer) for layer in _layers(parts, fewest))
        for one_more in more:
            made = _like(total, aten.add.Tensor, made, one_more)
        for other in reversed(others):
            made = _like(total, aten.add.Tensor, other, made)
    total.replace_all_uses_with(made)


def _layers(parts: dict[int, list[fx.Node]], fewest: int) -> list[dict[int, fx.Node]]:
    """What is added up at each place, as one part of each: as many layers as have parts at enough of the places.

    So what a loop adds to a place in every round stays one operation on all places, and is not one at every place.
    """
    number = max(k for k in range(1, 1 + max(map(len, parts.values()))) if _places_of(parts, k) >= fewest)
    layers: list[dict[int, fx.Node]] = [{} for _ in range(number)]
    for place, (first, *rest) in parts.items():
        while len(rest) >= number:  # of more parts the first ones are added up before, as they were
            first = _like(first, aten.add.Tensor, first, rest.pop(0))
        for layer, part in zip(layers, (first, *rest), strict=False):
            layer[place] = part
    return layers


def _places_of(parts: dict[int, list[fx.Node]], number: int) -> int:
    """At how many places there are so many parts."""
    return sum(len(there) >= number for there in parts.values())


def _stack(total: fx.Node, dim: int, parts: dict[int, fx.Node]) -> fx.Node:
    """Parts at their places, and zeros at the others."""
    size = total.meta["val"].shape[dim]
    if len(parts) < size:
        nothing = _like(next(iter(parts.values())), aten.full.default)
        nothing.meta["fill"] = 0.0
    return _like(total, aten.stack.default, [parts.get(k) or nothing for k in range(size)], dim)


def _is_sum(node: fx.Node) -> bool:
    return operation_name(node) == "add.Tensor" and bool(node.kwargs.get("alpha", 1) == 1)


def _terms(total: fx.Node) -> list[fx.Node]:
    """What is added up, in its order, by sums that nothing else reads."""
    terms, waiting = [], [total]
    while waiting:
        node = waiting.pop()
        if isinstance(node, fx.Node) and _is_sum(node) and (node is total or len(node.users) == 1):
            waiting += reversed(node.args)  # type: ignore[arg-type]
        else:
            terms.append(node)
    return terms


def _has_form(node: Any, like: fx.Node) -> bool:
    value, wanted = node.meta.get("val") if isinstance(node, fx.Node) else None, like.meta["val"]
    return isinstance(value, torch.Tensor) and (value.shape, value.dtype) == (wanted.shape, wanted.dtype)


def _placed(node: Any) -> _Placed | None:
    """What a term puts where: a choice by ``arange == place`` between a part and zeros, as torch writes it."""
    if not isinstance(node, fx.Node) or operation_name(node) != "where.self" or len(node.args) != 3:
        return None
    condition, value, zeros = node.args
    where = _place(condition)
    if where is None or not isinstance(zeros, fx.Node) or zeros.meta.get("fill") != 0 or not _has_form(node, value):  # type: ignore[arg-type]
        return None
    sizes, place = where
    shape = node.meta["val"].shape
    sizes = (*[1] * (len(shape) - len(sizes)), *sizes)
    dims = [d for d, size in enumerate(sizes) if size != 1]
    part = _widened(value, dims[0]) if len(dims) == 1 and sizes[dims[0]] == shape[dims[0]] else None
    return None if part is None else _Placed(part, dims[0], place)


def _place(condition: Any) -> tuple[tuple[int, ...], int] | None:
    """The sizes of ``arange == place`` and the place."""
    if not isinstance(condition, fx.Node) or operation_name(condition) != "eq.Scalar":
        return None
    line, place = condition.args
    sizes = tuple(condition.meta["val"].shape)
    while isinstance(line, fx.Node) and operation_name(line) in ("view.default", "_unsafe_view.default"):
        line = line.args[0]
    if not isinstance(line, fx.Node) or operation_name(line) != "arange.start_step" or not isinstance(place, int):
        return None
    call, entries = Call(line), line.meta["val"].numel()
    if (call["start"], call["end"], call["step"]) != (0, entries, 1) or not 0 <= place < entries:
        return None
    return sizes, place


def _widened(value: Any, dim: int) -> fx.Node | None:
    """The part that was made as large as its sum along a dimension."""
    if operation_name(value) != "expand.default":
        return None
    inner = value.args[0]
    if not isinstance(inner, fx.Node) or operation_name(inner) != "unsqueeze.default":
        return None
    given: Any = inner.args
    part, at = given
    whole = value.meta["val"]
    is_part = part.meta["val"].shape == (*whole.shape[:dim], *whole.shape[dim + 1 :])
    return part if is_part and at % whole.ndim == dim and part.meta["val"].dtype == whole.dtype else None


def _like(node: fx.Node, function: Any, *arguments: Any) -> fx.Node:
    made = node.graph.call_function(function, arguments)
    made.meta["val"] = node.meta["val"]
    return made
