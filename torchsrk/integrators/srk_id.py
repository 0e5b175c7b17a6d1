"""SRK-ID: the stochastic Runge-Kutta scheme of order 1.0 for general noise."""

from __future__ import annotations

import torch
from torch import Tensor

from ..brownian.increment import Increment, Needs
from ..derived import sqrt
from ..sde.base import BaseSDE, Time
from ..sde.terms import Term, plus
from .base import EVERY_NOISE, Integrator


class SRKID(Integrator):
    """X' = X + h b(X) + Σ_i σ_i(X) W_i + (√h/2) Σ_i (σ_i(X + D_i) - σ_i(X - D_i)),  D_i = Σ_j σ_j(X) I_(j,i)/√h.

    I_(j,i) are the iterated integrals of the Brownian path, so non-commutative noise (isotropic, general) needs Lévy
    areas. One drift a step, σ once at X, and column i of σ at X ± D_i, all of those in one batch; none for additive
    noise, where the scheme is Euler-Maruyama. No derivative of σ is taken. Strong order 1; local deviation orders
    (1.5, 2). Pick it for state-dependent noise. Rößler (2010); eq. srk_id of the paper, with its σ_l read as σ_j.
    """

    name = "srk-id"
    strong_order = 1.0
    strong_order_additive = 1.0
    law_order = 1.0
    noise_types = EVERY_NOISE
    needs = Needs.INCREMENT | Needs.LEVY_AREA
    gradients_per_step = 1

    def step(self, sde: BaseSDE, t: Time, x: Tensor, increment: Increment) -> Tensor:
        h, W, root = increment.dt, increment.W, sqrt(increment.dt)
        sigma = sde.sigma(t, x)
        moved = plus(x, Term(1.0, sde.noise.product(sigma, W)), h * sde.drift_at(t, x))
        offsets = sde.noise.offsets(sigma, increment)
        if offsets is None:
            return moved
        offsets = offsets / root
        centre = x.unsqueeze(-2) if offsets.ndim > x.ndim else x
        up, down = sde.sum_columns(t, torch.stack((centre + offsets, centre - offsets)))
        return moved.add_(up - down, alpha=0.5 * root)
