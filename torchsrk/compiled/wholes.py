"""Whole numbers that a step computes with: they are kept in a REAL, so none may be larger than one holds exactly."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import fx

from .calls import operation_name

# The largest whole number below which a REAL holds all of them.
EXACT = {torch.float32: 2**24, torch.float64: 2**53}
_DEEPEST = 50


def may_compute(node: fx.Node, dtype: torch.dtype) -> bool:
    """Whether an operation on whole numbers gives exactly torch's, in a REAL of that dtype."""
    if operation_name(node) not in _COMPUTES:
        return False
    largest = _largest(node, EXACT[dtype], _DEEPEST)
    return largest is not None and largest <= EXACT[dtype]


def _largest(argument: object, given: int, depth: int) -> int | None:
    """A bound of the absolute value of a whole number, ``given`` being that of data; None if none is known."""
    if isinstance(argument, (bool, int)):
        return abs(int(argument))
    if not isinstance(argument, fx.Node) or not depth:
        return None
    node = argument
    if node.target is not None and getattr(node.target, "__name__", "") == "getitem":
        source, place = node.args
        assert isinstance(source, fx.Node)
        dims = source.args[0].meta["val"].shape if source.args and isinstance(source.args[0], fx.Node) else ()
        return max(dims, default=1) if operation_name(source) in _WITH_PLACES and place == 1 else None
    name = operation_name(node) or ""
    if node.op == "placeholder":
        return given
    if isinstance(node.meta.get("fill"), (bool, int, float)):
        return abs(int(node.meta["fill"]))
    if node.meta["val"].dtype == torch.bool:
        return 1
    if name in _COUNTS:
        bounds = node.args[0] if name.startswith("searchsorted") else node.args[1]
        return bounds.meta["val"].numel() if isinstance(bounds, fx.Node) else None
    if name in _PLACES:
        return max(node.args[0].meta["val"].shape, default=1) if isinstance(node.args[0], fx.Node) else None
    if name in _SUMS and isinstance(node.args[0], fx.Node):
        largest = _largest(node.args[0], given, depth - 1)
        added = node.args[0].meta["val"].numel() // max(1, node.meta["val"].numel())
        return None if largest is None else added * largest
    combine = _COMPUTES.get(name)
    if combine is not None and not node.kwargs:
        return combine(*(_largest(part, given, depth - 1) for part in node.args))
    if name in _MOVES:
        return _largest(node.args[0], given, depth - 1)
    return None


def _sum(*parts: int | None) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) == 2 else None


def _product(*parts: int | None) -> int | None:
    first, second = parts if len(parts) == 2 else (None, None)
    return None if first is None or second is None else first * second


def _either(*parts: int | None) -> int | None:
    known = [part for part in parts if part is not None]
    return max(known) if len(known) == len(parts) else None


def _between(*parts: int | None) -> int | None:
    """Of a number and its least and largest."""
    ends = parts[1:]
    return _either(*ends) if len(ends) == 2 and None not in ends else _either(*parts)


def _rest(*parts: int | None) -> int | None:
    """Of a division, which is exact by fmod."""
    return parts[1] if len(parts) == 2 and parts[0] is not None and parts[1] else None


_COMPUTES: dict[str, Callable[..., int | None]] = {
    **dict.fromkeys(("add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar", "rsub.Scalar"), _sum),
    **dict.fromkeys(("mul.Tensor", "mul.Scalar"), _product),
    **dict.fromkeys(("neg.default", "abs.default"), _either),
    **dict.fromkeys(("maximum.default", "minimum.default", "clamp_min.default", "clamp_max.default"), _either),
    "clamp.default": _between,
    "remainder.Scalar": _rest,
}
_COUNTS = {"searchsorted.Tensor", "bucketize.Tensor"}
_SUMS = {"sum.default", "sum.dim_IntList"}
_PLACES = {"argmax.default", "argmin.default"}
_WITH_PLACES = {"max.dim", "min.dim", "sort.default", "sort.stable", "topk.default"}
_MOVES = {
    *("unsqueeze.default", "squeeze.dim", "squeeze.dims", "view.default", "expand.default", "select.int"),
    *("slice.Tensor", "clone.default", "alias.default", "detach.default", "permute.default", "transpose.int"),
    *("unsqueeze_copy.default", "view_copy.default", "expand_copy.default", "select_copy.int", "slice_copy.Tensor"),
}
