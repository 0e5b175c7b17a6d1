"""Laws of a scheme's steps without sampling: closed forms on Gaussians, quadrature in one dimension.

On the mixture ½N(a, I) + ½N(-a, I) the gradient is x - a tanh⟨x, a⟩: along a it depends on that coordinate alone, and
across a it is linear. So from a Gaussian start the law stays a product, of a law on a line and a Gaussian, and squared
W2 distances add up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

SCHEMES = ("em", "srk-ld")  # whose laws are here
_ROOT6 = math.sqrt(1.0 / 6.0)
_AREA_NODES = 12  # of Gauss-Hermite quadrature over the space-time area
_NEWTON_STEPS = 30
_LARGEST_GRID = 4000


class QuadratureError(ArithmeticError):
    """A law that can't be found on a grid of reasonable size; the message says what to change."""


def check_has_law(scheme: str) -> None:
    """Refuse a scheme by name, rather than give it another's law."""
    if scheme not in SCHEMES:
        raise ValueError(f"the laws known here are those of {' and '.join(SCHEMES)}; got {scheme!r}: it has none")


def linear_step(scheme: str, *, step_size: float, curvature: float) -> tuple[float, float]:
    """X' = factor·X + noise on f = curvature·x²/2: the factor and the noise's variance."""
    check_has_law(scheme)
    z = step_size * curvature
    if scheme == "em":
        return 1 - z, 2 * step_size
    return 1 - z + z**2 / 2, (2 * z * (1 - z / 2) ** 2 + z**3 / 6) / curvature


def gaussian_errors(
    scheme: str, *, step_size: float, curvature: float, mean: float, variance: float, steps: Tensor
) -> Tensor:
    """W2² to N(0, 1/curvature) after these many steps from N(mean, variance); infinite where the scheme diverges."""
    factor, noise = linear_step(scheme, step_size=step_size, curvature=curvature)
    if abs(factor) >= 1:
        return torch.full_like(steps, math.inf, dtype=torch.float64)
    decay = abs(factor) ** (2.0 * steps.double())
    spread = (decay * variance + (1 - decay) * noise / (1 - factor**2)).sqrt()
    return decay * mean**2 + (spread - curvature**-0.5) ** 2


class LineTarget(Protocol):
    """A density on a line whose cumulative distribution is known."""

    def density(self, x: Tensor) -> Tensor: ...

    def cumulative(self, x: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class LineMixture:
    """½N(s, 1) + ½N(-s, 1) on a line, with s the separation."""

    separation: float

    def gradient(self, x: Tensor) -> Tensor:
        return x - self.separation * (self.separation * x).tanh()

    def curvature(self, x: Tensor) -> Tensor:
        return 1 - self.separation**2 / (self.separation * x).cosh().square()

    def cumulative(self, x: Tensor) -> Tensor:
        return 0.5 * (torch.special.ndtr(x - self.separation) + torch.special.ndtr(x + self.separation))

    def density(self, x: Tensor) -> Tensor:
        left, right = (x + self.separation).square(), (x - self.separation).square()
        return ((-0.5 * left).exp() + (-0.5 * right).exp()) * (0.5 / math.sqrt(2 * math.pi))


def line_errors(
    target: LineMixture, scheme: str, *, step_size: float, mean: float, deviation: float, fineness: float = 1.0
) -> Iterator[float]:
    """W2² to the target after 1, 2, ... steps from N(mean, deviation²), by quadrature on a grid."""
    reach = 8.0 * max(1.0, deviation) + max(target.separation, abs(mean))
    grid = _grid(reach, step_size, fineness)
    move = transition(target, scheme, step_size=step_size, grid=grid)
    density = (-0.5 * ((grid - mean) / deviation).square()).exp()
    while True:
        density = move @ density
        density = density / density.sum()
        yield grid_error(target, grid, density)


def invariant_error(scheme: str, *, separation: float, dim: float, step_size: float) -> float:
    """W2² between the mixture with ‖a‖ = separation and the law that the scheme keeps there.

    Infinite if it keeps none, nan if quadrature does not find it: with SRK-LD at steps above 1.7, or with tiny ones.
    """
    factor, noise = linear_step(scheme, step_size=step_size, curvature=1.0)
    if abs(factor) >= 1:
        return math.inf
    spread = math.sqrt(noise / (1 - factor**2))
    try:
        # After these many steps errors have shrunk by e^-20: the least curvature is 1 - separation².
        rate = min(step_size * (1 - separation**2), -math.log(max(abs(factor), 1e-3)))
        along = _invariant_line_error(LineMixture(separation), scheme, step_size, spread, math.ceil(20 / rate))
    except QuadratureError:
        return math.nan
    return along + (dim - 1) * (spread - 1) ** 2


@cache
def _invariant_line_error(target: LineMixture, scheme: str, h: float, spread: float, steps: int) -> float:
    grid = _grid(8.0 * max(1.0, spread) + target.separation, h)
    density = torch.linalg.matrix_power(transition(target, scheme, step_size=h, grid=grid), steps).sum(1)
    return grid_error(target, grid, density / density.sum())


def _grid(reach: float, h: float, fineness: float = 1.0) -> Tensor:
    """Sums over a grid that resolves a step's noise, of deviation √(2h), are nearly as exact as the floats."""
    count = math.ceil(2 * reach * fineness / min(math.sqrt(2 * h) / 3, 0.1))
    if count > _LARGEST_GRID:
        raise QuadratureError(f"quadrature would take {count} points: take a larger step than {h:g}, or start nearer")
    return torch.linspace(-reach, reach, count, dtype=torch.float64)


def steps_below(errors: Tensor, level: float) -> int:
    """After how many steps the error stays at or below a level; 0 if it does not.

    Stays: a law that shrinks past the target's has no error for a moment, and that moment is not known to a user.
    """
    above = (errors > level).nonzero()
    steps = int(above[-1]) + 2 if len(above) else 1
    return steps if steps <= len(errors) else 0


def transition(target: LineMixture, scheme: str, *, step_size: float, grid: Tensor) -> Tensor:
    """(to, from): the density of a step, times the grid's spacing."""
    check_has_law(scheme)
    spacing = float(grid[1] - grid[0])
    if scheme == "em":
        gap = grid.unsqueeze(-1) - (grid - step_size * target.gradient(grid))
        return (-gap.square() / (4 * step_size)).exp() * (spacing / math.sqrt(4 * math.pi * step_size))
    nodes, weights = np.polynomial.hermite_e.hermegauss(_AREA_NODES)
    moves = torch.zeros(len(grid), len(grid), dtype=torch.float64)
    for node, weight in zip(nodes, weights / weights.sum(), strict=True):
        moves += weight * _srk_ld_density(target, step_size, float(node), grid)
    return moves * spacing


def _srk_ld_density(target: LineMixture, h: float, area: float, grid: Tensor) -> Tensor:
    """Of the step given its area, a standard normal: it is increasing in W, which Newton's method finds."""
    x, to = grid, grid.unsqueeze(-1)
    shift, moved = math.sqrt(h / 6) * area, x - h * target.gradient(x)
    increment = ((to - moved) / math.sqrt(2 * h)).clamp(-40, 40)
    for _ in range(_NEWTON_STEPS):
        first = x + math.sqrt(2 * h) * (0.5 + _ROOT6) * increment + shift
        second = moved + math.sqrt(2 * h) * (0.5 - _ROOT6) * increment + shift
        reached = x - 0.5 * h * (target.gradient(first) + target.gradient(second)) + math.sqrt(2 * h) * increment
        bend = (0.5 + _ROOT6) * target.curvature(first) + (0.5 - _ROOT6) * target.curvature(second)
        slope = math.sqrt(2 * h) * (1 - 0.5 * h * bend)
        change = (reached - to) / slope
        increment = increment - change
        if float(change.abs().max()) < 1e-10:
            break
    else:
        raise QuadratureError(f"Newton's method does not find the increments at step size {h:g}: take a smaller one")
    return (-0.5 * increment.square()).exp() / (math.sqrt(2 * math.pi) * slope)


def grid_error(target: LineTarget, grid: Tensor, mass: Tensor) -> float:
    """W2² between the target and a smooth law given by its masses on the grid: ∫(T(x) - x)²p(x) dx, T monotone."""
    # The mass up to a point, by the trapezoidal rule and its first correction (Euler-Maclaurin).
    slope = torch.nn.functional.pad((mass[2:] - mass[:-2]) / 2, (1, 1))
    below = mass.cumsum(0) - mass / 2 - slope / 12
    inside = (below > 1e-12) & (below < 1 - 1e-12)
    x, level = grid[inside], below[inside]
    moved = torch.from_numpy(np.interp(level.numpy(), target.cumulative(grid).numpy(), grid.numpy()))
    for _ in range(_NEWTON_STEPS):
        change = ((target.cumulative(moved) - level) / target.density(moved)).clamp(-0.5, 0.5)
        moved = moved - change
        if float((mass[inside] * change.square()).sum()) < 1e-15:
            break
    return float((mass[inside] * (moved - x).square()).sum())
