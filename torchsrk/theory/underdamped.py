"""Underdamped Langevin at γ = 2, u = 1/L: Cheng's scheme and the randomized midpoint (the last two Examples).

In the norm of (x, x + v) the diffusion contracts like e^(-t/(2κ)) (Cheng et al., 2018, Theorem 5): its drift differs by
(ψ - z, -ψ + (I - uH)z) at differences z of x and ψ of x + v, and ‖2I - uH‖ ≤ 2 - 1/κ. With E = E‖v‖² over a step, the
gradient held still leaves deviations of at most √(E/3)h² in v and √(E/15)h³ in x (their Theorem 9).

Moments are closed by the coupling itself: at a distance w from stationarity, where E‖v‖² = d/L and E‖u∇f‖² ≤ d/L, the
norms of v and u∇f are at most √(d/L) + √2·w. So no moment of a chain is needed, and no condition on ε.
"""

from __future__ import annotations

import math

from . import master
from .bounds import Bound, decay_of
from .master import LocalDeviation
from .numbers import check_from_zero
from .recursion import fixed_point_bound
from .smoothness import Smoothness

FRICTION = 2.0  # γ; the inverse mass u is 1/L
_V, _X = math.sqrt(1.0 / 3.0), math.sqrt(1.0 / 15.0)
_DRIFT = 2.0  # the Lipschitz constant of the drift in (x, x + v): the norm of [[-1, 1], [1 - t, -1]], t from 0 to 1
_ROOT2 = math.sqrt(2.0)


def cheng_deviation(h: float) -> float:
    """Of Cheng's scheme in the norm of (x, x + v), over √E‖v‖²; their Theorem 9 has (2/5)^½h² in that of (x, v)."""
    return math.hypot(_X * h**3, _X * h**3 + _V * h**2)


def midpoint_mean(h: float) -> float:
    """Of the randomized midpoint, averaged over its random time, over √E‖v‖².

    What is left is the midpoint's own deviation: ∫√(1/15)s³ds in v, and (h - s) times that in x.
    """
    in_v, in_x = _X * h**4 / 4.0, _X * h**5 / 20.0
    return math.hypot(in_x, in_x + in_v)


def midpoint_spread(h: float) -> float:
    """Of its random time, over √E‖v‖² and √E‖u∇f‖², which are bounded alike.

    In v: h times the deviation of e^(-2(h - s))u∇f(x_s) over s, where ‖x_s - x_0‖ ≤ s(1 + √(1/15)s²) and the slope of
    the kernel is at most 2. In x: the kernel is at most h - s, with slope 1 at most.
    """
    travelled = h / math.sqrt(3.0) * (1.0 + _X * h**2)
    in_v = h * (travelled + 2.0 * h / math.sqrt(12.0))
    in_x = h * (h * travelled + h / math.sqrt(12.0))
    return math.hypot(in_x, in_x + in_v)


def cheng(f: Smoothness, *, start: float) -> Bound:
    """w' ≤ e^(-h/(2κ))w + c(√(d/L) + √2w), c = ``cheng_deviation``: their theorems, moments by the coupling.

    Args:
        f: constants of the target, by ``certified`` or ``estimated``.
        start: W2 between the start and the target.
    """
    return _coupled(f, start, name="Cheng et al.", scheme="cheng", gradients=1, mean=cheng_deviation, spread=_none)


def cheng_stated(f: Smoothness, *, radius: float) -> Bound:
    """4e^(-nh/(2κ))W₀ + 4h²√(2E/5)/(1 - e^(-h/(2κ))), E = 26(d/m + D²), W₀ ≤ 3√(d/m + D²), h ≤ 1: as they state it.

    For a start at rest. From memory: with h = ε/(104κ√(d/m + D²)) each half is at most ε/2, which is their Theorem 1
    and its 208κ²√(d/m + D²)/ε·log(24√(d/m + D²)/ε) steps.

    Args:
        f: constants of the target, by ``certified`` or ``estimated``.
        radius: D, the distance of the starting point from the minimiser.
    """
    check_from_zero(radius=radius)
    kappa, size = f.condition, math.sqrt(f.dim / f.strong_convexity + radius**2)
    return Bound(
        name="Cheng et al., as stated",
        scheme="cheng",
        gradients_per_step=1,
        source="Cheng et al. (2018), Theorem 1; from memory",
        start=3.0 * size,
        largest_step=1.0,
        decay=lambda h: h / (2.0 * kappa),
        bias=lambda h: 4.0 * h**2 * math.sqrt(2.0 * 26.0 / 5.0) * size / -math.expm1(-h / (2.0 * kappa)),
        factor=4.0,
    )


def shen_lee(f: Smoothness, *, start: float) -> Bound:
    """w' ≤ √((e^(-h/(2κ))w + b)² + c²), b and c the mean and the spread of a step's deviation times √(d/L) + √2w.

    Shen and Lee (2019) state their theorem up to a constant; this is their argument with one.

    Args:
        f: constants of the target, by ``certified`` or ``estimated``.
        start: W2 between the start and the target.
    """
    return _coupled(
        f,
        start,
        name="Shen-Lee",
        scheme="randomized-midpoint",
        gradients=2,
        mean=midpoint_mean,
        spread=midpoint_spread,
    )


def _none(h: float) -> float:
    return 0.0


def _coupled(
    f: Smoothness, start: float, *, name: str, scheme: str, gradients: int, mean: master.Number, spread: master.Number
) -> Bound:
    kappa, level = f.condition, math.sqrt(f.dim / f.smoothness)

    def lost(h: float) -> float:
        """1 - ρ, ρ with what a step's deviation grows by at a distance."""
        return -math.expm1(-h / (2.0 * kappa)) - _ROOT2 * (mean(h) + spread(h))

    return Bound(
        name=name,
        scheme=scheme,
        gradients_per_step=gradients,
        source="its authors' contraction and local deviation, each derived again; explicit constants derived here",
        start=start,
        largest_step=_half_lost(lost, kappa),
        decay=lambda h: decay_of(lost(h)),
        bias=lambda h: fixed_point_bound(lost(h), mean(h) * level, spread(h) * level, drag=_ROOT2 * spread(h)),
        factor=_ROOT2,
    )


def _half_lost(lost: master.Number, kappa: float) -> float:
    """The largest step, up to 1, that keeps half of the contraction."""
    low, high = 0.0, 1.0
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if lost(middle) >= middle / (4.0 * kappa) else (low, middle)
    return low


def theorem_one_cheng(f: Smoothness, *, start: float) -> Bound:
    """The paper's Example: Theorem 1 with orders (1.5, 2), from deviations of order h² and h < 1.

    Args:
        f: constants of the target, by ``certified`` or ``estimated``.
        start: W2 between the start and the target.
    """
    return _theorem_one(f, start, "Theorem 1, underdamped", "cheng", 1, _cheng_orders)


def theorem_one_midpoint(f: Smoothness, *, start: float) -> Bound:
    """The paper's Example: Theorem 1 with orders (2, 4).

    Args:
        f: constants of the target, by ``certified`` or ``estimated``.
        start: W2 between the start and the target.
    """
    return _theorem_one(f, start, "Theorem 1, randomized midpoint", "randomized-midpoint", 2, _midpoint_orders)


def _cheng_orders(h: float, speed: float) -> LocalDeviation:
    square = (cheng_deviation(h) * speed / h**2) ** 2
    return LocalDeviation(1.5, 2.0, square * h, square)


def _midpoint_orders(h: float, speed: float) -> LocalDeviation:
    mean = midpoint_mean(h) * speed
    square = mean**2 + (midpoint_spread(h) * speed) ** 2
    return LocalDeviation(2.0, 4.0, square / h**4, mean**2 / h**8)


def _theorem_one(
    f: Smoothness, start: float, name: str, scheme: str, gradients: int, orders: master.SpeedDeviation
) -> Bound:
    coupled = {"cheng": cheng, "randomized-midpoint": shen_lee}[scheme](f, start=start)
    level = math.sqrt(f.dim / f.smoothness)

    def deviation(h: float) -> LocalDeviation:
        # A chain is never farther than the coupling says: with that its speeds are bounded.
        return orders(h, level + _ROOT2 * (_ROOT2 * start + coupled.bias(h)))

    return master.theorem_one(
        deviation,
        contraction=1.0 / (2.0 * f.condition),
        drift_lipschitz=_DRIFT,
        start=start,
        own_step=coupled.largest_step,
        name=name,
        scheme=scheme,
        gradients_per_step=gradients,
        source="the paper's Example; constants derived here",
        factor=_ROOT2,
    )
