"""The randomized midpoint method for underdamped Langevin."""

from __future__ import annotations

import torch
from torch import Tensor

from ..brownian.increment import Increment, Needs
from ..sde.base import BaseSDE, Time
from ..sde.terms import Term
from ..sde.underdamped import UnderdampedLangevin, split
from .base import Integrator
from .free_flow import free_flow, random_time


class RandomizedMidpoint(Integrator):
    """X_m = X + c(τh)V - ((τh - c(τh))/γ)u∇f(X) + N_m,  X' = X + c(h)V - hc((1 - τ)h)u∇f(X_m) + N_X,
    V' = ηV - he^(-γ(1 - τ)h)u∇f(X_m) + N_V,  τ uniform on (0, 1), one a particle,  c(t) = (1 - e^(-γt))/γ, η = e^(-γh).

    The force's integral over the step is estimated without bias at one random time, where Cheng's scheme says the
    particle is. (N_m, N_X, N_V) is the free flow's noise at τh and h: of W and H, and of a third normal for what those
    leave open within.

    Two gradients a step. Strong order 1.5. The law errs by O(h³): a step's mean over τ is right up to O(h⁴), and the
    variance over τ is O(h⁴). Pick it where ∇f is Lipschitz and no more is known: its bound needs no smooth Hessian, W₂
    error ε in O(ε^(-2/3)) gradients. UBU(randomized=True) leaves out the gradient at X. Shen and Lee (2019).
    """

    name = "randomized-midpoint"
    strong_order = 1.5
    strong_order_additive = 1.5
    law_order = 3.0
    serves = (UnderdampedLangevin,)
    needs = Needs.INCREMENT | Needs.SPACE_TIME_AREA | Needs.BETWEEN | Needs.UNIFORM
    gradients_per_step = 2

    def step(self, sde: BaseSDE, t: Time, state: Tensor, increment: Increment) -> Tensor:
        assert isinstance(sde, UnderdampedLangevin)
        assert increment.H is not None
        assert increment.Z is not None
        assert increment.u is not None
        h, u, tau, left = increment.dt, sde.u, increment.u, 1.0 - increment.u
        flow, at = free_flow(sde.friction, u, h), random_time(sde.friction, u, h)
        x, v = split(state)
        noise_x, noise_v = flow.noise(increment.W, increment.H)
        free = x + at.reach(tau) * v + at.noise(tau, noise_x, noise_v, increment.Z)
        kick = sde.gradient(free - u * at.fall(tau) * sde.gradient(x)) * (-h * u)
        moved = x + noise_x + Term(flow.c, v) + at.reach(left) * kick
        return torch.cat((moved, noise_v + Term(flow.eta, v) + at.decay(left) * kick), -1)
