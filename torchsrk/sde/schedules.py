"""How a diffusion model adds noise: x_t = α(t)x₀ + s(t)ε, and the variance time τ = (s/α)², where x/α is x₀ + B_τ."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

_MOST = 1e30  # of a variance: its square root, times a normal, and the square of that have room in float32


class Schedule(ABC):
    """A way from data at time 0 to noise.

    Attributes:
        first: the time at which sampling ends, short of 0, where a score may be infinite.
        last: the time at which it begins.
    """

    first: float
    last: float

    @abstractmethod
    def variance(self, time: Tensor) -> Tensor:
        """τ at a time."""

    @abstractmethod
    def time(self, variance: Tensor) -> Tensor:
        """The time at which τ is this."""

    @abstractmethod
    def scale(self, variance: Tensor) -> Tensor:
        """α where τ is this."""

    @property
    def variances(self) -> tuple[float, float]:
        """τ where sampling ends, and where it begins."""
        ends = torch.tensor([self.first, self.last], dtype=torch.float64)
        low, high = self.variance(ends).tolist()
        return low, high

    def check(self) -> None:
        """Raise if τ does not grow between the ends, or beyond what float32 holds."""
        try:
            low, high = self.variances
        except OverflowError:
            low, high = math.nan, math.inf
        if not 0.0 <= low < high < _MOST:
            raise ValueError(
                f"the variance of the noise goes from {low:.3g} at first={self.first:g} to {high:.3g} at last="
                f"{self.last:g}; expected it to grow from 0 or more to less than {_MOST:g}. first and last are times "
                f"as the model takes them, mostly within 0 and 1, and not numbers of steps; got {self}"
            )


@dataclass(frozen=True)
class VariancePreserving(Schedule):
    """dx = -½β(t)x dt + √β(t) dB with β linear in time: α² = exp(-∫β), s² = 1 - α², and τ = exp(∫β) - 1.

    Args:
        beta_min, beta_max: β at the times 0 and 1.
        first, last: the times at which sampling ends and begins.
    """

    beta_min: float = 0.1
    beta_max: float = 20.0
    first: float = 1e-3
    last: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 < self.beta_min <= self.beta_max or not 0.0 < self.first < self.last:
            raise ValueError(f"expected 0 < beta_min <= beta_max and 0 < first < last; got {self}")
        self.check()

    def variance(self, time: Tensor) -> Tensor:
        return torch.expm1(self.beta_min * time + 0.5 * (self.beta_max - self.beta_min) * time.square())

    def time(self, variance: Tensor) -> Tensor:
        summed = torch.log1p(variance)
        root = (self.beta_min**2 + 2.0 * (self.beta_max - self.beta_min) * summed).sqrt()
        return 2.0 * summed / (self.beta_min + root)

    def scale(self, variance: Tensor) -> Tensor:
        return (1.0 + variance).rsqrt()


@dataclass(frozen=True)
class VarianceExploding(Schedule):
    """x_t = x₀ + s(t)ε with s from sigma_min to sigma_max, geometrically in time: α = 1 and τ = s².

    Args:
        sigma_min, sigma_max: s at the times 0 and 1.
        first, last: the times at which sampling ends and begins.
    """

    sigma_min: float = 0.01
    sigma_max: float = 50.0
    first: float = 0.0
    last: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 < self.sigma_min < self.sigma_max or not 0.0 <= self.first < self.last:
            raise ValueError(f"expected 0 < sigma_min < sigma_max and 0 <= first < last; got {self}")
        self.check()

    @property
    def _rate(self) -> float:
        return math.log(self.sigma_max / self.sigma_min)

    def variance(self, time: Tensor) -> Tensor:
        return (self.sigma_min * (self._rate * time).exp()).square()

    def time(self, variance: Tensor) -> Tensor:
        return (variance.sqrt() / self.sigma_min).log() / self._rate

    def scale(self, variance: Tensor) -> Tensor:
        return torch.ones_like(variance)
