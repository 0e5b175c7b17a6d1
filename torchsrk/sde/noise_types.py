"""The structures a diffusion coefficient can have, and what each makes cheap.

A noise type says what the user's ``diffusion`` returns, how it multiplies a vector, and what a stage of SRK-ID needs of
it. Schemes never ask which one they hold: a new structure is a new class here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from ..brownian.increment import Increment


class NoiseType(ABC):
    """A structure of σ.

    Attributes:
        name: what the user writes.
        torchsde_name: the nearest of torchsde's noise types.
        commutative: the iterated integrals enter only through W, so that no Lévy area is needed.
        constant: σ does not depend on x.
        separable: σσᵀ is g(x)·I, or diagonal with entry i a function of x_i: its divergence is the gradient of Σσ².
        returns: what ``diffusion`` returns, for error messages.
    """

    name: ClassVar[str]
    torchsde_name: ClassVar[str]
    commutative: ClassVar[bool]
    constant: ClassVar[bool] = False
    separable: ClassVar[bool] = False
    returns: ClassVar[str]

    @abstractmethod
    def is_valid(self, sigma: Tensor, x: Tensor) -> bool:
        """Whether σ at points x (..., dim) has the right shape."""

    @abstractmethod
    def brownian_dim(self, sigma: Tensor, x: Tensor) -> int:
        """The number m of Brownian motions."""

    @abstractmethod
    def product(self, sigma: Tensor, v: Tensor) -> Tensor:
        """σ v, (..., dim), for v (..., m)."""

    @abstractmethod
    def matrix(self, sigma: Tensor, x: Tensor) -> Tensor:
        """σ as (..., dim, m)."""

    @abstractmethod
    def offsets(self, sigma: Tensor, increment: Increment) -> Tensor | None:
        """The displacements Σ_j σ_j I_(j,i) of SRK-ID's stages, times √dt; None where they don't matter.

        The stages stand along a dimension before the last, (..., m, dim), or share one point, (..., dim), where
        column i only sees what H^(i) moves along it.
        """

    @abstractmethod
    def sum_columns(self, sigma: Tensor) -> Tensor:
        """Σ_i σ_i(H^(i)), (..., dim), from σ at the stages."""


class Additive(NoiseType):
    """σ the same at all x: a number times the identity, or a matrix. It may depend on time."""

    name, torchsde_name, commutative, constant = "additive", "additive", True, True
    returns = "a number or a constant (dim, brownian) matrix"

    def is_valid(self, sigma: Tensor, x: Tensor) -> bool:
        return sigma.ndim == 0 or (sigma.ndim >= 2 and sigma.shape[-2] == x.shape[-1])

    def brownian_dim(self, sigma: Tensor, x: Tensor) -> int:
        return x.shape[-1] if sigma.ndim == 0 else sigma.shape[-1]

    def product(self, sigma: Tensor, v: Tensor) -> Tensor:
        if sigma.ndim == 0:
            return sigma * v
        return v @ sigma.mT if sigma.ndim == 2 else (sigma @ v.unsqueeze(-1)).squeeze(-1)

    def matrix(self, sigma: Tensor, x: Tensor) -> Tensor:
        if sigma.ndim == 0:
            sigma = sigma * torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
        return sigma.expand(*x.shape[:-1], *sigma.shape[-2:])

    def offsets(self, sigma: Tensor, increment: Increment) -> None:
        return None

    def sum_columns(self, sigma: Tensor) -> Tensor:
        return sigma.sum(-1)


class Diagonal(NoiseType):
    """σ = diag(s(x)), entry i a function of x_i alone."""

    name, torchsde_name, commutative, separable = "diagonal", "diagonal", True, True
    returns = "(..., dim), the diagonal"

    def is_valid(self, sigma: Tensor, x: Tensor) -> bool:
        return sigma.shape == x.shape

    def brownian_dim(self, sigma: Tensor, x: Tensor) -> int:
        return x.shape[-1]

    def product(self, sigma: Tensor, v: Tensor) -> Tensor:
        return sigma * v

    def matrix(self, sigma: Tensor, x: Tensor) -> Tensor:
        return torch.diag_embed(sigma)

    def offsets(self, sigma: Tensor, increment: Increment) -> Tensor:
        return sigma * increment.diagonal_integrals()

    def sum_columns(self, sigma: Tensor) -> Tensor:
        return sigma


class Scalar(NoiseType):
    """One Brownian motion: σ is a column."""

    name, torchsde_name, commutative = "scalar", "scalar", True
    returns = "(..., dim, 1), a column"

    def is_valid(self, sigma: Tensor, x: Tensor) -> bool:
        return sigma.shape == (*x.shape, 1)

    def brownian_dim(self, sigma: Tensor, x: Tensor) -> int:
        return 1

    def product(self, sigma: Tensor, v: Tensor) -> Tensor:
        return sigma.squeeze(-1) * v

    def matrix(self, sigma: Tensor, x: Tensor) -> Tensor:
        return sigma

    def offsets(self, sigma: Tensor, increment: Increment) -> Tensor:
        return sigma.squeeze(-1) * increment.diagonal_integrals()

    def sum_columns(self, sigma: Tensor) -> Tensor:
        return sigma.squeeze(-1)


class Isotropic(NoiseType):
    """σ = s(x)·I with s one number a particle. Not commutative: every component's noise moves every other's scale."""

    name, torchsde_name, commutative, separable = "isotropic", "general", False, True
    returns = "(...), one number a particle"

    def is_valid(self, sigma: Tensor, x: Tensor) -> bool:
        return sigma.shape == x.shape[:-1]

    def brownian_dim(self, sigma: Tensor, x: Tensor) -> int:
        return x.shape[-1]

    def product(self, sigma: Tensor, v: Tensor) -> Tensor:
        return sigma.unsqueeze(-1) * v

    def matrix(self, sigma: Tensor, x: Tensor) -> Tensor:
        identity = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
        return sigma.unsqueeze(-1).unsqueeze(-1) * identity

    def offsets(self, sigma: Tensor, increment: Increment) -> Tensor:
        return sigma.unsqueeze(-1).unsqueeze(-1) * increment.iterated_integrals().mT

    def sum_columns(self, sigma: Tensor) -> Tensor:
        return sigma  # column i of s·I at stage i is s(H^(i)) e_i


class General(NoiseType):
    """σ any (dim, m) matrix."""

    name, torchsde_name, commutative = "general", "general", False
    returns = "(..., dim, brownian)"

    def is_valid(self, sigma: Tensor, x: Tensor) -> bool:
        return sigma.ndim == x.ndim + 1 and sigma.shape[:-1] == x.shape

    def brownian_dim(self, sigma: Tensor, x: Tensor) -> int:
        return sigma.shape[-1]

    def product(self, sigma: Tensor, v: Tensor) -> Tensor:
        return (sigma @ v.unsqueeze(-1)).squeeze(-1)

    def matrix(self, sigma: Tensor, x: Tensor) -> Tensor:
        return sigma

    def offsets(self, sigma: Tensor, increment: Increment) -> Tensor:
        return (sigma @ increment.iterated_integrals()).mT

    def sum_columns(self, sigma: Tensor) -> Tensor:
        return sigma.diagonal(dim1=-3, dim2=-1).sum(-1)  # column i at stage i


NOISE_TYPES: dict[str, NoiseType] = {
    kind.name: kind for kind in (Additive(), Diagonal(), Scalar(), Isotropic(), General())
}


def noise_type_named(name: str) -> NoiseType:
    """The noise type of a name, or an error that lists them."""
    if name not in NOISE_TYPES:
        raise ValueError(f"unknown noise type {name!r}; choose from {', '.join(map(repr, NOISE_TYPES))}")
    return NOISE_TYPES[name]
