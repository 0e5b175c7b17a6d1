"""Lines through points, and how far their slopes are to be trusted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_NORMAL_95 = 1.959964


@dataclass(frozen=True)
class Line:
    """The slope of a least-squares line, and half the width of its 95 % interval."""

    slope: float
    half_width: float


def fit_line(x: Sequence[float], y: Sequence[float], errors: Sequence[float] | None = None) -> Line:
    """Through points (x, y) whose y have these standard errors; without them, equal ones judged by the scatter."""
    known = errors is not None
    errors = errors if errors is not None else [1.0] * len(x)
    least = 2 if known else 3
    if not len(x) == len(y) == len(errors) >= least or any(not error > 0 for error in errors):
        raise ValueError(
            f"a line needs {least} or more points with positive errors; got {len(x)}, {len(y)}, {len(errors)}"
        )
    weights = [error**-2 for error in errors]
    total = math.fsum(weights)
    middle_x, middle_y = (math.fsum(w * v for w, v in zip(weights, values, strict=True)) / total for values in (x, y))
    spread = math.fsum(w * (v - middle_x) ** 2 for w, v in zip(weights, x, strict=True))
    if spread == 0:
        raise ValueError("a line needs two different abscissae")
    slope = math.fsum(w * (a - middle_x) * (b - middle_y) for w, a, b in zip(weights, x, y, strict=True)) / spread
    residuals = [b - middle_y - slope * (a - middle_x) for a, b in zip(x, y, strict=True)]
    variance = 1.0 if known else math.fsum(r**2 for r in residuals) / (len(x) - 2)
    return Line(slope, _NORMAL_95 * math.sqrt(variance / spread))
