"""The paper's constants N and M on moments of SRK-LD and SRK-ID, as printed: no bound here rests on them.

Deriving them again found slips. For SRK-LD: E⟨∇f(H₁), v⟩ is a multiple of EΔf ≤ dμ₂(f), not dμ₃(f), and a d in the same
N₅ lacks μ₂(f); ‖H₂‖² has -2⟨x, ∇f(x)⟩h, not +; E[χ^(2q)]^(1/q) ≥ E[χ²], not ≤, in N₁₂. For SRK-ID: the sign that
ito.py tells of. Their step sizes are kept to say what the theorems as printed would ask for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

from .ito import DiffusionConstants
from .smoothness import Smoothness


def n1(f: Smoothness) -> float:
    """2π₂,₂(2 + 4π₂,₁) (lemma on the second moment, as N₁ to N₆; π₂,ₙ(f) = Lⁿ about the minimiser)."""
    return 2.0 * f.smoothness**2 * (2.0 + 4.0 * f.smoothness)


def n2(f: Smoothness) -> float:
    """2π₂,₂(6d + 2)."""
    return 2.0 * f.smoothness**2 * (6.0 * f.dim + 2.0)


def n3(f: Smoothness) -> float:
    """2√(2dπ₂,₂)(1 + √π₂,₁)."""
    return 2.0 * math.sqrt(2.0 * f.dim) * f.smoothness * (1.0 + math.sqrt(f.smoothness))


def n4(f: Smoothness) -> float:
    """2√(2dπ₂,₂)(1 + √(3d))."""
    return 2.0 * math.sqrt(2.0 * f.dim) * f.smoothness * (1.0 + math.sqrt(3.0 * f.dim))


def n5(f: Smoothness) -> float:
    """αβ + μ₂π₂,₂ + d + 5dμ₃ + 2β, β = 0."""
    return f.smoothness**3 + f.dim + 5.0 * f.dim * f.hessian()


def n6(f: Smoothness) -> float:
    """(2N₂ + 16d + 8N₅ + 4N₃² + 8N₄)/(3α)."""
    total = 2.0 * n2(f) + 16.0 * f.dim + 8.0 * n5(f) + 4.0 * n3(f) ** 2 + 8.0 * n4(f)
    return total / (3.0 * f.strong_convexity)


def chi_moment(dim: int, power: int) -> float:
    """E[χ(d)^(2n)] = d(d + 2)···(d + 2n - 2) (auxiliary lemma)."""
    return math.prod(float(dim + 2 * k) for k in range(power))


def n7(f: Smoothness, n: int, radius: float) -> float:
    """(2dn + nN₅ + 4dn(n - 1))𝒰₂₍ₙ₋₁₎ (lemma on the 2n-th moment, as N₇ to N₁₂)."""
    before = moment(f, n - 1, radius) if n > 1 else 1.0
    return (2.0 * f.dim * n + n * n5(f) + 4.0 * f.dim * n * (n - 1)) * before


def n8(f: Smoothness, n: int) -> float:
    """The largest 2^(2p)3^(p/2)(π₂,₂ₚ(1 + π₂,₂ₚ/2))^½, p = 2k₂ + k₄ + k₆."""

    def at(p: int) -> float:
        growth = f.smoothness ** (2 * p)
        return 2.0 ** (2 * p) * 3.0 ** (p / 2) * math.sqrt(growth * (1.0 + growth / 2.0))

    return max(at(2 * k[1] + k[3] + k[5]) for k in _indices(n))


def n9(f: Smoothness, p: int) -> float:
    """(π₂,₂ₚ(2^(4p + 1)3^p E[χ^(2p)] + 2^(4p)3^p π₂,₂ₚ + 1))^½."""
    growth, power = f.smoothness ** (2 * p), 2.0 ** (4 * p) * 3.0**p
    return math.sqrt(growth * (2.0 * power * chi_moment(f.dim, p) + power * growth + 1.0))


def n10(f: Smoothness, n: int) -> float:
    """The largest (E[χ^(4k₃ + 2k₅ + 2k₆)]^½ N₉(2k₂ + k₄ + k₆))^(2n/(2k₂ + 2k₃ + k₄ + k₅ + 2k₆))."""

    def at(k: tuple[int, ...]) -> float:
        noise = math.sqrt(chi_moment(f.dim, 2 * k[2] + k[4] + k[5]))
        power = 2.0 * n / (2 * k[1] + 2 * k[2] + k[3] + k[4] + 2 * k[5])
        return (noise * n9(f, 2 * k[1] + k[3] + k[5])) ** power

    return max(map(at, _indices(n)))


def n11(f: Smoothness, n: int) -> float:
    """2^(3n/2)6ⁿ(1 + N₈)."""
    return 2.0 ** (1.5 * n) * 6.0**n * (1.0 + n8(f, n))


def n12(f: Smoothness, n: int) -> float:
    """2^(3n/2)6ⁿ(N₈dⁿ + N₁₀)."""
    return 2.0 ** (1.5 * n) * 6.0**n * (n8(f, n) * float(f.dim) ** n + n10(f, n))


def moment(f: Smoothness, n: int, radius: float) -> float:
    """𝒰₂ₙ = ‖x₀‖^(2n) + (8/(3αn))(N₇ + N₁₂), and 𝒰₂ = ‖x₀‖² + N₆."""
    if n == 1:
        return radius**2 + n6(f)
    return radius ** (2 * n) + 8.0 / (3.0 * f.strong_convexity * n) * (n7(f, n, radius) + n12(f, n))


def srk_ld_largest_step(f: Smoothness) -> float:
    """C_h of SRK-LD (the section that invokes Theorem 1); its lemma on moments has no N₂ there."""
    m, smooth = f.strong_convexity, f.smoothness
    return min(
        2.0 * f.dim / smooth**2,
        2.0 / smooth,
        m / (4.0 * smooth**3),
        3.0 * m / (2.0 * n1(f) + 2.0 * n2(f) + 4.0),
        *((3.0 * m * n / (8.0 * n11(f, n))) ** 2 for n in (2, 3)),
    )


def m1(c: DiffusionConstants) -> float:
    """M₁ of the lemma on SRK-ID's second moment."""
    bent = c.diffusion[1] * math.sqrt(c.pi_frobenius(4))
    rest = 1.0 + bent + c.pi_drift(1) + math.sqrt(c.pi_frobenius(2))
    return c.pi_drift(2) + 2**3 * 3**2 * c.brownian * bent * rest


def m2(c: DiffusionConstants) -> float:
    """M₂ of the same lemma: 2(β + π₁,₂(b)² + (M₁ - π₁,₂(b))/m)/α, π₁,₂(b) being printed twice."""
    rest = (m1(c) - c.pi_drift(2)) / c.brownian
    return 2.0 * (c.excess + c.pi_drift(2) ** 2 + rest) / c.dissipativity


def m3(c: DiffusionConstants, n: int) -> float:
    """M₃,ₙ of the lemma on SRK-ID's 2n-th moment."""
    growth = c.pi_drift(2 * n) * math.sqrt(c.pi_frobenius(8 * n)) * c.diffusion[1] ** (2 * n)
    return 2.0 ** (23 * n - 1) * 10.0**n * float(n) ** (8 * n) * growth * c.brownian


def srk_id_largest_step(c: DiffusionConstants) -> float:
    """C_h of SRK-ID."""
    alpha = c.dissipativity
    return min(1.0 / c.brownian**2, (alpha / (2.0 * m1(c))) ** 2, (alpha / m3(c, 2)) ** 2)


def _indices(n: int) -> Iterator[tuple[int, ...]]:
    """k₁ to k₆ that add up to n, of terms of order h^(3/2) and more."""
    for k in product(range(n + 1), repeat=6):
        if sum(k) == n and 4 * k[1] + 2 * k[2] + 2 * k[3] + k[4] + 3 * k[5] > 2:
            yield k
