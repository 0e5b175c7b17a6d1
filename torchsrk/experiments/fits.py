"""Lines through points with known errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_NORMAL_95 = 1.959964


@dataclass(frozen=True)
class Line:
    """A weighted least-squares line; the half width is of the slope's 95 % interval, from the points' errors."""

    slope: float
    intercept: float
    half_width: float
    errors: Sequence[float]


def fit_line(x: Sequence[float], y: Sequence[float], errors: Sequence[float]) -> Line:
    """Through points (x, y) whose y have the standard errors given."""
    if not len(x) == len(y) == len(errors) >= 2 or any(not error > 0 for error in errors):
        raise ValueError(f"a line needs two or more points with positive errors; got {len(x)}, {len(y)}, {len(errors)}")
    weights = [error**-2 for error in errors]
    total = math.fsum(weights)
    middle_x, middle_y = (math.fsum(w * v for w, v in zip(weights, values, strict=True)) / total for values in (x, y))
    spread = math.fsum(w * (v - middle_x) ** 2 for w, v in zip(weights, x, strict=True))
    if spread == 0:
        raise ValueError("a line needs two different abscissae")
    slope = math.fsum(w * (a - middle_x) * (b - middle_y) for w, a, b in zip(weights, x, y, strict=True)) / spread
    return Line(slope, middle_y - slope * middle_x, _NORMAL_95 / math.sqrt(spread), errors)
