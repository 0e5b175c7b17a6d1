"""Euler-Maruyama."""

from __future__ import annotations

from torch import Tensor

from ..brownian.increment import Increment, Needs
from ..sde.base import BaseSDE, Time
from ..sde.terms import add_, plus
from .base import EVERY_NOISE, Integrator


class EulerMaruyama(Integrator):
    """X' = X + h b(X) + σ(X) W.

    One drift a step. Strong order ½, and 1 for additive noise. On a Langevin diffusion this is the unadjusted Langevin
    algorithm: at step h its invariant law is off by O(h). Pick it where a gradient is dear and accuracy is not, or as
    the baseline. Eq. em_general of the paper.
    """

    name = "em"
    strong_order = 0.5
    strong_order_additive = 1.0
    law_order = 1.0
    noise_types = EVERY_NOISE
    needs = Needs.INCREMENT
    gradients_per_step = 1

    def step(self, sde: BaseSDE, t: Time, x: Tensor, increment: Increment) -> Tensor:
        h, W = increment.dt, increment.W
        moved = plus(x, sde.noise_at(t, x)(W))
        return add_(moved, h * sde.drift_at(t, x))
