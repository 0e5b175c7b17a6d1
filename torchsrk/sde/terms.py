"""Terms of a step: a tensor times a number, multiplied out only where it is added."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor


class Term:
    """factor·tensor. So x + h * b is one pass over memory and not two: in a loop of cheap gradients they count."""

    __slots__ = ("factor", "tensor")

    def __init__(self, factor: float, tensor: Tensor) -> None:
        self.factor, self.tensor = factor, tensor

    def __rmul__(self, number: float) -> Term:
        return Term(number * self.factor, self.tensor) if isinstance(number, (int, float)) else NotImplemented

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # x + term. By __radd__ torch would first write, at each addition, the error that it does not know terms.
        if function is not Tensor.add or kwargs or not isinstance(args[0], Tensor):
            return NotImplemented
        x, term = args
        return torch.add(x, term.tensor, alpha=term.factor)

    if TYPE_CHECKING:

        def __radd__(self, x: Tensor) -> Tensor: ...


def plus(x: Tensor, *terms: Term) -> Tensor:
    """x + Σ terms, a new tensor: the only one that is made, where each + would make another."""
    first, *others = terms
    total = torch.add(x, first.tensor, alpha=first.factor)
    return add_(total, *others) if others else total


def add_(total: Tensor, *terms: Term) -> Tensor:
    """The same, written over ``total``: a tensor that the scheme itself has just made."""
    for term in terms:
        total.add_(term.tensor, alpha=term.factor)
    return total
