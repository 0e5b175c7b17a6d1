"""Overdamped Langevin diffusion."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor

from ..brownian.increment import asked_for
from ..potentials.base import Potential
from .base import BaseSDE, Time, check_output
from .noise_types import noise_type_named
from .terms import Term

_SQRT2 = math.sqrt(2.0)


class Langevin(BaseSDE):
    """dX = -∇f(X) dt + √2 dB: its law converges to the density exp(-f).

    Args:
        potential: the energy f, from points (..., dim) to (...), with its gradient.
    """

    noise_varies = False

    def __init__(self, potential: Potential) -> None:
        super().__init__()
        check_potential(potential)
        self.noise = noise_type_named("additive")
        self.potential = potential
        self.dim = potential.dim

    def brownian_dim(self, x: Tensor) -> int:
        return x.shape[-1]

    def drift(self, t: Time, x: Tensor) -> Tensor:
        return -self.gradient(x)

    def sigma(self, t: Time, x: Tensor) -> Tensor:
        return x.new_full((), _SQRT2)

    def drift_at(self, t: Time, x: Tensor) -> Term:
        return Term(-1.0, self.gradient(x))

    def noise_at(self, t: Time, x: Tensor) -> Callable[[Tensor], Term]:
        return lambda v: Term(_SQRT2, asked_for(v))

    def gradient(self, x: Tensor) -> Tensor:
        """∇f, (..., dim)."""
        return checked_gradient(self.potential, x)


def checked_gradient(potential: Potential, x: Tensor) -> Tensor:
    """∇f, or one clear error if a potential's own grad returned something else."""
    value = potential.grad(x)
    check_gradient(value, x)
    return value


def check_gradient(value: object, x: Tensor) -> None:
    valid = isinstance(value, Tensor) and value.shape == x.shape
    check_output(value, x, valid=valid, what="the potential's grad", expected="the shape of x")


def check_potential(potential: object) -> None:
    """One clear error for what is not a Potential."""
    if not isinstance(potential, Potential):
        raise TypeError(
            f"expected a Potential; got {type(potential).__name__}. FunctionPotential wraps an energy function or "
            "network, DistributionPotential a torch distribution."
        )
