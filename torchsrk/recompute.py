"""Memory for time: a piece of a computation whose insides are computed again in the backward pass.

Not ``torch.utils.checkpoint``: it makes every backward pass *within* the piece, such as that of a potential's gradient,
compute the piece anew from its start, and keeps what it computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

Piece = Callable[[Tensor], tuple[Tensor, ...]]


def recomputed(piece: Piece, x: Tensor) -> tuple[Tensor, ...]:
    """piece(x), with gradients to x and to whatever else the piece reads, and none of its insides kept.

    The piece must give the same when called again.
    """
    if not torch.is_grad_enabled():
        return piece(x)
    with torch.no_grad(), _TensorsFromOutside() as outside:
        values = piece(x)
    return _Recomputed.apply(piece, values, x, *outside.found(x))


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, piece: Piece, values: tuple[Tensor, ...], x: Tensor, *outside: Tensor) -> tuple[Tensor, ...]:
        ctx.piece = piece
        ctx.save_for_backward(x, *outside)
        return tuple(value.view_as(value) for value in values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "what is recomputed can be differentiated once: with create_graph=True, solve with recompute=False"
            )
        x, *outside = ctx.saved_tensors
        start = x.detach().requires_grad_()
        with torch.enable_grad(), torch.autocast(x.device.type, enabled=False):
            values = ctx.piece(start)
            able = [k for k, value in enumerate(values) if value.requires_grad]
            outputs, slopes = [values[k] for k in able], [gradients[k] for k in able]
            found = torch.autograd.grad(outputs, (start, *outside), slopes, allow_unused=True)
        return (None, None, *found)


class _TensorsFromOutside(TorchFunctionMode):
    """Notes which tensors that need a gradient are read within and were not made there."""

    def __init__(self) -> None:
        super().__init__()
        self._made: WeakValueDictionary[int, Tensor] = WeakValueDictionary()
        self._read: dict[int, Tensor] = {}

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for value in tree_leaves((args, kwargs)):
            if isinstance(value, Tensor) and _needs_gradient(value) and self._made.get(id(value)) is not value:
                self._read[id(value)] = value
        result = function(*args, **(kwargs or {}))
        for value in tree_leaves(result):
            if isinstance(value, Tensor) and id(value) not in self._read:
                self._made[id(value)] = value
        return result

    def found(self, x: Tensor) -> list[Tensor]:
        """All but x."""
        return [value for value in self._read.values() if value is not x]


def _needs_gradient(value: Tensor) -> bool:
    # What torch.func's transformations wrap is theirs to differentiate; it can't be met outside them.
    return not torch._C._functorch.is_functorch_wrapped_tensor(value) and value.requires_grad
