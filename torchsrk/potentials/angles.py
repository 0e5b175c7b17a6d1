"""Densities of angles, which torch gives all of ℝ as their support."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.distributions import (
    Distribution,
    Independent,
    MixtureSameFamily,
    TransformedDistribution,
    VonMises,
    constraints,
)

from .interior import interior

_TURN = constraints.interval(-math.pi, math.pi)


def is_angle(target: Distribution) -> bool:
    """Whether the density is periodic on ℝ, and has mass 1 on one turn."""
    if isinstance(target, TransformedDistribution) and is_angle(target.base_dist):
        raise ValueError(
            "the target transforms angles, and its density is periodic on a line: sample the angles (its base_dist), "
            "and transform the draws"
        )
    if isinstance(target, Independent):
        return is_angle(target.base_dist)
    if isinstance(target, MixtureSameFamily):
        return is_angle(target.component_distribution)
    return isinstance(target, VonMises)


def wrapped(points: Tensor) -> Tensor:
    """Angles in (-π, π): float32 knows no π that is not above it."""
    return interior(math.pi - torch.remainder(math.pi - points, 2.0 * math.pi), _TURN)
