"""Terms of a step: a tensor times a number, multiplied out only where it is added."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Term:
    """factor·tensor. So x + h·b is one pass over memory and not two: in a loop of cheap gradients they count."""

    factor: float
    tensor: Tensor

    def __rmul__(self, number: float) -> Term:
        return Term(number * self.factor, self.tensor)


def plus(x: Tensor, *terms: Term) -> Tensor:
    """x + Σ terms, a new tensor: the only one that is made, where each + would make another."""
    first, *others = terms
    return add_(torch.add(x, first.tensor, alpha=first.factor), *others)


def add_(total: Tensor, *terms: Term) -> Tensor:
    """The same, written over ``total``: a tensor that the scheme itself has just made."""
    for term in terms:
        total.add_(term.tensor, alpha=term.factor)
    return total
