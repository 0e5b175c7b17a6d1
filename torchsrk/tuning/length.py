"""How many steps lie between draws that hardly know of one another."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_ALIKE = 0.2  # the correlation that draws may have
_MOST_PERIODS = 200


def memory_time(theta: Tensor, period: float) -> tuple[float, Tensor]:
    """The time after which no parameter is correlated with what it was, from theta (times, particles, parameters).

    Correlations are over particles, which are independent, and averaged over starting times; no chain is averaged over
    time, so a chain that never moves can't be taken for one that has arrived. Where even the longest time seen is too
    short, it is stretched by the rate that it shows. Also returns the correlations (times - 1, parameters).
    """
    correlations = torch.stack([_correlation(theta, lag) for lag in range(1, len(theta))])
    largest = correlations.abs().amax(-1).nan_to_num(1.0)
    # What is left of 0 when it is estimated from so many particles.
    allowed = _ALIKE + 3.0 / math.sqrt(theta.shape[1])
    short_enough = (largest <= allowed).nonzero().squeeze(-1)
    if len(short_enough):
        return (int(short_enough[0]) + 1) * period, correlations
    left = min(float(largest[-1]), 0.999)
    periods = min(_MOST_PERIODS, len(largest) * math.log(_ALIKE) / math.log(left))
    return periods * period, correlations


def _correlation(theta: Tensor, lag: int) -> Tensor:
    """Of every parameter with itself, so many times later: over particles, on average over times."""
    before, after = theta[:-lag] - theta[:-lag].mean(1, keepdim=True), theta[lag:] - theta[lag:].mean(1, keepdim=True)
    products, squares = (before * after).mean(1), (before.square().mean(1) * after.square().mean(1)).sqrt()
    return (products / squares.clamp_min(torch.finfo(theta.dtype).tiny)).mean(0)
