"""The step size, by the bias that it makes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..brownian.noise import derive_seed
from ..coupling import periods_of
from ..integrators import GHMC, Integrator
from ..integrators.capped import Capped
from .bias import LEVELS, StepBias, bias_of
from .checks import tail_shapes
from .ensemble import Ensemble
from .length import memory_time
from .metric import Coordinates, whitened
from .plan import FRICTION
from .requests import Asking, Chain, Coupled, Read, Show
from .settle import LEAST_STEP, Settled, longest_kick

_LARGEST_STEP = 0.6
_BIAS_TIME, _MOST_BIAS_TIME = 10.0, 60.0
_RELAXED = 2.5  # memory times after which chains have gone nine tenths of the way to the laws of their own steps
_MOST_TRIES = 4
_ACCEPTANCE = 0.8


@dataclass(frozen=True)
class Chosen:
    """A step size, and the particles that it was measured on."""

    coordinates: Coordinates
    scheme: Integrator
    step_size: float
    bias: StepBias | None
    bound: float
    memory_time: float
    z: Tensor
    tails: Tensor


def choose(settled: Settled, scheme: Integrator, tolerance: float, seed: int) -> Asking[Chosen]:
    """The largest step size whose bias, its error included, is below the tolerance."""
    coordinates = whitened(Ensemble.pooled(settled.seen))
    z, step_size = coordinates.inward(settled.ensemble.x), 0.5 * min(_LARGEST_STEP, settled.step_size)
    capped, time = Capped(scheme, longest_kick(z.shape[-1])), _BIAS_TIME
    for number in range(_MOST_TRIES):
        kept: Tensor = yield Coupled(
            z=z,
            coordinates=coordinates,
            scheme=capped,
            friction=FRICTION,
            step_size=step_size,
            periods=max(4, periods_of(time, step_size, LEVELS)),
            seed=derive_seed(seed, number),
        )
        if not bool(kept.isfinite().all()):
            raise ValueError(
                "particles left every bound at the smallest step size tried: the density is improper (is its sign "
                "right? log_density= and energy= say which it is), or not smooth"
            )
        theta, read = yield from _parameters(coordinates, kept)
        bias = bias_of(theta, capped, step_size)
        z, wanted = kept[-1, 0].contiguous(), bias.largest_step(tolerance)
        forgotten = memory_time(theta[:, 0], step_size * 2 ** (LEVELS - 1))
        yield Show(f"step size {step_size:.3g}: bias at most {bias.bound():.3f} sd")
        long_enough = _RELAXED * forgotten <= 1.2 * time or time == _MOST_BIAS_TIME
        if long_enough and (wanted >= step_size or step_size <= 0.5 * LEAST_STEP):
            break
        time = min(_MOST_BIAS_TIME, max(time, _RELAXED * forgotten))
        if wanted < step_size:
            step_size = max(0.8 * wanted, 0.25 * step_size, 0.5 * LEAST_STEP)
    # Twice the shortest step that was measured is the longest whose bias was.
    taken = min(_LARGEST_STEP, 2.0 * step_size, max(wanted, step_size))
    tails = tail_shapes(theta[:, 0, :, :read].double())
    return Chosen(coordinates, scheme, taken, bias, bias.bound(taken), forgotten, z, tails)


def _parameters(coordinates: Coordinates, kept: Tensor) -> Asking[tuple[Tensor, int]]:
    """What a user reads and then, where that is more, the sampler's own coordinates; and how many are the user's.

    Tails are those of what is read: a logarithm may have a long one where the parameter itself has an end.
    """
    x = coordinates.outward(kept)
    points: Tensor | None = yield Read(x)
    return (x, x.shape[-1]) if points is None else (torch.cat((points, x), -1), points.shape[-1])


def adjusted(chosen: Chosen, seed: int) -> Asking[tuple[Chosen, float]]:
    """The same coordinates with every step accepted or turned back, at a step that mostly is accepted."""
    step_size, z, acceptance = chosen.step_size, chosen.z, 0.0
    for number in range(8):
        z, shares = yield Chain(
            z=z,
            coordinates=chosen.coordinates,
            scheme=Capped(GHMC(), longest_kick(z.shape[-1])),
            friction=FRICTION,
            step_size=step_size,
            steps=16,
            seed=derive_seed(seed, number),
        )
        acceptance = shares["acceptance"]
        if acceptance >= _ACCEPTANCE:
            break
        step_size *= 0.7
    found = replace(chosen, scheme=GHMC(), step_size=step_size, bias=None, bound=0.0, z=z)
    return found, acceptance
