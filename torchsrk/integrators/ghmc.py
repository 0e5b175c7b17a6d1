"""GHMC: OBABO with its leapfrog step accepted or turned back, so that its law is the target's."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..brownian.increment import Increment, Needs
from ..sde.base import BaseSDE, Normals, Time
from ..sde.terms import Term
from ..sde.underdamped import UnderdampedLangevin
from .base import Integrator
from .obabo import half_friction


class GHMC(Integrator):
    """O(h/2), then (X', V') = BAB(X, V) with probability min(1, e^(-ΔH)) and (X, -V) otherwise, then O(h/2).

    Generalized Hamiltonian Monte Carlo: B, A and O as in OBABO, and ΔH = f(X') - f(X) + (‖V'‖² - ‖V‖²)/(2u) the energy
    error of the leapfrog step. Every move keeps the target, so its law at stationarity is exact at every h; where an
    energy is not finite the particle turns back. A rejection reverses the velocity, so take h small enough that nearly
    all are accepted: with friction near √(u·least curvature), 0.9 and more.

    Start inside the bulk, or with small steps: out where h is too long for the curvature, every step is rejected, and a
    particle stays where it is.

    One gradient a step and one energy; the state is (X, V, ∇f(X), f(X), steps accepted). No strong order: a path does
    not decide what is accepted. Pick it where the bias must be 0. Horowitz (1991).
    """

    name = "ghmc"
    law_order = math.inf
    serves = (UnderdampedLangevin,)
    needs = Needs.INCREMENT | Needs.SPACE_TIME_AREA | Needs.UNIFORM
    differentiable = False
    gradients_per_step = 1

    def init(self, sde: BaseSDE, t: Time, x: Tensor, dt: float, normals: Normals) -> Tensor:
        assert isinstance(sde, UnderdampedLangevin)
        energy = sde.potential(x).unsqueeze(-1)
        return torch.cat((sde.start(x, normals), sde.gradient(x), energy, torch.zeros_like(energy)), -1)

    def step(self, sde: BaseSDE, t: Time, state: Tensor, increment: Increment) -> Tensor:
        assert isinstance(sde, UnderdampedLangevin)
        assert increment.u is not None
        h, u, dim = increment.dt, sde.u, state.shape[-1] // 3
        x, v, force = state[..., :dim], state[..., dim : 2 * dim], state[..., 2 * dim : 3 * dim]
        energy, accepted = state[..., 3 * dim : 3 * dim + 1], state[..., 3 * dim + 1 :]
        v = half_friction(sde, v, increment, sign=1.0)
        kicked = v + Term(-0.5 * h * u, force)
        new_x = x + Term(h, kicked)
        new_force, new_energy = sde.gradient(new_x), sde.potential(new_x).unsqueeze(-1)
        new_v = kicked + Term(-0.5 * h * u, new_force)
        kinetic = (new_v.square() - v.square()).sum(-1, keepdim=True)
        error = new_energy - energy + Term(0.5 / u, kinetic)
        # An error of -∞ is as little of an energy as one of +∞; comparisons with NaN are false.
        accept = (torch.exp(-error) > increment.u) & ~torch.isinf(error)
        v = half_friction(sde, torch.where(accept, new_v, -v), increment, sign=-1.0)
        kept = (
            torch.where(accept, new, old)
            for new, old in ((new_force, force), (new_energy, energy), (accepted + 1.0, accepted))
        )
        return torch.cat((torch.where(accept, new_x, x), v, *kept), -1)

    def position(self, sde: BaseSDE, t: Time, state: Tensor, increment: Increment | None) -> Tensor:
        return state[..., : state.shape[-1] // 3]

    def tallies(self, state: Tensor) -> dict[str, Tensor]:
        return {"acceptance": state[..., -1]}
