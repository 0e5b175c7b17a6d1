"""Terms of a step: a tensor times a number, multiplied out only where it is added."""

from __future__ import annotations

from typing import Any, overload

import torch
from torch import Tensor
from torch.utils._pytree import tree_map


class Term:
    """factor·tensor. So x + h * b is one pass over memory and not two: in a loop of cheap gradients they count.

    Numbers times a term and terms added up are terms; whatever else is done with one is done with the product.
    """

    __slots__ = ("factor", "tensor")

    def __init__(self, factor: float, tensor: Tensor) -> None:
        self.factor, self.tensor = factor, tensor

    @property
    def product(self) -> Tensor:
        """The tensor that it stands for."""
        return self.factor * self.tensor

    def __rmul__(self, number: float) -> Term:
        return Term(number * self.factor, self.tensor) if isinstance(number, (int, float)) else NotImplemented

    @overload
    def __mul__(self, other: float) -> Term: ...
    @overload
    def __mul__(self, other: Tensor | Term) -> Tensor: ...
    def __mul__(self, other: float | Tensor | Term) -> Term | Tensor:
        return other * self if isinstance(other, (int, float)) else self.product * _multiplied(other)

    @overload
    def __truediv__(self, other: float) -> Term: ...
    @overload
    def __truediv__(self, other: Tensor | Term) -> Tensor: ...
    def __truediv__(self, other: float | Tensor | Term) -> Term | Tensor:
        return (
            Term(self.factor / other, self.tensor)
            if isinstance(other, (int, float))
            else self.product / _multiplied(other)
        )

    def __neg__(self) -> Term:
        return Term(-self.factor, self.tensor)

    @overload
    def __add__(self, other: Term) -> Term: ...
    @overload
    def __add__(self, other: float | Tensor) -> Tensor: ...
    def __add__(self, other: float | Tensor | Term) -> Term | Tensor:
        return Term(1.0, self.product + other) if isinstance(other, Term) else self.product + other

    @overload
    def __sub__(self, other: Term) -> Term: ...
    @overload
    def __sub__(self, other: float | Tensor) -> Tensor: ...
    def __sub__(self, other: float | Tensor | Term) -> Term | Tensor:
        return self + -other

    def __pow__(self, power: float | Tensor) -> Tensor:
        return self.product**power

    def __getitem__(self, index: Any) -> Tensor:
        return self.product[index]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"a Term has no {name}")
        return getattr(self.product, name)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # x + term. By __radd__ torch would first write, at each addition, the error that it does not know terms.
        if (function is Tensor.add or function is Tensor.sub) and not kwargs and isinstance(args[0], Tensor):
            x, term = args
            return torch.add(x, term.tensor, alpha=term.factor if function is Tensor.add else -term.factor)
        args, kwargs = tree_map(_multiplied, (args, kwargs or {}))
        return function(*args, **kwargs)

    def __radd__(self, x: float | Tensor) -> Tensor:
        return x + self.product  # of numbers, as sum begins with: tensors are seen to above

    def __rsub__(self, x: float | Tensor) -> Tensor:
        return x - self.product


def _multiplied(value: Any) -> Any:
    return value.product if isinstance(value, Term) else value


def plus(x: Tensor, *terms: Term) -> Tensor:
    """x + Σ terms, a new tensor: the only one that is made, where each + would make another.

    Args:
        x: (..., width), which is not changed.
        terms: Terms of x's shape.
    """
    first, *others = terms
    total = torch.add(x, first.tensor, alpha=first.factor)
    return add_(total, *others) if others else total


def add_(total: Tensor, *terms: Term) -> Tensor:
    """total + Σ terms, written over ``total``.

    Args:
        total: a tensor that the scheme itself has just made.
        terms: Terms of its shape.
    """
    for term in terms:
        total.add_(term.tensor, alpha=term.factor)
    return total
