"""Slopes and exponents, and how far they are to be trusted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

_EXPONENTS = torch.arange(-400, 2001, dtype=torch.float64) / 200  # -2 to 10


class Line(NamedTuple):
    """The slope of a least-squares line, and half the width of its 95 % interval."""

    slope: float
    half_width: float


class Power(NamedTuple):
    """factor·x^exponent, and half the width of the exponent's 95 % interval: infinite where the points set none."""

    exponent: float
    half_width: float
    factor: float


def student(freedom: int, deviations: float) -> float:
    """How many standard errors, known from so many degrees of freedom, are as rare as these many of a normal."""
    from scipy.special import ndtr, stdtrit

    return -float(stdtrit(freedom, ndtr(-deviations)))


def student_95(freedom: int) -> float:
    """The 97.5 % quantile of Student's t: 12.7 for two repeats, 3.18 for four, 2.09 for twenty."""
    return student(freedom, 1.959964)


def fit_line(x: Sequence[float], y: Sequence[float]) -> Line:
    """Through points of equal errors, judged by their scatter."""
    if not len(x) == len(y) >= 3 or len(set(x)) < 2:
        raise ValueError(f"a line needs three or more points, not all above each other; got {len(x)} and {len(y)}")
    middle_x, middle_y = (math.fsum(values) / len(values) for values in (x, y))
    spread = math.fsum((a - middle_x) ** 2 for a in x)
    slope = math.fsum((a - middle_x) * (b - middle_y) for a, b in zip(x, y, strict=True)) / spread
    residuals = (b - middle_y - slope * (a - middle_x) for a, b in zip(x, y, strict=True))
    variance = math.fsum(r**2 for r in residuals) / (len(x) - 2)
    return Line(slope, student_95(len(x) - 2) * math.sqrt(variance / spread))


def fit_power(x: Sequence[float], samples: Tensor) -> Power:
    """Through the means of samples (repeats, points), weighted by their errors; the interval is the jackknife's.

    Not through logarithms: means that noise has made negative count like others, where leaving them out would bend the
    curve up. Leaving out one repeat after the other allows for points that share their noise.
    """
    repeats = len(samples)
    if repeats < 3 or len(x) < 3 or len(set(x)) < 2 or not samples.isfinite().all() or min(x) <= 0:
        raise ValueError(
            "a power needs three or more repeats of finite values at three or more positive abscissae; got "
            f"{repeats} at {list(x)}"
        )
    errors = samples.std(0) / math.sqrt(repeats)
    whole, factor = _power(x, samples.mean(0), errors)
    rest = [_power(x, torch.cat((samples[:k], samples[k + 1 :])).mean(0), errors)[0] for k in range(repeats)]
    ends = (float(_EXPONENTS[0]), float(_EXPONENTS[-1]))
    if any(exponent in ends for exponent in (whole, *rest)):
        return Power(whole, math.inf, factor)
    middle = math.fsum(rest) / repeats
    variance = (repeats - 1) / repeats * math.fsum((exponent - middle) ** 2 for exponent in rest)
    return Power(whole, student_95(repeats - 1) * math.sqrt(variance), factor)


def _power(x: Sequence[float], y: Tensor, errors: Tensor) -> tuple[float, float]:
    """The exponent and the factor, which is not negative, of least χ²."""
    model = torch.tensor(x, dtype=torch.float64).log().outer(_EXPONENTS).exp() / errors.unsqueeze(-1)
    data = (y / errors).unsqueeze(-1)
    factors = ((model * data).sum(0) / model.square().sum(0)).clamp(min=0.0)
    best = int((data - factors * model).square().sum(0).argmin())
    return float(_EXPONENTS[best]), float(factors[best])
