"""How many steps lie between draws that hardly know of one another."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_ALIKE = 0.2  # the correlation that draws may have
_MOST_PERIODS = 200
_STARTS = 8  # times that correlations are averaged over


def memory_time(theta: Tensor, period: float) -> float:
    """The time after which no parameter is correlated with what it was, from theta (times, particles, parameters).

    Correlations are over particles, which are independent, and averaged over starting times; no chain is averaged over
    time, so a chain that never moves can't be taken for one that has arrived. Where even the longest time seen is too
    short, it is stretched by the rate that it shows.
    """
    # What is left of 0 when it is estimated from so many particles.
    allowed = _ALIKE + 3.0 / math.sqrt(theta.shape[1])
    for lag in range(1, len(theta)):
        starts = torch.linspace(0, len(theta) - lag - 1, min(_STARTS, len(theta) - lag)).long()
        largest = float(correlations(theta[starts], theta[starts + lag]).mean(0).abs().max().nan_to_num(1.0))
        if largest <= allowed:
            return lag * period
    periods = min(_MOST_PERIODS, lag * math.log(_ALIKE) / math.log(min(largest, 0.999)))
    return periods * period


def correlations(before: Tensor, after: Tensor) -> Tensor:
    """Over particles, (..., particles, parameters) to (..., 2·parameters): of parameters, and of how far out they are.

    A parameter whose scale wanders, as in the tail of a hierarchical model, may change its sign soon and its size late.
    """
    then, now = _standing(before), _standing(after)
    squares = (then.square().mean(-2) * now.square().mean(-2)).sqrt()
    return (then * now).mean(-2) / squares.clamp_min(torch.finfo(before.dtype).tiny)


def _standing(theta: Tensor) -> Tensor:
    """Where particles stand among the others, and how far out, both about 0."""
    centred = theta - theta.mean(-2, keepdim=True)
    size = centred.abs()
    size = size.minimum(3.0 * size.mean(-2, keepdim=True))  # a few that are far out are not the ensemble
    return torch.cat((centred, size - size.mean(-2, keepdim=True)), -1)
