"""Operations that a step makes twice on the same tensors, as an energy and its gradient do, made once."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from torch import Tensor, fx

from .trace import drop_unread


def merge_alike(graph: fx.Graph) -> None:
    """Leave of operations that are alike the first. They are functions of their arguments: no trace writes in place."""
    first: dict[Hashable, fx.Node] = {}
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        key = (node.target, _key(node.args), _key(node.kwargs), *_result(node))
        if key in first:
            node.replace_all_uses_with(first[key])
        else:
            first[key] = node
    drop_unread(graph)


def _result(node: fx.Node) -> tuple[Hashable, ...]:
    """What lowering may know of a node beside its arguments: what a tensor is filled with, and its form."""
    value = node.meta.get("val")
    form = (tuple(value.shape), value.dtype) if isinstance(value, Tensor) else None
    return _key(node.meta.get("fill")), form


def _key(argument: Any) -> Hashable:
    """What tells arguments apart: 1, 1.0 and True are three, as are 0.0 and -0.0."""
    if isinstance(argument, fx.Node):
        return argument
    if isinstance(argument, (list, tuple)):
        return tuple(map(_key, argument))
    if isinstance(argument, dict):
        return tuple((name, _key(value)) for name, value in sorted(argument.items()))
    return type(argument), repr(argument)
