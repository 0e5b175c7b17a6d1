"""Theorem 1 for Euler-Maruyama and SRK-LD on strongly convex smooth potentials (the first Example, and Theorem 2).

Local deviations are the paper's, with the constants that its proofs give where they differ from what is printed. The
moments are not: what the paper prints for SRK-LD's (N₁ to N₁₂, in printed.py) holds up to steps of 10⁻¹⁵ or so, and not
as printed. The lemma here needs h ≤ m/L² and a line. With the origin at the minimiser, a step is y + √(2h)ξ + r with
‖y‖ ≤ ρ‖x‖ and ‖r‖ bounded by noise alone, so that in the norm of L^(2n)

    ‖x'‖ ≤ √(ρ²‖x‖² + 2hD) + q√D·h^(3/2),  D = d + 2n - 2,

since E‖y + sξ‖^(2n) ≤ (‖y‖² + s²D)^n, whose fixed point bounds all that starts below it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from . import master
from .bounds import Bound
from .master import LocalDeviation
from .numbers import check_from_zero
from .smoothness import Smoothness

# SRK-LD's stages are √(2h(½ ± 1/√6)) normals away from their means: half the sum of both, times √2.
_STAGES = (math.sqrt(0.5 + 6**-0.5) + math.sqrt(0.5 - 6**-0.5)) / math.sqrt(2.0)


@dataclass(frozen=True)
class Moments:
    """Bounds on E‖x‖², E‖x‖⁴ and E‖x‖⁶ over all steps: 𝒰₂, 𝒰₄ and 𝒰₆ in the paper."""

    second: float
    fourth: float
    sixth: float


def em_contraction(f: Smoothness, h: float) -> float:
    """ρ of a step without noise: 1 - mh for h ≤ 2/(m + L)."""
    return max(1.0 - f.strong_convexity * h, f.smoothness * h - 1.0)


def srk_ld_contraction(f: Smoothness, h: float) -> float:
    """ρ = 1 - mh + L²h²/2 for h ≤ 1/L: the Jacobian is I - h(A + B)/2 + h²BC/2, with Hessians A, B and C."""
    return 1.0 - f.strong_convexity * h + 0.5 * (f.smoothness * h) ** 2


def em_moments(f: Smoothness, h: float, *, radius: float) -> Moments:
    """Of Euler-Maruyama from a point this far from the minimiser, for h ≤ 2/(m + L)."""
    lost = (1.0 - em_contraction(f, h) ** 2) / h
    return _moments(f, radius, lost, 0.0)


def srk_ld_moments(f: Smoothness, h: float, *, radius: float) -> Moments:
    """Of SRK-LD from a point this far from the minimiser, for h ≤ m/L²."""
    lost = (1.0 - srk_ld_contraction(f, h) ** 2) / h
    return _moments(f, radius, lost, _STAGES * f.smoothness * math.sqrt(h))


def _moments(f: Smoothness, radius: float, lost: float, rest: float) -> Moments:
    """From the largest root S of lost·S² = 2D + 2·rest·√D·S, with rest·√D·h the norm of r."""
    unit = (rest + math.sqrt(rest**2 + 2.0 * lost)) / lost
    second, fourth, sixth = (max(radius, unit * math.sqrt(f.dim + extra)) for extra in (0, 2, 4))
    return Moments(second**2, fourth**4, sixth**6)


def continuous_second_moment(f: Smoothness, moments: Moments) -> float:
    """𝒰₂' = 𝒰₂ + 2(β + d)/α, with β = 0 about the minimiser (appendix on SRK-LD, local deviation orders)."""
    return moments.second + 2.0 * f.dim / f.strong_convexity


def continuous_fourth_moment(f: Smoothness, moments: Moments) -> float:
    """𝒰₄' = 𝒰₄ + 2(d + 2)𝒰₂'/α: Δ‖x‖⁴ = 4(d + 2)‖x‖², where the paper has 12, its value at d = 1."""
    return moments.fourth + 2.0 * (f.dim + 2) * continuous_second_moment(f, moments) / f.strong_convexity


def constant_c0(f: Smoothness, moments: Moments) -> float:
    """C₀ = 2π₂,₂(f)(1 + 𝒰₂') + 4d of the lemma on the second moment of change; π₂,ₙ(f) = Lⁿ here."""
    return 2.0 * f.smoothness**2 * (1.0 + continuous_second_moment(f, moments)) + 4.0 * f.dim


def constant_c1(f: Smoothness, moments: Moments) -> float:
    """C₁ = 8π₂,₄(f)(1 + 𝒰₄') + 32d(d + 2) of the lemma on the fourth moment of change."""
    d = f.dim
    return 8.0 * f.smoothness**4 * (1.0 + continuous_fourth_moment(f, moments)) + 32.0 * d * (d + 2)


def _curved(f: Smoothness, moments: Moments) -> float:
    """C₁^½(1 + 𝒰₄')^½(μ₂²π₃,₄^½ + μ₃²π₂,₄^½), in C₂ and C₃; π₃,₄(f) = L⁴."""
    grown = math.sqrt(constant_c1(f, moments) * (1.0 + continuous_fourth_moment(f, moments)))
    return grown * f.smoothness**2 * (f.smoothness**2 + f.hessian() ** 2)


def constant_c2(f: Smoothness, moments: Moments) -> float:
    """C₂, λ₁ of SRK-LD with p₁ = 2 (lemma on the local mean-square deviation).

    Printed with 8C₀ where Itô's isometry of R₃ takes a Frobenius norm, √d times the operator norm: 8dC₀.
    """
    d, third = f.dim, f.hessian()
    rest = 8.0 * f.smoothness**4 * (1.0 + moments.fourth) + 116.0 * d**2 + 90.0 * d + 8.0 * d * constant_c0(f, moments)
    return 8.0 * _curved(f, moments) + rest * third**2


def constant_c3(f: Smoothness, moments: Moments) -> float:
    """C₃, λ₂ of SRK-LD with p₂ = 2.5 (lemma on the local mean deviation).

    Printed with 4C₀dμ₄² where the line before has C₀d²μ₄²s³/2, and so C₀d²μ₄².
    """
    d, third, fourth = f.dim, f.hessian(), f.third()
    bent = 0.25 * third**2 * f.smoothness**4 * (1.0 + moments.fourth)
    far = 8.0 * fourth**2 * (f.smoothness**6 * (1.0 + moments.sixth) + 73.0 * (d + 4) ** 3)
    return 4.0 * _curved(f, moments) + constant_c0(f, moments) * d**2 * fourth**2 + bent + far


def em_deviation(f: Smoothness, moments: Moments) -> LocalDeviation:
    """Of Euler-Maruyama, orders (1.5, 2); the paper cites these and has no constants.

    D = -∫(∇f(X_s) - ∇f(X_0))ds: λ₁ = L²C₀/2, and by Itô's formula λ₂ = ¼(L²√𝒰₂' + dμ₃)².
    """
    drift = f.smoothness**2 * math.sqrt(continuous_second_moment(f, moments))
    mean = 0.25 * (drift + f.dim * f.hessian()) ** 2
    return LocalDeviation(1.5, 2.0, f.smoothness**2 * constant_c0(f, moments) / 2.0, mean)


def srk_ld_deviation(f: Smoothness, moments: Moments) -> LocalDeviation:
    """Of SRK-LD, orders (2, 2.5), λ₁ = C₂ and λ₂ = C₃ (Theorem 2)."""
    return LocalDeviation(2.0, 2.5, constant_c2(f, moments), constant_c3(f, moments))


def theorem_one_em(f: Smoothness, *, start: float, radius: float) -> Bound:
    """Theorem 1 for Euler-Maruyama from a point.

    Args:
        f: constants of the target, by ``certified`` or ``estimated``.
        start: W2 between the start and the target.
        radius: the distance of the starting point from the minimiser.
    """
    f.hessian()
    check_from_zero(radius=radius)
    own = 2.0 / (f.strong_convexity + f.smoothness)
    return _theorem_one(
        f,
        scheme="em",
        gradients=1,
        start=start,
        own_step=own,
        deviation=lambda h: em_deviation(f, em_moments(f, h, radius=radius)),
    )


def theorem_one_srk_ld(f: Smoothness, *, start: float, radius: float) -> Bound:
    """Theorem 2: Theorem 1 for SRK-LD from a point at this distance from the minimiser.

    Args:
        f: constants of the target, by ``certified`` or ``estimated``.
        start: W2 between the start and the target.
        radius: the distance of the starting point from the minimiser.
    """
    f.third()
    check_from_zero(radius=radius)
    return _theorem_one(
        f,
        scheme="srk-ld",
        gradients=3,
        start=start,
        own_step=f.strong_convexity / f.smoothness**2,
        deviation=lambda h: srk_ld_deviation(f, srk_ld_moments(f, h, radius=radius)),
    )


def _theorem_one(
    f: Smoothness, *, scheme: str, gradients: int, start: float, own_step: float, deviation: master.DeviationAt
) -> Bound:
    return master.theorem_one(
        deviation,
        contraction=f.strong_convexity,
        drift_lipschitz=f.smoothness,
        start=start,
        own_step=own_step,
        name="Theorem 1" if scheme == "em" else "Theorem 2",
        scheme=scheme,
        gradients_per_step=gradients,
        source="the paper, constants repaired; moments derived here",
    )
