"""Couplings whose step is x' ≤ √((rx + b)² + c²) + sx: what is left of the start, and what stays."""

from __future__ import annotations

import math


def fixed_point_bound(lost: float, mean: float, spread: float, *, drag: float = 0.0) -> float:
    """b/l + c/√(l(2 - l - 2s)), l = 1 - r - s what a step takes off: after n steps x ≤ (1 - l)ⁿx₀ + this.

    By induction x ≤ u + v with v from 0 up to its fixed point, v = √(r²v² + c²) + sv: the triangle inequality in the
    plane gives √((r(u + v) + b)² + c²) ≤ (ru + b) + √(r²v² + c²). Infinite where nothing is taken off.
    """
    if lost <= 0.0 or lost + 2.0 * drag >= 2.0:
        return math.inf
    return mean / lost + spread / math.sqrt(lost * (2.0 - lost - 2.0 * drag))
