"""From the typical set to the target: windows of unadjusted steps, each in the metric that the last one showed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..brownian.noise import derive_seed
from ..integrators import BAOAB
from ..integrators.capped import Capped
from ..sampling.signs import SHORT_HINT
from .ensemble import HALVES, Ensemble
from .length import correlations
from .metric import whitened
from .reach import left_behind
from .requests import Asking, Chain, Points, Show

FRICTION = 2.0  # while particles settle: critical for a whitened Gaussian, so that nothing overshoots
_FIRST_STEP, _LARGEST_STEP, LEAST_STEP = 0.35, 0.7, 0.03
_FEW_CAPPED, _MANY_CAPPED = 0.003, 0.01
_LEAST_WINDOWS, _MOST_WINDOWS = 4, 60
_LEAST_TIME = 12.0
_MOST_RESTARTS = 10  # windows before which particles on a plateau start again at others
_REMEMBERED = 0.2  # the correlation with where particles were at half the time, below which they have forgotten it
_PER_DIMENSION, _MOST_POOLED = (
    4,
    8,
)  # particles of half the ensemble that a metric is made of, and windows they are from
_GAP = 10.0  # of energies that no particle crosses: nothing beyond it has weight


def longest_kick(dim: int) -> float:
    """The change of a whitened velocity at which kicks are capped: twice as long as velocities are."""
    return 2.0 * math.sqrt(dim)


@dataclass(frozen=True)
class Settled:
    """An ensemble, and how calm it is.

    Attributes:
        seen: the ensembles of the last windows, as many as a metric wants.
        step_size: that the last window had, or a shorter one if too much was capped.
        windows, time: how many, and their length in units of whitened time.
        capped: the share of capped kicks in the last window.
        memory: the correlation over particles with where they were at half the time, largest over coordinates, and
            ``slowest``, which coordinate that is.
        drift: how far means and second moments moved since then, in standard errors, the largest.
        calm: all of that is as it should be.
    """

    ensemble: Ensemble
    seen: list[Ensemble]
    step_size: float
    windows: int
    time: float
    capped: float
    memory: float
    slowest: int
    drift: float
    calm: bool


def settle(ensemble: Ensemble, *, seed: int) -> Asking[Settled]:
    """Run windows until particles have forgotten where they were at half the time, and nothing drifts."""
    step_size, time, snapshots = _FIRST_STEP, 0.0, [(0.0, ensemble.x)]
    dim = ensemble.x.shape[-1]
    seen: list[Ensemble] = []
    # Of 2·dim normals the largest is below this 99 times in 100.
    most_drift = 3.0 + 0.5 * math.log10(2 * dim)
    for window in range(_MOST_WINDOWS):
        if window:
            ensemble = _without_stragglers((yield Points(ensemble.x)), window, dim, seed)
        steps = 6 if window < 3 else 12
        seen = _enough([*seen, ensemble])
        x, capped = yield from _window(seen, step_size, steps, seed=derive_seed(seed, window))
        ensemble, time = Ensemble(x, ensemble.energy, ensemble.gradient), time + steps * step_size
        snapshots.append((time, x))
        past = min(snapshots, key=lambda snapshot: abs(snapshot[0] - 0.5 * time))[1]
        memory, drift = _memory(past, x), _drift(past, x)
        most = float(memory.max())
        yield Show(f"window {window + 1}: memory {most:.2f}, {capped:.1%} of kicks capped")
        calm = capped < _MANY_CAPPED and drift < most_drift and time >= _LEAST_TIME and most < _REMEMBERED
        if capped > _MANY_CAPPED:
            step_size = max(LEAST_STEP, 0.7 * step_size)
        if calm and window + 1 >= _LEAST_WINDOWS:
            break
        if capped < _FEW_CAPPED:
            step_size = min(_LARGEST_STEP, 1.25 * step_size)
    evaluated: Ensemble = yield Points(ensemble.x)
    evaluated = evaluated.restarted(~evaluated.finite, seed=seed, step=_MOST_WINDOWS)
    seen = _enough([*seen, evaluated])
    return Settled(evaluated, seen, step_size, window + 1, time, capped, most, int(memory.argmax()), drift, calm)


def _enough(ensembles: list[Ensemble]) -> list[Ensemble]:
    """The last of them, as many as make particles enough for a metric: on a Gaussian any do, converged or not."""
    particles, dim = ensembles[-1].x.shape
    return ensembles[-min(_MOST_POOLED, math.ceil(_PER_DIMENSION * dim / (particles // 2))) :]


def _window(seen: list[Ensemble], step_size: float, steps: int, *, seed: int) -> Asking[tuple[Tensor, float]]:
    """Positions after some steps, each half in the metric of the other, and the share of capped kicks."""
    ensemble = seen[-1]
    x, capped, parts = torch.empty_like(ensemble.x), 0.0, ensemble.halves()
    pools = [Ensemble.pooled(half) for half in zip(*(part.halves() for part in seen), strict=True)]
    for number, (rows, own, others) in enumerate(zip(HALVES, parts, reversed(pools), strict=True)):
        coordinates = whitened(others, held_out=own)
        z, shares = yield Chain(
            z=coordinates.inward(own.x),
            coordinates=coordinates,
            scheme=Capped(BAOAB(), longest_kick(own.x.shape[-1])),
            friction=FRICTION,
            step_size=step_size,
            steps=steps,
            seed=seed,
            first_particle=number * len(parts[0]),
        )
        x[rows] = coordinates.outward(z)
        capped += shares["capped"] * len(own) / len(ensemble)
    return x, capped


def _without_stragglers(ensemble: Ensemble, window: int, dim: int, seed: int) -> Ensemble:
    """Particles that are nowhere, or in a corner that the density has no weight in, put where others are."""
    behind = ~ensemble.finite
    if bool(behind.all()):
        raise ValueError(
            "the density is 0 or NaN wherever the particles went: it may have an edge that no bijection was given for "
            f"(see support=), or be improper. {SHORT_HINT}"
        )
    if window < _MOST_RESTARTS:
        behind = behind | left_behind(ensemble.energy, dim)
    behind = behind | _beyond_a_gap(ensemble.energy)
    return ensemble.restarted(behind, seed=seed, step=1 + window)


def _beyond_a_gap(energy: Tensor) -> Tensor:
    """Particles whose energies are so far above those of the rest that nobody is between: a mode of no weight."""
    ordered = energy[energy.isfinite()].sort().values
    gaps = ordered.diff()
    gaps[: len(ordered) // 20] = 0.0  # a few lucky ones are no ensemble to start again from
    wide = (gaps > _GAP).nonzero().squeeze(-1)
    return energy > ordered[wide[0]] if len(wide) else torch.zeros_like(energy, dtype=torch.bool)


def _memory(past: Tensor, now: Tensor) -> Tensor:
    """The correlation over particles of every coordinate, or of how far out it is, then and now."""
    return torch.maximum(*correlations(past, now).abs().chunk(2, -1))


def _drift(past: Tensor, now: Tensor) -> float:
    """How far means and second moments moved, in standard errors over particles."""
    centre = past.mean(0)
    changes = torch.cat((now - past, (now - centre).square() - (past - centre).square()), -1)
    error = changes.std(0).clamp_min(torch.finfo(now.dtype).tiny) / math.sqrt(len(now))
    return float((changes.mean(0) / error).abs().max())
