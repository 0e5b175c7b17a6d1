"""The free flow dX = V dt, dV = -γV dt + √(2γu) dB: what it does over a step, exactly, and what it does within.

All of it is in units in which the numbers are of order one whatever γh is: time h, velocity √(2γuh), position h√(2γuh).
In them the noise of a step is ∫e^(-xr)dB in velocity and ∫(1 - e^(-xr))/x dB in position, r in [0, 1] the time left,
x = γh. The functions of x below are series where their closed forms cancel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from ..brownian.increment import Increment
from ..derived import of_step_size
from ..sde.terms import Term

_SQRT12 = math.sqrt(12.0)
_SERIES_BELOW = 1.0
_SERIES_TERMS = 24
_FIT_UP_TO = 4.0  # γh up to which functions of a random time are fitted, as their closed forms would cancel
_FIT_ERROR = 1e-13
_FIT_DEGREES = range(8, 33, 2)


def reach(x: float) -> float:
    """(1 - e^(-x))/x: how far a unit velocity gets in a unit of time."""
    return -math.expm1(-x) / x if x > 0.0 else 1.0


def fall(x: float) -> float:
    """(x - 1 + e^(-x))/x²: how far a unit force gets in a unit of time, from rest."""
    if x < _SERIES_BELOW:
        return _series(x, lambda n: 1.0 / math.factorial(n + 2))
    return (1.0 - reach(x)) / x


def position_variance(x: float) -> float:
    """(2x - 3 + 4e^(-x) - e^(-2x))/(2x³)."""
    if x < _SERIES_BELOW:
        return _series(x, lambda n: (2.0 ** (n + 2) - 2.0) / math.factorial(n + 3))
    return (1.0 - (3.0 - 4.0 * math.exp(-x) + math.exp(-2.0 * x)) / (2.0 * x)) / x / x


def velocity_variance(x: float) -> float:
    """(1 - e^(-2x))/(2x)."""
    return reach(2.0 * x)


def covariance(x: float) -> float:
    """(1 - e^(-x))²/(2x²)."""
    return 0.5 * reach(x) ** 2


@dataclass(frozen=True, slots=True)
class FreeFlow:
    """What a step of length h does: X' = X + cV + N_X, V' = ηV + N_V, and -k∇ in position for a constant force.

    Attributes:
        eta, c, k: e^(-γh), (1 - η)/γ and (h - c)/γ.
        position, velocity: N_X and N_V as multiples of (W, H).
        middle: E[N_X over h/2 | N_X, N_V over h] as multiples of (N_X, N_V).
        middle_deviation: the standard deviation of what that leaves open.
    """

    eta: float
    c: float
    k: float
    position: tuple[float, float]
    velocity: tuple[float, float]
    middle: tuple[float, float]
    middle_deviation: float

    def noise(self, W: Tensor, H: Tensor) -> tuple[Tensor, Tensor]:
        """(N_X, N_V), of exactly their law, and off E[N_X, N_V | W, H] by O(h^3.5)."""
        return (
            self.position[0] * W + Term(self.position[1], H),
            self.velocity[0] * W + Term(self.velocity[1], H),
        )


@of_step_size
@lru_cache(maxsize=512)
def free_flow(friction: float, u: float, h: float) -> FreeFlow:
    """The free flow over a step of length h."""
    x, scale = friction * h, math.sqrt(2.0 * friction * u)
    area = scale * _SQRT12 * area_share(x)
    from_position, from_velocity, spread = bridge(x, 0.5)
    return FreeFlow(
        eta=math.exp(-x),
        c=h * reach(x),
        k=h * h * fall(x),
        position=(scale * h * fall(x), area * h),
        velocity=(scale * reach(x), -area * x),
        middle=(from_position, h * from_velocity),
        middle_deviation=scale * h**1.5 * math.sqrt(spread / 64.0),
    )


def composed(friction: float, u: float, first: Increment, second: Increment) -> Increment:
    """W and H of a step twice as long that has the noise of two: N_V' = ηN_V1 + N_V2, N_X' = N_X1 + cN_V1 + N_X2."""
    assert first.H is not None
    assert second.H is not None
    short, long = free_flow(friction, u, first.dt), free_flow(friction, u, 2.0 * first.dt)
    position, velocity = short.noise(first.W, first.H)
    position = position + Term(short.c, velocity) + short.noise(second.W, second.H)[0]
    W = first.W + second.W
    return Increment(2.0 * first.dt, W, H=(position - long.position[0] * W) / long.position[1])


def area_share(x: float) -> float:
    """√(Var N_X - E[N_X W]²): the multiple of the normal √12 H/√h in N_X; in N_V it is -x times that.

    γN_X + N_V = √(2γu)W for every path, so the multiples of W are those of E[N_X, N_V | W, H], and one number is left
    to choose. With the conditional expectation's own, √12·∫(½ - r)e^(-xr)dr/x, the law would be a little too narrow;
    with this one, larger by a share of γ²h²/120 or so, it is exact. Two forms of one difference, each where it does
    not cancel.
    """
    if x < 2.0:
        return math.sqrt(position_variance(x) - fall(x) ** 2)
    return math.sqrt(velocity_variance(x) - reach(x) ** 2) / x


def bridge(x: float, tau: float) -> tuple[float, float, float]:
    """The noise in position at time τ of the step given (N_X, N_V) of all of it: the coefficients of its mean, and its
    variance over (τ(1 - τ))³.

    The variance comes from adding up what both ends tell, as precisions: nothing cancels there, even at τ = 0 or 1.
    """
    left, decay = 1.0 - tau, math.exp(-x * (1.0 - tau))
    position, both, velocity = position_variance(x), covariance(x), velocity_variance(x)
    with_velocity = decay * tau**2 * covariance(x * tau)
    with_position = tau**3 * position_variance(x * tau) + left * reach(x * left) * tau**2 * covariance(x * tau)
    determinant = position * velocity - both * both
    from_position = (with_position * velocity - with_velocity * both) / determinant
    from_velocity = (with_velocity * position - with_position * both) / determinant
    behind, ahead = _precision(x * tau), _precision(x * left)
    pull = reach(x * left)
    of_position = left**3 * behind[0] + tau**3 * ahead[0]
    of_both = left**2 * behind[1] + tau**2 * (pull * ahead[0] + decay * ahead[1])
    of_velocity = left * behind[2] + tau * (pull**2 * ahead[0] + 2.0 * pull * decay * ahead[1] + decay**2 * ahead[2])
    return from_position, from_velocity, of_velocity / (of_position * of_velocity - of_both**2)


@dataclass(frozen=True, slots=True)
class RandomTime:
    """The flow up to a time τh of a step that every particle has of its own, as tensors over particles (..., 1).

    Up to γh = 4 the functions of τ are polynomials in 2τ - 1, fitted in double precision to 1e-13 of their maximum, as
    their closed forms lose digits, in float32 all of them. Above it they are closed forms.
    """

    x: float
    h: float
    scale: float
    fits: tuple[tuple[float, ...], ...]

    def reach(self, tau: Tensor) -> Tensor:
        """(1 - e^(-γτh))/γ."""
        return torch.expm1(tau * -self.x) * (-self.h / self.x)

    def decay(self, tau: Tensor) -> Tensor:
        """e^(-γτh)."""
        return torch.exp(tau * -self.x)

    def fall(self, tau: Tensor) -> Tensor:
        """(τh - (1 - e^(-γτh))/γ)/γ."""
        if self.fits:
            return _polynomial(self.fits[3], tau) * (tau * tau)
        return (tau + torch.expm1(tau * -self.x) / self.x) * (self.h**2 / self.x)

    def noise(self, tau: Tensor, position: Tensor, velocity: Tensor, Z: Tensor) -> Tensor:
        """The noise in position at τh, of its law given that of the step's end: its mean, and its rest from Z."""
        from_position, from_velocity, deviation = self._bridge(tau)
        return from_position * position + from_velocity * velocity + deviation * Z

    def _bridge(self, tau: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.fits:
            room = tau * (1.0 - tau)
            variance = _polynomial(self.fits[2], tau) * (room * room * room)
            return _polynomial(self.fits[0], tau), _polynomial(self.fits[1], tau), variance.clamp_min(0.0).sqrt()
        x, ending = self.x, math.exp(-self.x)
        position, both, velocity = position_variance(x), covariance(x), velocity_variance(x)
        determinant = position * velocity - both * both
        down, ahead = torch.expm1(tau * -x), torch.exp((tau - 1.0) * x)
        fallen = 2.0 * (x * tau + down)
        with_position = (fallen - ahead + ending - ending * down) / (2.0 * x**3)
        with_velocity = ahead * down.square() / (2.0 * x**2)
        own = (fallen - down.square()) / (2.0 * x**3)
        from_position = with_position * (velocity / determinant) - with_velocity * (both / determinant)
        from_velocity = with_velocity * (position / determinant) - with_position * (both / determinant)
        variance = own - from_position * with_position - from_velocity * with_velocity
        return from_position, from_velocity * self.h, self.scale * variance.clamp_min(0.0).sqrt()


@of_step_size
def random_time(friction: float, u: float, h: float) -> RandomTime:
    """The flow up to a random time of a step of length h."""
    x, scale = friction * h, math.sqrt(2.0 * friction * u) * h**1.5
    return RandomTime(x, h, scale, _constant_fits(x, h, scale))


def _constant_fits(x: float, h: float, scale: float) -> tuple[tuple[float, ...], ...]:
    return _fits(x, h, scale)


# As torch.compiler.assume_constant_result does, which would import all of torch's compiler here and now.
_constant_fits._dynamo_marked_constant = True  # type: ignore[attr-defined]


@lru_cache(maxsize=512)
def _fits(x: float, h: float, scale: float) -> tuple[tuple[float, ...], ...]:
    """The polynomials of a random time; none beyond the γh up to which they are needed."""
    if x > _FIT_UP_TO:
        return ()
    functions = (
        lambda tau: bridge(x, tau)[0],
        lambda tau: h * bridge(x, tau)[1],
        lambda tau: scale**2 * bridge(x, tau)[2],
        lambda tau: h * h * fall(x * tau),
    )
    return tuple(map(_fit, functions))


def _series(x: float, coefficient: Callable[[int], float]) -> float:
    """Σ coefficient(n)(-x)^n, by Horner's rule."""
    total = 0.0
    for n in reversed(range(_SERIES_TERMS)):
        total = coefficient(n) - x * total
    return total


def _precision(x: float) -> tuple[float, float, float]:
    """The inverse of the covariance of (N_X, N_V): of position, of both, of velocity."""
    position, both, velocity = position_variance(x), covariance(x), velocity_variance(x)
    determinant = position * velocity - both * both
    return velocity / determinant, -both / determinant, position / determinant


def _fit(function: Callable[[float], float]) -> tuple[float, ...]:
    """Coefficients, lowest first, of the polynomial in 2τ - 1 that meets a smooth function on [0, 1]."""
    checked = np.linspace(-1.0, 1.0, 41)
    wanted = np.array([function(0.5 * (1.0 + y)) for y in checked.tolist()])
    for degree in _FIT_DEGREES:
        nodes = np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1))
        values = [function(0.5 * (1.0 + y)) for y in nodes.tolist()]
        series = np.polynomial.chebyshev.chebfit(nodes, values, degree)
        fitted = np.polynomial.chebyshev.cheb2poly(series)
        error = np.abs(np.polynomial.polynomial.polyval(checked, fitted) - wanted).max()
        if error <= _FIT_ERROR * np.abs(wanted).max():
            return tuple(fitted.tolist())
    raise ArithmeticError("no polynomial of degree 32 fits this function of the random time")


def _polynomial(coefficients: tuple[float, ...], tau: Tensor) -> Tensor:
    """The polynomial in 2τ - 1, by Horner's rule."""
    y = 2.0 * tau - 1.0
    total = y * coefficients[-1] + coefficients[-2]
    for coefficient in reversed(coefficients[:-2]):
        total = total * y + coefficient
    return total
