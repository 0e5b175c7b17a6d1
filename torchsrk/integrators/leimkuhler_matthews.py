"""Leimkuhler-Matthews: a law of order two from one gradient."""

from __future__ import annotations

from torch import Tensor

from ..brownian.increment import Increment, Needs
from ..sde.base import BaseSDE, Time
from .base import Integrator


class LeimkuhlerMatthews(Integrator):
    """X' = X + h b(X + ½σW) + σW, and the position reported is X + ½σW with the next step's W.

    One drift a step. On a Langevin diffusion the law of the positions at stationarity is off by O(h²), and on a
    Gaussian target by nothing at all. The law of the states X is off by O(h), and paths have strong order 1. Pick it to
    sample when a gradient is what costs: of the overdamped schemes here without rejections none has a smaller bias at
    equal cost. Leimkuhler and Matthews (2013), in the form of Vilmart (2015), where the state is a Markov chain and the
    position is made from it.

    A time-dependent drift is met at t.
    """

    name = "lm"
    strong_order = 1.0
    strong_order_additive = 1.0
    law_order = 2.0
    noise_types = ("additive",)
    needs = Needs.INCREMENT
    position_needs = Needs.INCREMENT
    gradients_per_step = 1

    def step(self, sde: BaseSDE, t: Time, x: Tensor, increment: Increment) -> Tensor:
        h, W = increment.dt, increment.W
        noise = sde.noise_at(t, x)
        return x + noise(W) + h * sde.drift_at(t, x + 0.5 * noise(W))

    def position(self, sde: BaseSDE, t: Time, state: Tensor, increment: Increment | None) -> Tensor:
        assert increment is not None
        return sde.position(state + 0.5 * sde.noise_at(t, state)(increment.W))
