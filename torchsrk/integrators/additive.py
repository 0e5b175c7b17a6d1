"""What the schemes of order 1.5 for additive noise share."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ..brownian.increment import Increment
from ..sde.base import BaseSDE, Time
from ..sde.terms import Term


def plus_noise(sde: BaseSDE, t: Time, x: Tensor, noise: Callable[[Tensor], Term], increment: Increment) -> Tensor:
    """x + ∫σ dB over the step; ``noise`` is the SDE's at t.

    Where σ depends on time that is σ(t)(W/2 + H) + σ(t + h)(W/2 - H): exact for a σ linear in time, and for others up
    to O(h^2.5).
    """
    if not sde.noise_varies:
        return x + noise(increment.W)
    assert increment.H is not None
    half = 0.5 * increment.W
    return x + noise(half + increment.H) + sde.noise_at(t + increment.dt, x)(half - increment.H)
