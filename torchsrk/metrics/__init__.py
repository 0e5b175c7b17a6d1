"""Distances between clouds of particles, (points, dim) tensors."""

from .energy import energy_distance_squared
from .mmd import maximum_mean_discrepancy_squared
from .stein import kernel_stein_discrepancy
from .wasserstein import (
    Estimate,
    corrected_wasserstein2_squared,
    gaussian_wasserstein2_squared,
    sliced_wasserstein2_squared,
    wasserstein2_squared,
)

__all__ = [
    "Estimate",
    "corrected_wasserstein2_squared",
    "energy_distance_squared",
    "gaussian_wasserstein2_squared",
    "kernel_stein_discrepancy",
    "maximum_mean_discrepancy_squared",
    "sliced_wasserstein2_squared",
    "wasserstein2_squared",
]
