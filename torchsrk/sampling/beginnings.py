"""Whether a state that is given is one of particles where they are said to be."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from ..blocks import Blocks
from ..brownian.noise import derive_seed
from ..transforms import below_transforms
from .dynamics import Dynamics

# How far positions may be from those by another draw of the noise, beside its own size: all in the mean, and the
# farthest. Steps may have been sixteen times as long when they were reported, and their noise so four times as large.
_TIMES, _AT_MOST, _NUMBERS = 4.0, 24.0, 64
_ROUNDING = 16.0  # in units of the last place of the largest number of a coordinate


def are_positions(dynamics: Dynamics, blocks: Blocks, state: Tensor, step: int, x: Tensor, *, same_noise: bool) -> bool:
    """Whether x, (..., dim), is what is reported of a state before the step of that number, up to rounding.

    Some schemes report positions by the noise of the next step, and a run may go on with other noise than they were
    reported by: unless it is known to be the same, all that such noise explains will do.
    """
    reported = below_transforms(dynamics.positions(blocks, state, step))
    x = below_transforms(x.detach())
    if reported is x:
        return True
    if reported.shape != x.shape:
        return False
    rounding = _ROUNDING * max(torch.finfo(reported.dtype).eps, torch.finfo(x.dtype).eps)
    off = (x - reported).abs()
    if bool((off <= rounding * x.abs().reshape(-1, x.shape[-1]).amax(0)).all()):
        return True
    if same_noise or not dynamics.scheme.position_needs:
        return False
    size = _size_of_noise(dynamics, blocks, state, step, reported)
    mean = float(off.square().mean().sqrt())
    few = 1.0 + 2.0 / math.sqrt(x.numel())  # numbers, of which the mean is not as sure
    return mean <= _TIMES * few * size and float(off.max()) <= _AT_MOST * size


def _size_of_noise(dynamics: Dynamics, blocks: Blocks, state: Tensor, step: int, reported: Tensor) -> float:
    """By how much positions of one state differ by noise, over enough draws of it to know."""
    squares = []
    for index in range(1 + _NUMBERS // reported.numel()):
        other = replace(dynamics, seed=derive_seed(dynamics.seed, index))
        squares.append((below_transforms(other.positions(blocks, state, step)) - reported).square().mean())
    return float(torch.stack(squares).mean().sqrt())
