"""QUICSORT: underdamped Langevin to strong order 3."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from ..brownian.increment import Increment, Needs
from ..derived import exp, of_step_size
from ..sde.base import BaseSDE, Time
from ..sde.terms import Term
from ..sde.underdamped import UnderdampedLangevin, split
from .base import Integrator
from .free_flow import fall, reach

_EARLY, _LATE = 0.5 - math.sqrt(3.0) / 6.0, 0.5 + math.sqrt(3.0) / 6.0  # the nodes of Gauss's rule of two points

Pair = tuple[float, float]


class QUICSORT(Integrator):
    """X₁ = X + a(l)Ṽ + b(l)w,  X₂ = X + a(r)Ṽ + b(r)w - a(⅓)f₁,  X' = X + a(1)Ṽ + b(1)w - ½(a(r)f₁ + a(l)f₂),
    V' = e^(-γh)Ṽ - ½(e^(-γhr)f₁ + e^(-γhl)f₂) + (a(1)/h)w - ρ(H - 6K),  f_i = hu∇f(X_i).

    Here Ṽ = V + ρ(H + 6K), w = ρ(W - 12K), ρ = √(2γu), l and r = ½ ∓ √3/6, a(s) = (1 - e^(-γhs))/γ and
    b(s) = (e^(-γhs) - 1 + γhs)/(γ²h): the path is replaced by a jump, a straight line and a jump with the same W, H and
    K, and the ordinary differential equation along it is solved by two gradients.

    Two gradients a step. Strong order 3 for smooth f; the law errs by O(h³). The jumps are the same whatever γ is, so
    take γh below 1 or so: far above, velocities are too hot. Pick it where a trajectory must be accurate, or as the
    reference of other schemes. Foster, Lyons and Oberhauser (2021); Scott, O'Kane, Jelinčič and Foster (2025).
    """

    name = "quicsort"
    strong_order = 3.0
    strong_order_additive = 3.0
    law_order = 3.0
    serves = (UnderdampedLangevin,)
    needs = Needs.INCREMENT | Needs.SPACE_TIME_AREA | Needs.SPACE_TIME_TIME_AREA
    gradients_per_step = 2

    def step(self, sde: BaseSDE, t: Time, state: Tensor, increment: Increment) -> Tensor:
        assert isinstance(sde, UnderdampedLangevin)
        assert increment.H is not None
        assert increment.K is not None
        h, friction, W, H, K = increment.dt, sde.friction, increment.W, increment.H, increment.K
        rho = math.sqrt(2.0 * friction * sde.u)
        (a_early, b_early), (a_late, b_late), (a, b), a_third = _coefficients(friction, h)
        x, v = split(state)
        v = v + Term(rho, H) + Term(6.0 * rho, K)
        w = rho * W + Term(-12.0 * rho, K)
        first = h * sde.u * sde.gradient(x + Term(a_early, v) + Term(b_early, w))
        second = h * sde.u * sde.gradient(x + Term(a_late, v) + Term(b_late, w) + Term(-a_third, first))
        moved = x + Term(a, v) + Term(b, w) + Term(-0.5 * a_late, first) + Term(-0.5 * a_early, second)
        speed = exp(-friction * h) * v + Term(a / h, w) + Term(-rho, H) + Term(6.0 * rho, K)
        early, late = exp(-friction * h * _EARLY), exp(-friction * h * _LATE)
        return torch.cat((moved, speed + Term(-0.5 * late, first) + Term(-0.5 * early, second)), -1)


@of_step_size
@lru_cache(maxsize=512)
def _coefficients(
    friction: float, h: float
) -> tuple[tuple[float, float], tuple[float, float], tuple[float, float], float]:
    """(a, b) at l, at r and at 1, and a at ⅓."""

    def a(s: float) -> float:
        return h * s * reach(friction * h * s)

    def b(s: float) -> float:
        return h * s * s * fall(friction * h * s)

    return (a(_EARLY), b(_EARLY)), (a(_LATE), b(_LATE)), (a(1.0), b(1.0)), a(1.0 / 3.0)
