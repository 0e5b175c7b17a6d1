"""Terms of a step: a tensor times a number, multiplied out only where it is added."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Term:
    """factor·tensor. So x + h * b is one pass over memory and not two: in a loop of cheap gradients they count."""

    factor: float
    tensor: Tensor

    def __rmul__(self, number: float) -> Term:
        return Term(number * self.factor, self.tensor)

    def __radd__(self, x: Tensor) -> Tensor:
        return torch.add(x, self.tensor, alpha=self.factor)
