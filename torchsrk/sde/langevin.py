"""Overdamped Langevin diffusion."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..potentials.base import Potential
from .base import BaseSDE, Time, check_output
from .noise_types import noise_type_named

_SQRT2 = math.sqrt(2.0)


class Langevin(BaseSDE):
    """dX = -∇f(X) dt + √2 dB: its law converges to the density exp(-f)."""

    noise_varies = False

    def __init__(self, potential: Potential) -> None:
        super().__init__()
        check_potential(potential)
        self.noise = noise_type_named("additive")
        self.potential = potential
        self.dim = potential.dim

    def drift(self, t: Time, x: Tensor) -> Tensor:
        return -self._grad(x)

    def sigma(self, t: Time, x: Tensor) -> Tensor:
        return x.new_full((), _SQRT2)

    # What follows saves passes over memory, for the sign and the factor √2: in a loop of cheap gradients they count.

    def add_drift_(self, y: Tensor, t: Time, x: Tensor, scale: float) -> Tensor:
        return y.add_(self._grad(x), alpha=-scale)

    def plus_noise(self, y: Tensor, t: Time, x: Tensor, v: Tensor, scale: float = 1.0) -> Tensor:
        return torch.add(y, v, alpha=_SQRT2 * scale)

    def add_noise_(self, y: Tensor, t: Time, x: Tensor, v: Tensor, scale: float = 1.0) -> Tensor:
        return y.add_(v, alpha=_SQRT2 * scale)

    def _grad(self, x: Tensor) -> Tensor:
        value = self.potential.grad(x)
        valid = isinstance(value, Tensor) and value.shape == x.shape
        check_output(value, x, valid=valid, what="the potential's grad", expected="the shape of x")
        return value


def check_potential(potential: object) -> None:
    """One clear error for what is not a Potential."""
    if not isinstance(potential, Potential):
        raise TypeError(
            f"expected a Potential; got {type(potential).__name__}. FunctionPotential wraps an energy function or "
            "network, DistributionPotential a torch distribution."
        )
