"""Constants of a strongly convex potential, certified or given by hand."""

from __future__ import annotations

from dataclasses import dataclass

from ..potentials import Potential
from .numbers import check_count, check_positive, is_number


@dataclass(frozen=True)
class Smoothness:
    """Of a potential f on R^dim, with the origin at its minimiser.

    Attributes:
        strong_convexity: m with ∇²f ≥ m·I; the diffusion's W2 rate is e^(-mt), α in the paper.
        smoothness: L, the Lipschitz constant of ∇f; μ₂(f) in the paper.
        hessian_lipschitz: of ∇²f; μ₃(f). None if not known.
        third_derivative_lipschitz: of ∇³f; μ₄(f). None if not known.
    """

    dim: int
    strong_convexity: float
    smoothness: float
    hessian_lipschitz: float | None = None
    third_derivative_lipschitz: float | None = None

    def __post_init__(self) -> None:
        check_count(dim=self.dim)
        m, smooth = self.strong_convexity, self.smoothness
        if not (is_number(m) and is_number(smooth) and 0.0 < m <= smooth):
            raise ValueError(f"0 < strong_convexity ≤ smoothness is needed; got {m!r} and {smooth!r}")
        for name in ("hessian_lipschitz", "third_derivative_lipschitz"):
            value = getattr(self, name)
            if value is not None and not (is_number(value) and value >= 0.0):
                raise ValueError(f"{name} is a number from 0 on, or None; got {value!r}")

    @property
    def condition(self) -> float:
        """κ = L/m."""
        return self.smoothness / self.strong_convexity

    def hessian(self) -> float:
        """μ₃(f), or one clear error."""
        return _known(self.hessian_lipschitz, "hessian_lipschitz")

    def third(self) -> float:
        """μ₄(f), or one clear error."""
        return _known(self.third_derivative_lipschitz, "third_derivative_lipschitz")

    def scaled(self, c: float) -> Smoothness:
        """Of f(x/c): the same target in other units, in which distances are c times as large."""
        check_positive(c=c)
        third, fourth = self.hessian_lipschitz, self.third_derivative_lipschitz
        return Smoothness(
            self.dim,
            self.strong_convexity / c**2,
            self.smoothness / c**2,
            None if third is None else third / c**3,
            None if fourth is None else fourth / c**4,
        )


def certified(potential: Potential, *, dim: int | None = None) -> Smoothness:
    """What a potential says of itself: a proof, not a measurement. One clear error where it is not known.

    Args:
        potential: with ``strong_convexity`` and ``smoothness``.
        dim: of the potential, where it does not say.
    """
    size = potential.dim if dim is None else dim
    if potential.dim is not None and size != potential.dim:
        raise ValueError(f"this {type(potential).__name__} lives in dimension {potential.dim}; got dim={dim!r}")
    if size is None:
        raise ValueError(f"{type(potential).__name__} serves any dimension: give dim")
    m, smooth = potential.strong_convexity, potential.smoothness
    if m is None or m <= 0.0 or smooth is None:
        raise ValueError(
            f"{potential!r} is not known to be strongly convex and smooth (strong_convexity {m}, smoothness {smooth}): "
            "give a Smoothness by hand, or see estimated()"
        )
    return Smoothness(size, m, smooth, potential.hessian_lipschitz, potential.third_derivative_lipschitz)


def _known(value: float | None, name: str) -> float:
    if value is None:
        raise ValueError(f"{name} is not known, and this bound needs it: give it, or take another bound")
    return value
