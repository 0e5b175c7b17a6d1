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
_FACTORS = {"mm.default": ("self", "mat2"), "addmm.default": ("mat1", "mat2")}


def fuse_into_products(graph: fx.Graph, of_state: set[fx.Node], fixed: bool) -> None:
    """Rewrite ``a @ b + row`` and ``(a * row) @ b``, where the row is the same for all particles.

    Args:
        of_state: what depends on the state, or has a row for each particle.
        fixed: tensors that do not are the same at all steps: to scale weights anew for each would not pay.
    """
    for node in list(graph.nodes):
        if operation_name(node) == "add.Tensor":
            _start_from_row(node, of_state)
        elif fixed and operation_name(node) in _FACTORS:
            _scale_weights(node, of_state)
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


def _scale_weights(node: fx.Node, of_state: set[fx.Node]) -> None:
    call, (left_name, weights_name) = Call(node), _FACTORS[operation_name(node) or ""]
    left, weights = call[left_name], call[weights_name]
    if weights in of_state or not _is_read_once(left) or operation_name(left) != "mul.Tensor":
        return
    factors = Call(left)
    for kept, row in ((factors["self"], factors["other"]), (factors["other"], factors["self"])):
        if _is_row(row, weights.meta["val"].shape[0], left, of_state) and _is_as_large(kept, left):
            with node.graph.inserting_before(node):
                column = _made(node.graph, aten.unsqueeze.default, (row, 1), row.meta["val"].unsqueeze(1))
                scaled = _made(node.graph, aten.mul.Tensor, (weights, column), weights.meta["val"])
            node.args = tuple(
                kept if argument is left else scaled if argument is weights else argument for argument in node.args
            )
            return


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
