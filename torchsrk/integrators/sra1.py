"""SRA1: strong order 1.5 for additive noise from two drifts."""

from __future__ import annotations

from torch import Tensor

from ..brownian.increment import Increment, Needs
from ..sde.base import BaseSDE, Time
from .additive import plus_noise
from .base import Integrator


class SRA1(Integrator):
    """Y = X + ¾h b(X) + (3/2)σ(W/2 + H),  X' = X + h(b(X)/3 + 2b(Y)/3) + σW.

    H is the path's space-time area. Two drifts a step. Strong order 1.5, and at stationarity the law is off by O(h²);
    on a linear drift the step is SRK-LD's exactly, at two thirds of the price. Pick it where SRK-LD would be picked
    and gradients are what costs. Rößler (2010), as SRA1.

    A time-dependent drift is met at t and t + ¾h. Where σ depends on time, ∫σ dB is taken as in SRK-LD, and the stage
    has σ(t).
    """

    name = "sra1"
    strong_order = 1.5
    strong_order_additive = 1.5
    law_order = 2.0
    noise_types = ("additive",)
    needs = Needs.INCREMENT | Needs.SPACE_TIME_AREA
    gradients_per_step = 2

    def step(self, sde: BaseSDE, t: Time, x: Tensor, increment: Increment) -> Tensor:
        h, W, H = increment.dt, increment.W, increment.H
        assert H is not None
        noise, drift = sde.noise_at(t, x), sde.drift_at(t, x)
        stage = x + noise(0.75 * W + 1.5 * H) + 0.75 * h * drift
        moved = plus_noise(sde, t, x, noise, increment) + h / 3.0 * drift
        return moved + 2.0 * h / 3.0 * sde.drift_at(t + 0.75 * h, stage)
