"""What is done to a matrix product's rows just before or after it, made a part of the product.

A loop over an activation waits for its longest chain of operations, with as many entries under way as the processor
keeps in view: every operation that leaves the loop makes it shorter, where the product does it for nothing. A bias is
what its sums start from, and factors of its terms are in its weights.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from .calls import Call, operation_name
from .trace import drop_unread

aten = torch.ops.aten
_SPREADS = {"expand", "unsqueeze", "view", "alias"}
_FACTORS = {"mm.default": ("self", "mat2"), "addmm.default": ("mat1", "mat2")}


def fuse_into_products(graph: fx.Graph, of_state: set[fx.Node], fixed: bool, one_copy: bool) -> None:
    """Rewrite ``a @ b + row`` and ``(a * row * ...) @ b``, where the row is the same for all particles.

    Args:
        of_state: what depends on the state, or has a row for each particle.
        fixed: tensors that do not are the same at all steps: to scale weights anew for each would not pay.
        one_copy: weights stay as they are, and rows leave the product for the loop before it: a chain on its own waits
            for its weights more than for anything else, and those of a layer are read by two products.
    """
    for node in list(graph.nodes):
        if operation_name(node) == "add.Tensor":
            _start_from_row(node, of_state)
        elif fixed and operation_name(node) in _FACTORS:
            _take_row_out(node, of_state, one_copy)
    drop_unread(graph)


def _start_from_row(node: fx.Node, of_state: set[fx.Node]) -> None:
    call = Call(node)
    for product, row in ((call["self"], call["other"]), (call["other"], call["self"])):
        if (
            call.get("alpha") in (None, 1)
            and _is_read_once(product)
            and operation_name(product) == "mm.default"
            and _is_row(row, product.meta["val"].shape[-1], product, of_state)
        ):
            factors = Call(product)
            with node.graph.inserting_before(node):
                arguments = (row, factors["self"], factors["mat2"])
                _replace(node, node.graph.call_function(aten.addmm.default, arguments), of_state)
            return


def _take_row_out(node: fx.Node, of_state: set[fx.Node], one_copy: bool) -> None:
    """Make a row that is a factor of a product's terms a part of the weights or, with one copy, a factor of its own."""
    call, (left_name, weights_name) = Call(node), _FACTORS[operation_name(node) or ""]
    left, weights = call[left_name], call[weights_name]
    if weights in of_state or left not in node.args or weights not in node.args:  # both are replaced, or none
        return
    found = _without_row(left, of_state)
    if found is None:
        return
    row, rest = found
    with node.graph.inserting_before(node):
        if one_copy:
            replaced = {left: _made(node.graph, aten.mul.Tensor, (rest, row), left.meta["val"])}
            of_state.add(replaced[left])
        else:
            column = _made(node.graph, aten.unsqueeze.default, (row, 1), row.meta["val"].unsqueeze(1))
            scaled = _made(node.graph, aten.mul.Tensor, (weights, column), weights.meta["val"])
            replaced = {left: rest, weights: scaled}
    node.args = tuple(replaced.get(argument, argument) for argument in node.args)


def _without_row(node: Any, of_state: set[fx.Node]) -> tuple[fx.Node, fx.Node] | None:
    """A row that is a factor of a node, or of one of its factors, and what is left without it."""
    if not _is_read_once(node) or operation_name(node) != "mul.Tensor":
        return None
    call = Call(node)
    pairs = [
        (kept, other)
        for kept, other in ((call["self"], call["other"]), (call["other"], call["self"]))
        if _is_as_large(kept, node)
    ]
    for kept, other in pairs:
        row = _as_row(other, node, of_state)
        if row is not None:
            return row, kept
    for kept, other in pairs:
        found = _without_row(kept, of_state)
        if found is not None:
            row, rest = found
            with node.graph.inserting_before(node):
                rest = _made(node.graph, aten.mul.Tensor, (rest, other), node.meta["val"])
            of_state.add(rest)
            return row, rest
    return None


def _as_row(argument: Any, like: fx.Node, of_state: set[fx.Node]) -> fx.Node | None:
    """A row that all particles share; also one that each has by a product with 1, as the last layer's derivative is."""
    entries = like.meta["val"].shape[-1]
    if _is_row(argument, entries, like, of_state):
        return argument
    if not isinstance(argument, fx.Node) or operation_name(argument) != "mm.default":
        return None
    call = Call(argument)
    right = call["mat2"]
    if right in of_state or right.meta["val"].shape != (1, entries) or not _is_one(call["self"]):
        return None
    with like.graph.inserting_before(like):
        return _made(like.graph, aten.select.int, (right, 0, 0), right.meta["val"].select(0, 0))


def _is_one(node: Any) -> bool:
    """Whether all entries are 1 whatever the step size: another number might be made of it."""
    while isinstance(node, fx.Node) and (operation_name(node) or "").partition(".")[0] in _SPREADS:
        node = node.args[0]
    return isinstance(node, fx.Node) and node.meta.get("fill") == 1.0


def _is_row(argument: Any, entries: int, like: fx.Node, of_state: set[fx.Node]) -> bool:
    """Whether an argument has one number for each entry of a row, the same for all particles."""
    value = argument.meta.get("val") if isinstance(argument, fx.Node) and argument not in of_state else None
    return isinstance(value, Tensor) and value.shape == (entries,) and value.dtype == like.meta["val"].dtype


def _is_read_once(argument: Any) -> bool:
    return isinstance(argument, fx.Node) and len(argument.users) == 1


def _is_as_large(argument: Any, other: fx.Node) -> bool:
    value = argument.meta.get("val") if isinstance(argument, fx.Node) else None
    result = other.meta["val"]
    return isinstance(value, Tensor) and value.shape == result.shape and value.dtype == result.dtype


def _replace(node: fx.Node, made: fx.Node, of_state: set[fx.Node]) -> None:
    made.meta.update(node.meta)
    of_state.add(made)
    node.replace_all_uses_with(made)


def _made(graph: fx.Graph, function: Any, arguments: tuple[Any, ...], value: Tensor) -> fx.Node:
    node = graph.call_function(function, arguments)
    node.meta["val"] = value
    return node
