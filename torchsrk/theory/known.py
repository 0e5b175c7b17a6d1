"""Bounds of others for Euler-Maruyama on strongly convex smooth potentials (Langevin Monte Carlo).

Each was derived again before it was written down; the derivations are couplings with the stationary diffusion L, for
which E‖∇f(L)‖² = EΔf(L) ≤ Ld.
"""

from __future__ import annotations

import math

from .bounds import Bound, decay_of
from .smoothness import Smoothness


def dalalyan_karagulyan(f: Smoothness, *, start: float) -> Bound:
    """(1 - mh)ⁿW₀ + 1.65κ√(hd), h ≤ 2/(m + L): Dalalyan and Karagulyan (2019), Theorem 1.

    A step deviates by at most L∫(s√(Ld) + √(2sd))ds = L√d(½√L h² + (2√2/3)h^(3/2)), over mh; hL ≤ 2 gives 1.65.

    Args:
        f: constants of the target, by ``certified`` or ``estimated``.
        start: W2 between the start and the target.
    """
    m, smooth, d = f.strong_convexity, f.smoothness, f.dim
    return Bound(
        name="Dalalyan-Karagulyan",
        scheme="em",
        gradients_per_step=1,
        source="Dalalyan and Karagulyan (2019), Theorem 1; derived again",
        start=start,
        largest_step=2.0 / (m + smooth),
        decay=lambda h: decay_of(m * h),
        bias=lambda h: 1.65 * f.condition * math.sqrt(h * d),
    )


def dalalyan_karagulyan_hessian(f: Smoothness, *, start: float) -> Bound:
    """(1 - mh)ⁿW₀ + M₂hd/(2m) + 11L^(3/2)h√d/(5m), M₂ the Hessian's Lipschitz constant: theirs for smooth Hessians.

    A step's deviation is a martingale of variance (2/3)L²dh³ and a rest of at most (h²/2)(L^(3/2)√d + M₂d): with
    ``fixed_point_bound`` that is M₂hd/(2m) and 1.32 for 11/5.

    Args:
        f: constants of the target, by ``certified`` or ``estimated``.
        start: W2 between the start and the target.
    """
    m, smooth, d, third = f.strong_convexity, f.smoothness, f.dim, f.hessian()
    return Bound(
        name="Dalalyan-Karagulyan, Hessian",
        scheme="em",
        gradients_per_step=1,
        source="Dalalyan and Karagulyan (2019), the theorem for Lipschitz Hessians; 11/5 from memory, 1.32 derived",
        start=start,
        largest_step=2.0 / (m + smooth),
        decay=lambda h: decay_of(m * h),
        bias=lambda h: (third * d / 2.0 + 2.2 * smooth**1.5 * math.sqrt(d)) * h / m,
    )


def durmus_moulines(f: Smoothness, *, start: float) -> Bound:
    """W2² ≤ 2(1 - κ'h/2)ⁿW₀² + (2/κ')L²dh(1/κ' + h)(2 + L²h/m + L²h²/6), κ' = 2mL/(m + L), h ≤ 1/(m + L).

    Durmus and Moulines (2019), Theorem 5, at a constant step, from memory and implied by this: with
    ‖a - b‖² ≤ (1 + κ'h/2)‖a‖² + (1 + 2/(κ'h))‖b‖², and E‖L_s - L_0‖² ≤ 2ds + Lds², a step adds at most
    L²dh²(1/κ' + h/2)(2 + 2Lh/3), and L ≤ L²/m.

    Args:
        f: constants of the target, by ``certified`` or ``estimated``.
        start: W2 between the start and the target.
    """
    m, smooth, d = f.strong_convexity, f.smoothness, f.dim
    mixed = 2.0 * m * smooth / (m + smooth)

    def squared(h: float) -> float:
        return smooth**2 * d * h**2 * (1.0 / mixed + h) * (2.0 + smooth**2 * h / m + smooth**2 * h**2 / 6.0)

    return Bound(
        name="Durmus-Moulines",
        scheme="em",
        gradients_per_step=1,
        source="Durmus and Moulines (2019), Theorem 5; form from memory, implied by the derivation here",
        start=start,
        largest_step=1.0 / (m + smooth),
        decay=lambda h: 0.5 * decay_of(mixed * h / 2.0),
        bias=lambda h: math.sqrt(squared(h) / (mixed * h / 2.0)),
        factor=math.sqrt(2.0),
    )
