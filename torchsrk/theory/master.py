"""Theorem 1 of the paper: from local deviations of a scheme to its W2 rate."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from .bounds import decay_of


@dataclass(frozen=True)
class LocalDeviation:
    """E‖D‖² ≤ λ₁h^(2p₁) and E‖E[D|F]‖² ≤ λ₂h^(2p₂) for a step's deviation D (the definition before Theorem 1).

    Attributes:
        mean_square_order, mean_order: p₁ and p₂.
        mean_square, mean: λ₁ and λ₂.
    """

    mean_square_order: float
    mean_order: float
    mean_square: float
    mean: float

    def __post_init__(self) -> None:
        if self.mean_square_order < 0.5 or self.mean_order < self.mean_square_order + 0.5:
            raise ValueError(
                f"Theorem 1 needs p₁ ≥ ½ and p₂ ≥ p₁ + ½; got p₁ = {self.mean_square_order!r}, p₂ = {self.mean_order!r}"
            )
        if not (self.mean_square >= 0.0 and self.mean >= 0.0):
            raise ValueError(f"λ₁ and λ₂ are from 0 on; got {self.mean_square!r} and {self.mean!r}")


Number = Callable[[float], float]
SpeedDeviation = Callable[[float, float], LocalDeviation]  # of a step size and a bound on speeds
DeviationAt = Callable[[float], LocalDeviation]  # with moments that are those at a step size


def largest_step(*, contraction: float, drift_lipschitz: float, diffusion_lipschitz: float = 0.0) -> float:
    """1 ∧ 1/(2α) ∧ 1/(8μ₁(b)² + 8μ₁^F(σ)²), to which the scheme's own C_h comes.

    Not the same in other units: h carries one of time, and neither 1 nor μ₁(b)⁻² does as it should.
    """
    own = 8.0 * (drift_lipschitz**2 + diffusion_lipschitz**2)
    return min(1.0, 1.0 / (2.0 * contraction), 1.0 / own)


def decay(h: float, *, contraction: float) -> float:
    """-log (1 - αh/2)^½ a step. The theorem prints 1 - αh/2, which its proof has for the square of the distance."""
    return 0.5 * decay_of(contraction * h / 2.0)


def bias(h: float, deviation: LocalDeviation, *, contraction: float, drift_lipschitz: float) -> float:
    """[8(16μ₁(b)λ₁ + λ₂)/α² + 2λ₁/α]^½ h^(p₁ - ½).

    8 is right: with ab ≤ κa² + b²/(4κ) and κ = α/2 the recursion adds λ₃²/(2α), λ₃² ≤ 8(16μ₁(b)λ₁ + λ₂). The proof's
    4/κ for 1/(4κ) would make it 128, and the 64 of its step size is neither.
    """
    first, second = deviation.mean_square, deviation.mean
    inside = 8.0 * (16.0 * drift_lipschitz * first + second) / contraction**2 + 2.0 * first / contraction
    return math.sqrt(inside) * h ** (deviation.mean_square_order - 0.5)
