"""Theorem 1 of the paper: from local deviations of a scheme to its W2 rate."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from .bounds import Bound, decay_of
from .numbers import check_from_zero, check_positive, is_number


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
        check_from_zero(mean_square_order=self.mean_square_order, mean_order=self.mean_order)
        if self.mean_square_order < 0.5 or self.mean_order < self.mean_square_order + 0.5:
            raise ValueError(
                f"Theorem 1 needs p₁ ≥ ½ and p₂ ≥ p₁ + ½; got p₁ = {self.mean_square_order!r}, p₂ = {self.mean_order!r}"
            )
        if not all(is_number(value) and value >= 0.0 for value in (self.mean_square, self.mean)):
            raise ValueError(f"λ₁ and λ₂ are numbers from 0 on; got {self.mean_square!r} and {self.mean!r}")


Number = Callable[[float], float]
SpeedDeviation = Callable[[float, float], LocalDeviation]  # of a step size and a bound on speeds
DeviationAt = Callable[[float], LocalDeviation]  # with moments that are those at a step size


def check_contraction(contraction: float, drift_lipschitz: float) -> None:
    """⟨b(x) - b(y), x - y⟩ ≥ -μ₁(b)‖x - y‖², so that α is at most μ₁(b): more is a mistake."""
    if contraction > drift_lipschitz * (1.0 + 1e-9):
        raise ValueError(
            f"no diffusion contracts faster than its drift's Lipschitz constant; got {contraction!r} and "
            f"{drift_lipschitz!r}"
        )


def largest_step(*, contraction: float, drift_lipschitz: float, diffusion_lipschitz: float = 0.0) -> float:
    """1 ∧ 1/(2α) ∧ 1/(8μ₁(b)² + 8μ₁^F(σ)²), to which the scheme's own C_h comes.

    Not the same in other units: h carries one of time, and neither 1 nor μ₁(b)⁻² does as it should.
    """
    check_positive(contraction=contraction)
    check_from_zero(drift_lipschitz=drift_lipschitz, diffusion_lipschitz=diffusion_lipschitz)
    least = max(8.0 * (drift_lipschitz**2 + diffusion_lipschitz**2), 2.0 * contraction, 1.0)
    return 1.0 / least


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


def theorem_one(
    deviation: LocalDeviation | DeviationAt,
    *,
    contraction: float,
    drift_lipschitz: float,
    diffusion_lipschitz: float = 0.0,
    start: float,
    own_step: float = 1.0,
    name: str = "Theorem 1",
    scheme: str = "",
    gradients_per_step: int = 1,
    source: str = "the paper, constants repaired; local deviations given",
    factor: float = 1.0,
) -> Bound:
    """Theorem 1 for numbers given by hand, of any diffusion and any scheme.

    Args:
        deviation: of a step, with bounds that hold at every step; or a function of h, for constants that depend on it.
        contraction: α of uniform dissipativity.
        drift_lipschitz, diffusion_lipschitz: μ₁(b) and μ₁^F(σ).
        start: W2 between the start and the target.
        own_step: C_h, up to which the deviation is bounded so; the theorem's own 1 holds too.
        name, scheme, gradients_per_step, source, factor: as a Bound has them.
    """
    check_positive(own_step=own_step)
    whole = largest_step(
        contraction=contraction, drift_lipschitz=drift_lipschitz, diffusion_lipschitz=diffusion_lipschitz
    )

    check_contraction(contraction, drift_lipschitz)

    def at(h: float) -> LocalDeviation:
        return deviation if isinstance(deviation, LocalDeviation) else deviation(h)

    return Bound(
        name=name,
        scheme=scheme,
        gradients_per_step=gradients_per_step,
        source=source,
        start=start,
        largest_step=min(own_step, whole),
        decay=lambda h: decay(h, contraction=contraction),
        bias=lambda h: bias(h, at(h), contraction=contraction, drift_lipschitz=drift_lipschitz),
        factor=factor,
    )
