"""A potential in other coordinates: shifted, scaled or whitened."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from .base import Potential, check_dim


class Scale(nn.Module, ABC):
    """An invertible matrix S, or one for every target of a batch, by what it does to vectors (..., *batch, dim)."""

    @abstractmethod
    def times(self, z: Tensor) -> Tensor:
        """S z."""

    @abstractmethod
    def transposed(self, g: Tensor) -> Tensor:
        """Sᵀ g."""

    @abstractmethod
    def solve(self, x: Tensor) -> Tensor:
        """S⁻¹ x."""


class Diagonal(Scale):
    """S = diag(d), d (*batch, dim) or one number."""

    def __init__(self, diagonal: Tensor) -> None:
        super().__init__()
        self.register_buffer("diagonal", diagonal)
        self.diagonal: Tensor

    def times(self, z: Tensor) -> Tensor:
        return z * self.diagonal

    def transposed(self, g: Tensor) -> Tensor:
        return g * self.diagonal

    def solve(self, x: Tensor) -> Tensor:
        return x / self.diagonal


class Triangular(Scale):
    """S = L, a lower triangle (*batch, dim, dim)."""

    def __init__(self, factor: Tensor) -> None:
        super().__init__()
        # As files hold it: a plan that comes from one is then the same to the bit.
        self.register_buffer("factor", factor.contiguous())
        self.factor: Tensor

    def times(self, z: Tensor) -> Tensor:
        return self._product(z, self.factor.mT)

    def transposed(self, g: Tensor) -> Tensor:
        return self._product(g, self.factor)

    def solve(self, x: Tensor) -> Tensor:
        one_by_one = self.factor.ndim > 2 or x.ndim == 1
        rows = x.unsqueeze(-2) if one_by_one else x
        solved = torch.linalg.solve_triangular(self.factor.mT, rows, upper=True, left=False)
        return solved.squeeze(-2) if one_by_one else solved

    @staticmethod
    def _product(rows: Tensor, matrix: Tensor) -> Tensor:
        return rows @ matrix if matrix.ndim == 2 else (rows.unsqueeze(-2) @ matrix).squeeze(-2)


class LowRank(Scale):
    """S = diag(d)(I + U diag(r - 1) Uᵀ), U (dim, rank) with orthonormal columns and stretches r > 0 along them.

    For many dimensions: a product costs 2·dim·rank and not dim².
    """

    def __init__(self, diagonal: Tensor, directions: Tensor, stretches: Tensor) -> None:
        super().__init__()
        self.register_buffer("diagonal", diagonal)
        self.register_buffer("directions", directions)
        self.register_buffer("stretches", stretches)
        self.diagonal: Tensor
        self.directions: Tensor
        self.stretches: Tensor

    def times(self, z: Tensor) -> Tensor:
        return self._stretched(z, self.stretches - 1.0) * self.diagonal

    def transposed(self, g: Tensor) -> Tensor:
        return self._stretched(g * self.diagonal, self.stretches - 1.0)

    def solve(self, x: Tensor) -> Tensor:
        return self._stretched(x / self.diagonal, 1.0 / self.stretches - 1.0)

    def _stretched(self, z: Tensor, by: Tensor) -> Tensor:
        return z + ((z @ self.directions) * by) @ self.directions.mT


class AffinePotential(Potential):
    """z to f(loc + S z): the energy of z where x = loc + S z has the energy f. Its gradient is Sᵀ∇f.

    A diffusion of z is one of x with the metric SSᵀ. If that is near the covariance of x, all directions of z have one
    scale, and a step size fits them all. Every scheme, the compiled path and checkpoints take it as any potential.

    Args:
        potential: the energy f, on points (..., *batch, dim).
        loc: (*batch, dim).
        scale: S, as a positive number, the diagonal (*batch, dim), a lower triangle (*batch, dim, dim), or a ``Scale``.
    """

    def __init__(self, potential: Potential, loc: Tensor, scale: Tensor | float | Scale) -> None:
        super().__init__()
        if not isinstance(potential, Potential):
            raise TypeError(f"expected a Potential; got {type(potential).__name__}")
        if not isinstance(loc, Tensor) or not loc.is_floating_point() or loc.ndim < 1:
            given = f"{loc.dtype} {tuple(loc.shape)}" if isinstance(loc, Tensor) else type(loc).__name__
            raise ValueError(f"loc is a floating tensor (*batch, dim); got {given}")
        if potential.dim not in (None, loc.shape[-1]):
            raise ValueError(f"the potential has dimension {potential.dim}; loc has shape {tuple(loc.shape)}")
        if not bool(loc.isfinite().all()):
            raise ValueError(f"loc has {int((~loc.isfinite()).sum())} entries that are infinite or NaN")
        self.potential = potential
        self.register_buffer("loc", loc)
        self.loc: Tensor
        self.scale = scale if isinstance(scale, Scale) else _scale_like(loc, scale)
        self.dim = loc.shape[-1]

    @property
    def stateful(self) -> bool:  # type: ignore[override]
        return self.potential.stateful

    def outward(self, z: Tensor) -> Tensor:
        """x = loc + S z."""
        return self.loc + self.scale.times(z)

    def inward(self, x: Tensor) -> Tensor:
        """z = S⁻¹(x - loc)."""
        return self.scale.solve(x - self.loc)

    def forward(self, x: Tensor) -> Tensor:
        check_dim(x, self.loc.shape[-1], "the scaled point")
        return self.potential(self.outward(x))

    def grad(self, x: Tensor) -> Tensor:
        check_dim(x, self.loc.shape[-1], "the scaled point")
        return self.scale.transposed(self.potential.grad(self.outward(x)))


def _scale_like(loc: Tensor, scale: Tensor | float) -> Scale:
    """The scale that a number or a tensor stands for, or one clear error."""
    if isinstance(scale, (int, float)) and not isinstance(scale, bool) and 0.0 < scale < math.inf:
        return Diagonal(loc.new_full((), float(scale)))
    if not isinstance(scale, Tensor) or scale.dtype != loc.dtype or scale.device != loc.device:
        given = f"{scale.dtype} on {scale.device}" if isinstance(scale, Tensor) else repr(scale)
        raise ValueError(f"scale is a positive number, or a tensor of loc's {loc.dtype} on {loc.device}; got {given}")
    is_triangle = scale.shape == (*loc.shape, loc.shape[-1])
    if not is_triangle and scale.shape not in (loc.shape, ()):
        raise ValueError(
            f"scale is a number, the diagonal {tuple(loc.shape)} or a lower triangle "
            f"{(*loc.shape, loc.shape[-1])}; got shape {tuple(scale.shape)}"
        )
    diagonal = scale.diagonal(dim1=-2, dim2=-1) if is_triangle else scale
    if not bool(scale.isfinite().all()) or not bool((diagonal > 0.0).all()):
        raise ValueError("scale is finite and positive on its diagonal")
    if is_triangle and bool(scale.triu(1).any()):
        raise ValueError("a scale matrix is lower triangular: take torch.linalg.cholesky of a covariance")
    return Triangular(scale) if is_triangle else Diagonal(scale)
