"""Whether a score model is what it is said to be, as far as its last time tells: there the law is known, nearly."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..brownian import Stream, fill_normal

# The data need not have the spread that the prior takes them to have, nor the schedule reach all of the noise.
_LEAST, _MOST = 0.4, 2.5
_NUMBERS, _FEWEST, _POINTS = 512, 4, 256  # looked at, and the points that these are of
_FEW = 64  # numbers whose root mean square says too little

Drift = Callable[[Tensor], Tensor]


def pull_at(drift: Drift, variance: float, like: Tensor) -> float:
    """How strongly a drift pulls draws of N(0, variance) back, in the units of that normal's own score: 1 of a model
    whose states have this law, and v/(v + w) times that where they have the variance v + w in v's stead.

    It is the slope of a regression on the points, so their mean, and a constant drift, do not matter.
    """
    dim = like.shape[-1]
    count = max(_FEWEST, min(_POINTS, math.ceil(_NUMBERS / dim)))
    points = fill_normal(like.new_empty(count, dim), seed=0, stream=Stream.CHECK)
    points = math.sqrt(variance) * (points - points.mean(0))
    with torch.inference_mode(False), torch.no_grad():
        pulled = drift(points)
    return float(-variance * (pulled * points).double().sum() / points.double().square().sum())


def is_sound(pull: float) -> bool:
    return _LEAST <= pull <= _MOST


def doubt_of_pull(pull: float, schedule: object, predicts: str, deviation: float, other: float) -> str:
    """What is said of a model whose pull can't be right; ``other`` is what it would be if the model predicted the other
    of score and noise."""
    ways = []
    if is_sound(other):
        swapped = '"noise"' if predicts == "score" else '"score"'
        ways.append(f"predicts={swapped} would make it {other:.3g}")
    if is_sound(-pull):
        ways.append(f"the other sign would make it {-pull:.3g}")
    ways.append(
        "or else it was trained with another schedule, takes another time than the schedule's (that of the data is "
        f"first, that of noise last), or has data spread wider than the noise of the last time, {deviation:.3g}, which "
        "the prior can't stand for"
    )
    return (
        f"this run can't be trusted: at the last time a score pulls points of the prior back with a strength of about "
        f"1, and this model, taken as predicts={predicts!r} of {schedule!r}, with one of {pull:.3g}. "
        f"{'; '.join(ways)}"
    )


def doubt_of_start(x: Tensor, deviation: float) -> str | None:
    """What is said of particles that are closer together than the noise of the last time would have them."""
    spread = float(x.double().square().mean().sqrt())
    if x.numel() < _FEW or spread >= 0.5 * deviation:
        return None
    return (
        f"this run can't be trusted: x0 has a root mean square of {spread:.3g}, and the noise of the last time alone "
        f"has {deviation:.3g}. Runs are in the coordinates x/α: start from reverse.prior(particles, dim, seed=...), or "
        "divide points of the model by the schedule's scale, α"
    )
