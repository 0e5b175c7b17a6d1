"""BAOAB: kicks, drifts and friction, split so that Gaussian positions have their exact law."""

from __future__ import annotations

import torch
from torch import Tensor

from ..brownian.increment import Increment, Needs
from ..derived import exp, expm1, sqrt
from ..sde.base import BaseSDE, Normals, Time
from ..sde.terms import Term
from ..sde.underdamped import UnderdampedLangevin, split
from .base import Integrator


class BAOAB(Integrator):
    """V₁ = V - hu∇f(X),  V' = ηV₁ + √(u(1 - η²)) W/√h,  X' = X + (h/2)(V₁ + V'),  η = e^(-γh).

    BAOAB is half a kick (B), half a drift (A), friction and noise (O), half a drift and half a kick; here the last half
    kick of a step is made together with the first of the next, so no gradient is kept. ``init`` takes half a kick off
    the velocity for that, so the chain of positions is BAOAB's own, and the velocity kept is h/2 of force ahead of it:
    steps have one length.

    One gradient a step. Strong order 1. The law of positions errs by O(h²), and not at all on a Gaussian, up to
    h = 2/√(u·largest curvature), beyond which there is none. The first choice for sampling. Leimkuhler and Matthews
    (2013).
    """

    name = "baoab"
    strong_order = 1.0
    strong_order_additive = 1.0
    law_order = 2.0
    serves = (UnderdampedLangevin,)
    needs = Needs.INCREMENT
    equal_steps = True
    gradients_per_step = 1

    def init(self, sde: BaseSDE, t: Time, x: Tensor, dt: float, normals: Normals) -> Tensor:
        assert isinstance(sde, UnderdampedLangevin)
        start, v = split(sde.start(x, normals))
        return torch.cat((start, v + Term(0.5 * dt * sde.u, sde.gradient(start))), -1)

    def step(self, sde: BaseSDE, t: Time, state: Tensor, increment: Increment) -> Tensor:
        assert isinstance(sde, UnderdampedLangevin)
        h, friction, u = increment.dt, sde.friction, sde.u
        scale = sqrt(-u * expm1(-2.0 * friction * h) / h)
        x, v = split(state)
        kicked = v + Term(-h * u, sde.gradient(x))
        turned = scale * increment.W + Term(exp(-friction * h), kicked)
        return torch.cat((x + Term(0.5 * h, kicked + turned), turned), -1)

    def compose(self, sde: BaseSDE, first: Increment, second: Increment) -> Increment:
        # The noise of friction, by which W is read here, over both steps: ξ ∝ ηξ₁ + ξ₂.
        assert isinstance(sde, UnderdampedLangevin)
        eta = exp(-sde.friction * first.dt)
        W = (eta * first.W + second.W) * sqrt(2.0 / (1.0 + eta * eta))
        return Increment(2.0 * first.dt, W)
