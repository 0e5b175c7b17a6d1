"""The tamed Itô-Taylor scheme of order 1.5, with second and third derivatives."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..brownian.increment import Increment, Needs
from ..derived import sqrt
from ..sde.base import BaseSDE, Time
from ..sde.derivatives import gradient_of_laplacian, hessian_product
from ..sde.langevin import Langevin
from .base import Integrator

_SQRT2 = math.sqrt(2.0)
DRIFT, CORRECTION = 4.0, 2.0  # what terms are bounded by, in units of √h a coordinate


class Tamed(Integrator):
    """X' = X - T₄(h∇f) + T₂((h²/2)(∇²f∇f - ∇Δf)) + √2 W - T₂(√2 h∇²f·(W/2 + H)),  T_r(v) = v/(1 + (v̄/(r√h))⁴)^¼.

    H is the path's space-time area, f and its derivatives are at X, and v̄ is the root of the mean square of a
    particle's coordinates. Strong order 1.5, and at stationarity the law is off by O(h²). One gradient, two Hessian
    products and ∇Δf by autograd: that is dim Hessian products in one batch, differentiated once more. The reference
    point for schemes of this order that ask for gradients alone: SRA1 does on smooth targets what this does. Where
    gradients grow faster than linearly it stays where those explode, though far out it creeps: 4√h a step.

    Without T this is the Itô-Taylor scheme of order 1.5, which Sabanis and Zhang (2018) sample with (Table 1 of the
    paper) and tame, each term by factors of their own. The taming here is not theirs. T_r bounds a term by r√h, so far
    out -T₄(h∇f) outweighs the second term, which points uphill. It changes h∇f by O(h³) and the others by less, which
    leaves strong order 1.5 and the law's order 2 as they are. Lengths are measured by √h, so that a change of units
    (x by c, h by c²) changes nothing, and by a mean over coordinates, so that many of them tame no sooner than one.
    """

    name = "tamed"
    strong_order = 1.5
    strong_order_additive = 1.5
    law_order = 2.0
    noise_types = ("additive",)
    serves = (Langevin,)
    needs = Needs.INCREMENT | Needs.SPACE_TIME_AREA
    gradients_per_step = 1

    def step(self, sde: BaseSDE, t: Time, x: Tensor, increment: Increment) -> Tensor:
        assert isinstance(sde, Langevin)
        h, W, H = increment.dt, increment.W, increment.H
        assert H is not None
        gradient, unit = sde.gradient(x), sqrt(h)
        vectors = torch.stack((gradient, 0.5 * W + H))
        curved, swayed = hessian_product(sde.potential, x.expand_as(vectors), vectors)
        correction = 0.5 * h**2 * (curved - gradient_of_laplacian(sde.potential, x))
        drift = tame(correction, CORRECTION * unit) - tame(h * gradient, DRIFT * unit)
        return x + drift + _SQRT2 * W - tame(_SQRT2 * h * swayed, CORRECTION * unit)


def tame(v: Tensor, limit: float) -> Tensor:
    """v/(1 + s⁴)^¼, s its root mean square over the limit."""
    size = v.square().mean(-1, keepdim=True).sqrt() / limit
    largest = size.clamp_min(1.0)  # taken out of the root: fourth powers overflow early
    return v / (largest * (largest.pow(-4) + (size / largest).pow(4)).pow(0.25))
