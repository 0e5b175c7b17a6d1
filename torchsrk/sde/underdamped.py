"""Underdamped (kinetic) Langevin diffusion."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..brownian.increment import asked_for
from ..potentials.base import Potential
from .base import BaseSDE, Normals, Time
from .langevin import check_potential, checked_gradient
from .noise_types import noise_type_named
from .terms import Term


class UnderdampedLangevin(BaseSDE):
    """dQ = V dt,  dV = -γV dt - u∇f(Q) dt + √(2γu) dB: the law of Q converges to the density exp(-f).

    Its state is (q, v), (..., 2·dim); what is given and reported are positions q. A run starts with velocities from
    their law, N(0, u·I). Schemes of its own take one gradient a step; those for additive noise serve it as well.

    Args:
        potential: the energy f.
        friction: γ. About 1.5 to 2 times the square root of u and the least curvature reaches a target soonest.
        u: the inverse mass.
    """

    noise_varies = False

    def __init__(self, potential: Potential, *, friction: float, u: float = 1.0) -> None:
        super().__init__()
        check_potential(potential)
        for name, value in (("friction", friction), ("u", u)):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 < value < math.inf:
                raise ValueError(f"{name} is a positive number; got {value!r}")
        self.noise = noise_type_named("additive")
        self.potential = potential
        self.dim = potential.dim
        self.friction, self.u = float(friction), float(u)

    def start(self, x: Tensor, normals: Normals) -> Tensor:
        return torch.cat((x, math.sqrt(self.u) * normals(x)), -1)

    def position(self, state: Tensor) -> Tensor:
        return split(state)[0]

    def brownian_dim(self, x: Tensor) -> int:
        return x.shape[-1]

    def gradient(self, q: Tensor) -> Tensor:
        """∇f, (..., dim)."""
        return checked_gradient(self.potential, q)

    def drift(self, t: Time, state: Tensor) -> Tensor:
        q, v = split(state)
        return torch.cat((v, -self.friction * v - self.u * self.gradient(q)), -1)

    def sigma(self, t: Time, state: Tensor) -> Tensor:
        dim = state.shape[-1] // 2
        identity = torch.eye(dim, dtype=state.dtype, device=state.device)
        return torch.cat((torch.zeros_like(identity), self._scale * identity))

    def noise_at(self, t: Time, state: Tensor) -> Callable[[Tensor], Term]:
        return lambda v: Term(self._scale, torch.cat((torch.zeros_like(asked_for(v)), v), -1))

    @property
    def _scale(self) -> float:
        return math.sqrt(2.0 * self.friction * self.u)

    def extra_repr(self) -> str:
        return f"friction={self.friction:g}, u={self.u:g}"


def split(state: Tensor) -> tuple[Tensor, Tensor]:
    """Position and velocity, (..., dim) each."""
    dim = state.shape[-1] // 2
    return state[..., :dim], state[..., dim:]
