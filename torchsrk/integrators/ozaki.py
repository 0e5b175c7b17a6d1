"""Ozaki's scheme: every step is exact for the linearized drift."""

from __future__ import annotations

import torch
from torch import Tensor

from ..brownian.increment import Increment, Needs
from ..sde.base import BaseSDE, Time
from ..sde.derivatives import hessian
from ..sde.langevin import Langevin
from .base import Integrator

_SMALL = 1e-8  # below, a line is (1 - e^-z)/z to the last bit


class Ozaki(Integrator):
    """X' = X - A⁻¹(I - e^(-hA))∇f(X) + (A⁻¹(I - e^(-2hA)))^½ W/√h,  A = ∇²f(X).

    A step of dX = -(∇f(X₀) + A(X - X₀)) dt + √2 dB with its exact law, so a Gaussian target is sampled without error at
    any step size. Elsewhere the law is off by O(h): the third derivative's part of that order is missing. Strong order
    1, as only W of the path is seen. One gradient, a Hessian (dim Hessian products by autograd, in a batch dim times as
    large) and its eigendecomposition a particle, some 50 dim³ operations, eagerly by LAPACK and compiled by Jacobi's
    rotations: for few dimensions, as a reference point; where a target is nearly Gaussian a metric does as much for
    less. The square root is the symmetric one: by either way the same, up to rounding. Where curvature is negative the
    linear flow moves away exponentially, so a step much longer than 1/|curvature| throws particles far. Not to be
    differentiated through: eigenvectors have no derivative where eigenvalues meet. Ozaki (1992); Dalalyan (2017); Table
    1 of the paper.
    """

    name = "ozaki"
    strong_order = 1.0
    strong_order_additive = 1.0
    law_order = 1.0
    noise_types = ("additive",)
    serves = (Langevin,)
    needs = Needs.INCREMENT
    gradients_per_step = 1

    def step(self, sde: BaseSDE, t: Time, x: Tensor, increment: Increment) -> Tensor:
        assert isinstance(sde, Langevin)
        h = increment.dt
        curvature, directions = _eigen(hessian(sde.potential, x))
        gradient, noise = (_along(directions.mT, v) for v in (sde.gradient(x), increment.W))
        moved = (2.0 * _decay(2.0 * h * curvature)).sqrt() * noise - h * _decay(h * curvature) * gradient
        return x + _along(directions, moved)


def _decay(z: Tensor) -> Tensor:
    """(1 - e^-z)/z, at 0 too."""
    is_small = z.abs() < _SMALL
    return torch.where(is_small, 1.0 - 0.5 * z, -torch.expm1(-z) / torch.where(is_small, 1.0, z))


def _eigen(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues (..., dim) and vectors; values that are NaN for a matrix that is not finite.

    That is then the run's to report, with the step and the particles: the decomposition only says that it failed.
    """
    is_finite = matrix.isfinite().all(-1).all(-1)
    values, vectors = torch.linalg.eigh(torch.where(is_finite[..., None, None], matrix, 0.0))
    return torch.where(is_finite[..., None], values, torch.nan), vectors


def _along(matrix: Tensor, v: Tensor) -> Tensor:
    return (matrix @ v.unsqueeze(-1)).squeeze(-1)
