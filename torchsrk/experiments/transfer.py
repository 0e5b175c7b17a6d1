"""The law that a scheme keeps on a line, for any scheme that is driven by increments alone: no sampling, no formula.

A step takes the masses on a grid to where the scheme itself takes the grid's points with increments at the nodes of a
sum; what falls between points is shared out so that moments up to the third stay.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..brownian import Increment
from ..integrators import Integrator
from ..potentials import NonConvex
from ..sde import ItoDiffusion
from .laws import grid_error

if TYPE_CHECKING:  # the command is there without SciPy, too
    from scipy.interpolate import CubicHermiteSpline
    from scipy.sparse import csr_matrix

_REACH = 45.0  # the target's tails are those of e^-|x|, and the schemes' are wider
_DEVIATIONS = 9.0  # of an increment
_SPACING = 0.02  # of the grid, times ``fineness``
_NODES = 401
_SETTLED = 1e-13


class LineNonConvex:
    """The non-convex target in one dimension: its density and cumulative distribution, as ``grid_error`` asks for."""

    def __init__(self, beta: float, gamma: float) -> None:
        self.potential = NonConvex(beta=beta, gamma=gamma, dim=1)

    def density(self, x: Tensor) -> Tensor:
        return (-self.potential(x.unsqueeze(-1))).exp() / self._table[1]

    def cumulative(self, x: Tensor) -> Tensor:
        return torch.from_numpy(self._table[0](x.numpy()))

    @cached_property
    def _table(self) -> tuple[CubicHermiteSpline, float]:
        from scipy.interpolate import CubicHermiteSpline

        nodes = torch.linspace(-2 * _REACH, 2 * _REACH, 2**16 + 1, dtype=torch.float64)
        density = (-self.potential(nodes.unsqueeze(-1))).exp().numpy()
        middles = (-self.potential((0.5 * (nodes[1:] + nodes[:-1])).unsqueeze(-1))).exp().numpy()
        width = float(nodes[1] - nodes[0])
        cells = width * (density[:-1] + 4.0 * middles + density[1:]) / 6.0  # Simpson's rule
        below = np.concatenate(([0.0], np.cumsum(cells)))
        return CubicHermiteSpline(nodes.numpy(), below / below[-1], density / below[-1]), float(below[-1])


def invariant_masses(
    target: LineNonConvex, scheme: Integrator, *, step_size: float, fineness: float = 1.0
) -> tuple[Tensor, Tensor]:
    """The grid, and the masses on it of the law that the scheme keeps with the target's own diffusion."""
    grid, move = _operator(target, scheme, step_size, fineness)
    mass = target.density(grid).numpy()
    mass /= mass.sum()
    for _ in range(math.ceil(400.0 / step_size)):
        before, mass = mass, move @ mass
        mass /= mass.sum()
        if np.abs(mass - before).sum() < _SETTLED * step_size:
            return grid, torch.from_numpy(mass)
    raise ArithmeticError(f"no law is kept at step size {step_size:g} after a time of 400: take a smaller one")


def invariant_w2(target: LineNonConvex, scheme: Integrator, *, step_size: float, fineness: float = 1.0) -> float:
    """W2 between the target and the law that the scheme keeps."""
    return math.sqrt(grid_error(target, *invariant_masses(target, scheme, step_size=step_size, fineness=fineness)))


def line_w2(
    target: LineNonConvex, scheme: Integrator, *, step_size: float, start: float, steps: int, fineness: float = 0.5
) -> Tensor:
    """W2 between the target and the scheme's law after 1, 2, ... steps from a point."""
    grid, move = _operator(target, scheme, step_size, fineness)
    place = torch.tensor((start - float(grid[0])) / float(grid[1] - grid[0]), dtype=torch.float64)
    cell = int(place.floor())
    mass = np.zeros(len(grid))
    mass[cell - 1 : cell + 3] = _cubic(place - cell).numpy()
    found = []
    for _ in range(steps):
        mass = move @ mass
        mass /= mass.sum()
        found.append(grid_error(target, grid, torch.from_numpy(mass)))
    return torch.tensor(found, dtype=torch.float64).sqrt()


def _operator(
    target: LineNonConvex, scheme: Integrator, step_size: float, fineness: float
) -> tuple[Tensor, csr_matrix]:
    """The grid, and what takes masses on it to those after a step."""
    count = 2 * math.ceil(_REACH * fineness / _SPACING) + 1
    grid = torch.linspace(-_REACH, _REACH, count, dtype=torch.float64)
    return grid, _transition(target, scheme, step_size, grid, math.ceil(_NODES * fineness))


def _transition(target: LineNonConvex, scheme: Integrator, h: float, grid: Tensor, nodes: int) -> csr_matrix:
    """(to, from)"""
    from scipy.sparse import csr_matrix

    sde = ItoDiffusion(target.potential, diffusion=target.potential.scale, noise_type="isotropic")
    # Over equal steps the sum of a smooth function times a normal's density is as exact as the floats.
    normals = torch.linspace(-_DEVIATIONS, _DEVIATIONS, nodes, dtype=torch.float64)
    weights = (-0.5 * normals.square()).exp()
    weights /= weights.sum()
    x = grid.repeat_interleave(nodes).unsqueeze(-1)
    W = math.sqrt(h) * normals.repeat(len(grid)).unsqueeze(-1)
    with torch.no_grad():
        moved = scheme.step(sde, 0.0, x, Increment(h, W, A=torch.zeros(len(W), 1, 1, dtype=W.dtype)))[:, 0]
    spacing = float(grid[1] - grid[0])
    place = ((moved - grid[0]) / spacing).clamp(0.0, len(grid) - 1.0)
    cell = place.floor().clamp(1, len(grid) - 3)
    share = _cubic(place - cell) * weights.repeat(len(grid))
    to = (cell.long() + torch.arange(-1, 3).unsqueeze(-1)).flatten()
    source = torch.arange(len(grid)).repeat_interleave(nodes).repeat(4)
    shape = (len(grid), len(grid))
    return csr_matrix((share.flatten().numpy(), (to.numpy(), source.numpy())), shape=shape)


def _cubic(t: Tensor) -> Tensor:
    """Lagrange's weights of the points -1, 0, 1, 2 at t: (4, ...)."""
    return torch.stack(
        (
            -t * (t - 1) * (t - 2) / 6,
            (t + 1) * (t - 1) * (t - 2) / 2,
            -(t + 1) * t * (t - 2) / 2,
            (t + 1) * t * (t - 1) / 6,
        )
    )
