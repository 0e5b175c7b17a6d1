"""Averages over a run, with errors over what is independent in it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

# What a correct run is called troubled by, of each kind of thing looked at, however many parameters it has.
SIGNIFICANCE = 1e-3
# Particles from which on a spread over them is known to an eighth, so that errors are taken over particles alone.
MANY = 32
_LEAST_BATCH = 8  # draws: shorter batches of a chain are hardly independent


def standard_error(values: Tensor) -> Tensor:
    """Of the mean over the first two dimensions of values (draws, particles, ...).

    Particles are independent, so the spread of their averages over time is all there is to know, whatever draws of one
    of them have to do with each other. Where particles are few, each is cut into batches. NaN if there is too little.
    """
    units = _units(values)
    if units is None:
        return values.new_full(values.shape[2:], math.nan)
    return units.std(0) / math.sqrt(len(units))


def independent(draws: int, particles: int) -> int:
    """How many averages the error of a mean is taken over; 0 if there is none."""
    batches = -(-MANY // particles)
    if batches == 1:
        return particles
    return batches * particles if draws >= _LEAST_BATCH * batches else 0


def _units(values: Tensor) -> Tensor | None:
    draws, particles = values.shape[:2]
    batches = independent(draws, particles) // particles
    if not batches:
        return None
    length = draws // batches
    late = values[draws - batches * length :]
    return late.reshape(batches, length, *values.shape[1:]).mean(1).flatten(0, 1)


def change(values: Tensor) -> tuple[Tensor, Tensor]:
    """How far averages over particles moved from the first quarter of a run to the last, and the error of that.

    Of values (draws, particles, ...). The differences are those of every particle with itself.
    """
    quarter = max(1, len(values) // 4)
    moved = values[-quarter:].mean(0) - values[:quarter].mean(0)
    return moved.mean(0), moved.std(0) / math.sqrt(len(moved))


def critical(count: int, units: int) -> float:
    """The standard errors that the largest of so many deviations exceeds with the declared significance.

    Of Student's law where errors are from so many units, by its expansion about the normal one.
    """
    z = float(torch.special.ndtri(torch.tensor(1.0 - 0.5 * SIGNIFICANCE / max(1, count), dtype=torch.float64)))
    freedom = max(1, units - 1)
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
