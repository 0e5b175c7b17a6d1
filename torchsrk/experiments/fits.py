"""Slopes and exponents, and how far they are to be trusted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

_NORMAL_95 = 1.959964
_EXPONENTS = [k / 200 for k in range(-400, 2001)]  # -2 to 10


class Line(NamedTuple):
    """The slope of a least-squares line, and half the width of its 95 % interval."""

    slope: float
    half_width: float


class Power(NamedTuple):
    """factor·x^exponent, and the ends of the exponent's 95 % interval: infinite where the points set none."""

    exponent: float
    low: float
    high: float
    factor: float

    def __str__(self) -> str:
        return f"{self.exponent:.2f} ({self.low:.2f} to {self.high:.2f})"


def fit_line(x: Sequence[float], y: Sequence[float]) -> Line:
    """Through points of equal errors, judged by their scatter."""
    if not len(x) == len(y) >= 3 or len(set(x)) < 2:
        raise ValueError(f"a line needs three or more points, not all above each other; got {len(x)} and {len(y)}")
    middle_x, middle_y = (math.fsum(values) / len(values) for values in (x, y))
    spread = math.fsum((a - middle_x) ** 2 for a in x)
    slope = math.fsum((a - middle_x) * (b - middle_y) for a, b in zip(x, y, strict=True)) / spread
    residuals = (b - middle_y - slope * (a - middle_x) for a, b in zip(x, y, strict=True))
    variance = math.fsum(r**2 for r in residuals) / (len(x) - 2)
    return Line(slope, _NORMAL_95 * math.sqrt(variance / spread))


def fit_power(x: Sequence[float], y: Sequence[float], errors: Sequence[float]) -> Power:
    """Through points whose y have these standard errors, by weighted least squares.

    Not through logarithms: y that noise has made negative count like others, where leaving them out would bend the
    curve up. The interval holds the exponents whose χ² is near the least one; points that scatter by more than their
    errors, as where there is no power law, widen it.
    """
    if not len(x) == len(y) == len(errors) >= 3 or len(set(x)) < 2 or not all(a > 0 for a in (*x, *errors)):
        raise ValueError(
            "a power needs three or more points, not all above each other, with positive abscissae and errors; "
            f"got {len(x)}, {len(y)} and {len(errors)}"
        )
    fits = [_factor_and_misfit(p, x, y, errors) for p in _EXPONENTS]
    best = min(range(len(fits)), key=lambda k: fits[k][1])
    factor, least = fits[best]
    allowed = least + _NORMAL_95**2 * max(1.0, least / (len(x) - 2))
    inside = [p for p, (_, misfit) in zip(_EXPONENTS, fits, strict=True) if misfit <= allowed]
    low = inside[0] if inside[0] > _EXPONENTS[0] else -math.inf
    high = inside[-1] if inside[-1] < _EXPONENTS[-1] else math.inf
    return Power(_EXPONENTS[best], low, high, factor)


def _factor_and_misfit(
    p: float, x: Sequence[float], y: Sequence[float], errors: Sequence[float]
) -> tuple[float, float]:
    """The best factor of x^p, which is not negative, and χ²."""
    model = [a**p / e for a, e in zip(x, errors, strict=True)]
    data = [b / e for b, e in zip(y, errors, strict=True)]
    squares = math.fsum(m * m for m in model)
    factor = max(0.0, math.fsum(m * d for m, d in zip(model, data, strict=True)) / squares)
    return factor, math.fsum((d - factor * m) ** 2 for m, d in zip(model, data, strict=True))
