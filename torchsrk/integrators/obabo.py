"""OBABO: a leapfrog step between two half steps of friction."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from ..brownian.increment import Increment, Needs
from ..derived import exp, of_step_size, sqrt
from ..sde.base import BaseSDE, Normals, Time
from ..sde.terms import Term
from ..sde.underdamped import UnderdampedLangevin
from .base import Integrator

_SQRT12 = math.sqrt(12.0)
_OUTER = 0.1931833275037836  # b₁ of McLachlan (1995): the smallest error constant of a palindrome with two gradients


class OBABO(Integrator):
    """O(h/2)B(h/2)A(h)B(h/2)O(h/2).  B(t): V' = V - tu∇f(X);  A(t): X' = X + tV;  O(t): V' = ηV + √(u(1 - η²)) ξ.

    Here η = e^(-γt). ``stages=2`` puts B(b₁h)A(h/2)B((1 - 2b₁)h)A(h/2)B(b₁h), b₁ = 0.19318, in the middle: two
    gradients a step, and an error of the law that is some hundred times smaller. The two normals of a step are
    (W ± √12 H)/√(2h), the orthonormal pair nearest to the path's own halves.

    One gradient a step, as the last one is kept: the state is (X, V, ∇f(X)). Strong order 1. The law errs by O(h²); on
    a Gaussian of curvature ω² the variance is too large by a factor 1/(1 - uω²h²/4), and velocities have theirs
    exactly. Pick it for a scheme whose energy error tells its bias (GHMC corrects it), with ``stages=2`` where steps
    are long or the law of velocities matters; BAOAB's positions are better at one gradient. Bussi and Parrinello
    (2007).

    Args:
        stages: gradients a step, 1 or 2.
    """

    name = "obabo"
    strong_order = 1.0
    strong_order_additive = 1.0
    law_order = 2.0
    serves = (UnderdampedLangevin,)
    needs = Needs.INCREMENT | Needs.SPACE_TIME_AREA

    def __init__(self, *, stages: int = 1) -> None:
        if stages not in (1, 2):
            raise ValueError(f"stages is 1 or 2; got {stages!r}")
        self.stages = stages

    @property
    def gradients_per_step(self) -> int:  # type: ignore[override]
        return self.stages

    def init(self, sde: BaseSDE, t: Time, x: Tensor, dt: float, normals: Normals) -> Tensor:
        assert isinstance(sde, UnderdampedLangevin)
        return torch.cat((sde.start(x, normals), sde.gradient(x)), -1)

    def step(self, sde: BaseSDE, t: Time, state: Tensor, increment: Increment) -> Tensor:
        assert isinstance(sde, UnderdampedLangevin)
        h, dim = increment.dt, state.shape[-1] // 3
        x, v, force = state[..., :dim], state[..., dim : 2 * dim], state[..., 2 * dim :]
        outer = 0.5 if self.stages == 1 else _OUTER
        v = half_friction(sde, v, increment, sign=1.0)
        v = v + Term(-outer * h * sde.u, force)
        if self.stages == 2:
            x = x + Term(0.5 * h, v)
            v = v + Term((2.0 * outer - 1.0) * h * sde.u, sde.gradient(x))
        x = x + Term(h / self.stages, v)
        force = sde.gradient(x)
        v = v + Term(-outer * h * sde.u, force)
        return torch.cat((x, half_friction(sde, v, increment, sign=-1.0), force), -1)

    def compose(self, sde: BaseSDE, first: Increment, second: Increment) -> Increment:
        # Either half of the long step has the friction of a whole short one.
        assert isinstance(sde, UnderdampedLangevin)
        eta = exp(-0.5 * sde.friction * first.dt)
        halves = []
        for whole in (first, second):
            assert whole.H is not None
            early, late = whole.W + _SQRT12 * whole.H, whole.W - _SQRT12 * whole.H
            halves.append((eta * early + late) * sqrt(2.0 / (1.0 + eta * eta)))
        early, late = halves
        return Increment(2.0 * first.dt, 0.5 * (early + late), H=(0.5 / _SQRT12) * (early - late))

    def position(self, sde: BaseSDE, t: Time, state: Tensor, increment: Increment | None) -> Tensor:
        return state[..., : state.shape[-1] // 3]


def half_friction(sde: UnderdampedLangevin, v: Tensor, increment: Increment, *, sign: float) -> Tensor:
    """O(h/2): with sign 1 on the first half of the step, -1 on the second."""
    assert increment.H is not None
    keep, scale = _half(sde.friction, sde.u, increment.dt)
    return scale * increment.W + Term(sign * _SQRT12 * scale, increment.H) + Term(keep, v)


@of_step_size
@lru_cache(maxsize=512)
def _half(friction: float, u: float, h: float) -> tuple[float, float]:
    """e^(-γh/2), and what makes W ± √12 H, of variance 2h, into the noise."""
    return math.exp(-0.5 * friction * h), math.sqrt(-0.5 * u * math.expm1(-friction * h) / h)
