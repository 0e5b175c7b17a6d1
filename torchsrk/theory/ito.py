"""Theorem 1 for Euler-Maruyama and SRK-ID on uniformly dissipative diffusions (the second Example, and Theorem 3).

Constants D and E are the paper's, as its proofs give them. SRK-ID's moments are not: the paper's lemma on them rests on
σ(x + Δ) - σ(x - Δ) = ∫(∇σ(x + τΔ) - ∇σ(x - τΔ))Δ dτ, where the sign between the gradients is +, so that its Y is of
order h and not h^(3/2) (M₁ to M₃ as printed are in printed.py). Here Y is bounded by ‖Y‖ ≤ √h·μ₁(σ)Σ‖ΔH⁽ⁱ⁾‖ and
Minkowski's inequality; sublinear growth of σ leaves a fixed point.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ..potentials import NonConvex
from . import master
from .bounds import Bound
from .master import LocalDeviation
from .numbers import check_count, check_from_zero, is_number


@dataclass(frozen=True)
class DiffusionConstants:
    """Of dX = b dt + σ dB on R^dim, b(0) = 0, with so many Brownian motions.

    Attributes:
        dim, brownian: how many coordinates, and how many Brownian motions.
        contraction: α of uniform dissipativity, and so of the W2 rate e^(-αt).
        dissipativity, excess: α and β of -2⟨b, x⟩ - ‖σ‖_F² ≥ α‖x‖² - β.
        drift: μ₁(b) and μ₂(b), Lipschitz constants of b and ∇b; ‖b‖ ≤ μ₁(b)‖x‖ makes π₁,ₙ(b) = μ₁(b)ⁿ.
        diffusion: μ₁, μ₂ and μ₃ of a column of σ; ``diffusion_frobenius`` is μ₁^F(σ).
        growth, growth_frobenius: π₁,₁ with ‖σ_i‖ˡ or ‖σ‖_Fˡ at most π₁,₁ˡ·max(1, 2^(l/4 - 1))(1 + ‖x‖^(l/2)).
    """

    dim: int
    brownian: int
    contraction: float
    dissipativity: float
    excess: float
    drift: tuple[float, float]
    diffusion: tuple[float, float, float]
    diffusion_frobenius: float
    growth: float
    growth_frobenius: float

    def __post_init__(self) -> None:
        if not all(is_number(rate) and rate > 0.0 for rate in (self.contraction, self.dissipativity)):
            raise ValueError(
                "Theorem 1 needs a uniformly dissipative diffusion; got "
                f"contraction {self.contraction!r} and dissipativity {self.dissipativity!r}"
            )
        check_count(dim=self.dim, brownian=self.brownian)
        for name, count in (("drift", 2), ("diffusion", 3)):
            values = getattr(self, name)
            if not isinstance(values, tuple) or len(values) != count:
                raise ValueError(f"{name} is a tuple of {count} Lipschitz constants; got {values!r}")
            check_from_zero(**{f"{name}[{number}]": value for number, value in enumerate(values)})
        rest = ("excess", "diffusion_frobenius", "growth", "growth_frobenius")
        check_from_zero(**{name: getattr(self, name) for name in rest})
        master.check_contraction(self.contraction, self.drift[0])

    def pi_drift(self, power: int) -> float:
        """π₁,ₙ(b)."""
        return self.drift[0] ** power

    def pi(self, power: int) -> float:
        """π₁,ₗ(σ), of a column."""
        return self.growth**power * max(1.0, 2.0 ** (power / 4 - 1))

    def pi_frobenius(self, power: int) -> float:
        """π₁,ₗ^F(σ)."""
        return self.growth_frobenius**power * max(1.0, 2.0 ** (power / 4 - 1))


def non_convex_constants(target: NonConvex) -> DiffusionConstants:
    """Certified, of the target's natural diffusion b = -x/2 + (½ - γ)x/g, σ = √g·I, g = √(β + ‖x‖²).

    x/g has a Jacobian between 0 and β^(-½); √g has derivatives of at most (√2/2)3^(-¾)β^(-¼), ½β^(-¾) and
    (9/4)√0.4·1.4^(-7/4)β^(-5/4). The paper's condition has d/8 for the square of the first times d/2, d/20.8.
    """
    d, beta, lean = target.dim, target.beta, 0.5 - target.gamma
    first = math.sqrt(0.5) * 3**-0.75 * beta**-0.25
    contraction = 0.5 - max(0.0, lean) / math.sqrt(beta) - 0.5 * d * first**2
    growth = max(1.0, beta**0.25)
    return DiffusionConstants(
        dim=d,
        brownian=d,
        contraction=contraction,
        dissipativity=0.5,
        excess=0.5 * (d + max(0.0, 2.0 * lean)) ** 2 + d * math.sqrt(beta),
        drift=(max(0.5, abs(0.5 - lean / math.sqrt(beta))), abs(lean) * 2.0 / math.sqrt(3.0) / beta),
        diffusion=(first, 0.5 * beta**-0.75, 2.25 * math.sqrt(0.4) * 1.4**-1.75 * beta**-1.25),
        diffusion_frobenius=math.sqrt(d) * first,
        growth=growth,
        growth_frobenius=math.sqrt(d) * growth,
    )


def em_second_moment(c: DiffusionConstants, *, radius: float) -> float:
    """𝒲₂ = ‖x₀‖² + 2(π₁,₂(b) + β)/α (lemma on moments of Euler-Maruyama), for h ≤ 1 ∧ α/(2π₁,₂(b))."""
    return radius**2 + 2.0 * (c.pi_drift(2) + c.excess) / c.dissipativity


def continuous_second_moment(c: DiffusionConstants, second: float) -> float:
    """𝒰₂' = 𝒰₂ + β/α, and 𝒲₂' alike."""
    return second + c.excess / c.dissipativity


def continuous_fourth_moment(c: DiffusionConstants, fourth: float) -> float:
    """𝒰₄' of the diffusion from a law of fourth moment 𝒰₄.

    From A‖x‖⁴ ≤ -2α‖x‖⁴ + 4π‖x‖³ + (2β + 4π)‖x‖², π = π₁,₂^F(σ) (the lemma on the generator), as a differential
    inequality for the norm in L⁴: it does not pass the root of αs² = 2πs + β + 2π.
    """
    alpha, pi = c.dissipativity, c.pi_frobenius(2)
    root = (pi + math.sqrt(pi**2 + alpha * (c.excess + 2.0 * pi))) / alpha
    return max(fourth, root**4)


def srk_id_second_moment(c: DiffusionConstants, h: float, *, radius: float) -> float:
    """𝒰₂, derived here: E‖Y‖² ≤ h²(m²/2)μ₁(σ)²π₁,₂^F(σ)(1 + ‖x‖)."""
    pull = c.brownian * c.diffusion[0] * math.sqrt(c.pi_frobenius(2) / 2.0)
    added = c.excess + c.pi_drift(2) * h
    return _norm(c, h, radius, lambda s: added + 2.0 * pull * s * math.sqrt(1.0 + s)) ** 2


def srk_id_fourth_moment(c: DiffusionConstants, h: float, *, radius: float) -> float:
    """𝒰₄, derived here, with E‖ΔH⁽ⁱ⁾‖⁴ ≤ 6⁴π₁,₄^F(σ)(1 + ‖x‖²)h² of the paper's corollary."""
    pull = 6.0 * c.brownian * c.diffusion[0] * c.pi_frobenius(4) ** 0.25
    added = c.excess + c.pi_drift(2) * h + 2.0 * c.pi_frobenius(2)

    def needed(s: float) -> float:
        return added + 2.0 * c.pi_frobenius(2) * s + 2.0 * pull * s * (1.0 + s**2) ** 0.25

    return _norm(c, h, radius, needed) ** 4


def _norm(c: DiffusionConstants, h: float, radius: float, needed: Callable[[float], float]) -> float:
    """The least S from which on needed(S) ≤ (α - π₁,₂(b)h)S², or the start if that is more."""
    lost = c.dissipativity - c.pi_drift(2) * h
    low, high = 0.0, 1.0
    while needed(high) > lost * high**2:
        low, high = high, 2.0 * high
    for _ in range(80):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if needed(middle) > lost * middle**2 else (low, middle)
    return max(radius, high)


def constant_d0(c: DiffusionConstants, second: float) -> float:
    """D₀ = 2(π₁,₂(b)(1 + 𝒰₂') + π₁,₂^F(σ)(1 + 𝒰₂'^½)), and E₀: printed with 1 + 𝒰₂' for both."""
    moment = continuous_second_moment(c, second)
    return 2.0 * (c.pi_drift(2) * (1.0 + moment) + c.pi_frobenius(2) * (1.0 + math.sqrt(moment)))


def constant_d1(c: DiffusionConstants, second: float, fourth: float) -> float:
    """D₁ = 8(π₁,₄(b)(1 + 𝒰₄') + 36π₁,₄^F(σ)(1 + 𝒰₂')): printed with 1 + 𝒰₄' for both."""
    own = 36.0 * c.pi_frobenius(4) * (1.0 + continuous_second_moment(c, second))
    return 8.0 * (c.pi_drift(4) * (1.0 + continuous_fourth_moment(c, fourth)) + own)


def constant_d3(c: DiffusionConstants, second: float, fourth: float) -> float:
    """D₃, λ₁ of SRK-ID with p₁ = 1.5; π₁,₂(b) in its fourth term is printed squared, which the line before is not."""
    m, moment, (first, bend, _) = c.brownian, continuous_second_moment(c, second), c.diffusion
    d0, d1 = constant_d0(c, second), constant_d1(c, second, fourth)
    return (
        16.0 * d0 * c.drift[0] ** 2
        + 16.0 / 3.0 * bend**2 * math.sqrt(c.pi(4) * d1) * (1.0 + math.sqrt(moment)) * m**2
        + 16.0 / 3.0 * first**4 * m**2 * d0
        + 16.0 * first**2 * c.pi_drift(2) * (1.0 + moment) * m
        + 4.0 * m**3 * bend**2 * c.pi_frobenius(4) * (1.0 + moment)
        + 2**7 * 3**4 * m**2 * bend**2 * c.pi_frobenius(4) * (1.0 + second)
    )


def constant_d4(c: DiffusionConstants, second: float, fourth: float) -> float:
    """D₄, λ₂ of SRK-ID with p₂ = 2: the last term is printed as 2⁴3⁵5⁶, without m²; the sum over i gives 2²3⁵5⁶m².

    It needs a Lipschitz ∇²σ, which Theorem 3 does not ask for.
    """
    m, moment = c.brownian, continuous_second_moment(c, second)
    return (
        4.0 / 3.0 * c.drift[0] ** 2 * c.pi_drift(2) * (1.0 + moment)
        + 1.0 / 3.0 * c.drift[1] ** 2 * c.pi(4) * (1.0 + moment) * m**2
        + 2**2 * 3**5 * 5**6 * m**2 * c.diffusion[2] ** 2 * c.pi_frobenius(6) * (1.0 + fourth**0.75)
    )


def constant_e0(c: DiffusionConstants, second: float) -> float:
    """E₀ of Euler-Maruyama, D₀ with its moment: E‖X_s - x₀‖² ≤ E₀s (the lemma on its local deviations)."""
    return constant_d0(c, second)


def constant_e1(c: DiffusionConstants, second: float) -> float:
    """E₁ = (μ₁(b)² + μ₁^F(σ)²)E₀, λ₁ of Euler-Maruyama with p₁ = 1."""
    return (c.drift[0] ** 2 + c.diffusion_frobenius**2) * constant_e0(c, second)


def constant_e2(c: DiffusionConstants, second: float) -> float:
    """E₂ = μ₁(b)²E₀/2, λ₂ of Euler-Maruyama with p₂ = 1.5: printed with μ₁(b), which the step before it squares."""
    return c.drift[0] ** 2 * constant_e0(c, second) / 2.0


def em_deviation(c: DiffusionConstants, second: float) -> LocalDeviation:
    """Of Euler-Maruyama, orders (1, 1.5)."""
    return LocalDeviation(1.0, 1.5, constant_e1(c, second), constant_e2(c, second))


def theorem_one_em_ito(c: DiffusionConstants, *, start: float, radius: float) -> Bound:
    """Theorem 1 for Euler-Maruyama on a uniformly dissipative diffusion, of order h^½.

    Args:
        c: constants of the diffusion, as by ``non_convex_constants``.
        start: W2 between the start and the target.
        radius: the distance of the starting point from the minimiser.
    """
    check_from_zero(radius=radius)
    deviation = em_deviation(c, em_second_moment(c, radius=radius))
    return _theorem_one(c, "em", "Theorem 1, Itô", start, deviation)


def theorem_one_srk_id(c: DiffusionConstants, *, start: float, radius: float) -> Bound:
    """Theorem 3: Theorem 1 for SRK-ID on a uniformly dissipative diffusion, of order h.

    Args:
        c: constants of the diffusion, as by ``non_convex_constants``.
        start: W2 between the start and the target.
        radius: the distance of the starting point from the minimiser.
    """
    check_from_zero(radius=radius)

    def deviation(h: float) -> LocalDeviation:
        second, fourth = (moment(c, h, radius=radius) for moment in (srk_id_second_moment, srk_id_fourth_moment))
        return LocalDeviation(1.5, 2.0, constant_d3(c, second, fourth), constant_d4(c, second, fourth))

    return _theorem_one(c, "srk-id", "Theorem 3", start, deviation)


def _theorem_one(
    c: DiffusionConstants, scheme: str, name: str, start: float, deviation: LocalDeviation | master.DeviationAt
) -> Bound:
    """For h ≤ 1 ∧ α/(2π₁,₂(b)), which the moments of both need."""
    return master.theorem_one(
        deviation,
        contraction=c.contraction,
        drift_lipschitz=c.drift[0],
        diffusion_lipschitz=c.diffusion_frobenius,
        start=start,
        own_step=c.dissipativity / (2.0 * c.pi_drift(2)),
        name=name,
        scheme=scheme,
        source="the paper, constants repaired" + ("; moments derived here" if scheme == "srk-id" else ""),
    )
