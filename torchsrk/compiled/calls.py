"""An operation of a graph and its arguments, by the names its schema gives them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import fx

T = TypeVar("T")

# What says where a result is kept, and of which dtype it is: not its values, and the dtype is the result's own.
_LAYOUT = {"memory_format", "layout", "device", "pin_memory", "non_blocking", "implicit", "dtype"}


class Call:
    """One call of one of aten's operations.

    A rule reads the arguments it understands. Those that it does not read must be at their defaults, so that no
    overload and no option is ever dropped without a word: see ``unread``.
    """

    def __init__(self, node: fx.Node) -> None:
        schema = node.target._schema  # type: ignore[union-attr]
        self.node = node
        self._given = {
            **dict(zip((argument.name for argument in schema.arguments), node.args, strict=False)),
            **node.kwargs,
        }
        self._defaults = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
        self._read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self._read.add(name)
        return self._given[name] if name in self._given else self._defaults[name]

    def get(self, name: str) -> Any:
        """The argument, or None where this overload has none of that name."""
        return self[name] if name in self._given or name in self._defaults else None

    def unread(self) -> list[str]:
        """The arguments that differ from their defaults and that nobody has read."""
        return [
            f"{name}={value}"
            for name, value in self._given.items()
            if name not in self._read and name not in _LAYOUT and not self._is_default(name, value)
        ]

    def _is_default(self, name: str, value: Any) -> bool:
        if name not in self._defaults or isinstance(value, fx.Node):
            return False
        return bool(value == self._defaults[name])


def operation_name(node: fx.Node) -> str | None:
    """aten's name of the operation with its overload, such as "add.Tensor"; None if it is not one of aten's."""
    return _name(node.target) if node.op == "call_function" else None


def by_identity(function: Callable[[Any], T]) -> Callable[[Any], T]:
    """A function of an operation that remembers what it has found: as ``functools.cache``, but that asks operations for
    their hash, in Python, tens of thousands of times in a long trace."""
    known: dict[int, tuple[Any, T]] = {}  # with the operation itself, so that no other one gets its id

    @wraps(function)
    def remembered(operation: Any) -> T:
        found = known.get(id(operation))
        if found is None:
            found = known[id(operation)] = operation, function(operation)
        return found[1]

    return remembered


@by_identity
def _name(target: Any) -> str | None:
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return None
    return f"{target._schema.name.removeprefix('aten::')}.{target._overloadname}"
