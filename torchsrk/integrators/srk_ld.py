"""SRK-LD: the stochastic Runge-Kutta scheme of order 1.5 for additive noise."""

from __future__ import annotations

import math

from torch import Tensor

from ..brownian.increment import Increment, Needs
from ..sde.base import BaseSDE, Time
from ..sde.terms import add_, plus
from .additive import plus_noise
from .base import Integrator

_PLUS = 0.5 + 1.0 / math.sqrt(6.0)
_MINUS = 0.5 - 1.0 / math.sqrt(6.0)


class SRKLD(Integrator):
    """H₁ = X + σ((½ + 1/√6)W + H),  H₂ = X + h b(X) + σ((½ - 1/√6)W + H),  X' = X + h(b(H₁) + b(H₂))/2 + σW.

    Here H is the path's space-time area: the paper's two normals are ξ = W/√h and η = √12 H/√h. Three drifts a step
    (SRA1 has the same strong order with two). Strong order 1.5; local deviation orders (2, 2.5). On a strongly convex
    potential it reaches W₂ error ε in O(ε^(-2/3)) steps where Euler-Maruyama takes O(1/ε). Pick it to sample smooth
    densities with few, large steps. Eq. srk of the paper.

    A time-dependent drift is met at times t, t and t + h, as if time were one more component of the state. Where σ
    depends on time, σ(t)(W/2 + H) + σ(t + h)(W/2 - H) takes the place of σW in X': that is ∫σ dB for a σ linear in
    time, and for others up to O(h^2.5). The stages have σ(t).
    """

    name = "srk-ld"
    strong_order = 1.5
    strong_order_additive = 1.5
    law_order = 2.0
    noise_types = ("additive",)
    needs = Needs.INCREMENT | Needs.SPACE_TIME_AREA
    gradients_per_step = 3

    def step(self, sde: BaseSDE, t: Time, x: Tensor, increment: Increment) -> Tensor:
        h, W, H = increment.dt, increment.W, increment.H
        assert H is not None
        noise = sde.noise_at(t, x)
        base = plus(x, noise(H))
        second = add_(plus(base, _MINUS * noise(W)), h * sde.drift_at(t, x))
        first = add_(base, _PLUS * noise(W))
        moved = plus_noise(sde, t, x, noise, increment)
        add_(moved, 0.5 * h * sde.drift_at(t, first))
        return add_(moved, 0.5 * h * sde.drift_at(t + h, second))
