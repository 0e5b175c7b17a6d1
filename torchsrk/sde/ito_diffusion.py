"""A diffusion for a density and any diffusion coefficient."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..potentials.base import Potential, gradient_of_sum
from .base import BaseSDE, Time, check_output
from .general import SDE
from .langevin import check_potential


class ItoDiffusion(BaseSDE):
    """dX = b(X) dt + σ(X) dB whose invariant density is exp(-f), for any σ.

    The drift is the paper's (eq. drift_coeff): b = ½(⟨∇, w⟩ - w∇f) with w = σσᵀ + c, c skew, where ⟨∇, w⟩_i is
    Σ_j ∂w_ij/∂x_j. The divergence comes by autograd: one gradient where w is diagonal (isotropic and diagonal noise),
    otherwise ``dim`` forward derivatives in one batch.

    Args:
        potential: the energy f of the invariant density exp(-f).
        diffusion: x to σ, in the form its noise type wants (see SDE); it does not depend on time.
        noise_type: as for SDE.
        skew: x to c(x), (..., dim, dim) skew, or a constant (dim, dim) tensor. It turns the drift around the level sets
            of f and leaves the invariant density alone.
    """

    skew: Callable[[Tensor], Tensor] | Tensor | None
    noise_varies = False

    def __init__(
        self,
        potential: Potential,
        diffusion: Callable[..., Tensor] | Tensor | float,
        skew: Callable[[Tensor], Tensor] | Tensor | None = None,
        *,
        noise_type: str,
    ) -> None:
        super().__init__()
        check_potential(potential)
        self.coefficients = SDE(potential.grad, diffusion, noise_type)
        self.noise = self.coefficients.noise
        self.potential = potential
        self.dim = potential.dim
        if isinstance(skew, Tensor):
            if skew.ndim != 2 or skew.shape[0] != skew.shape[1] or not torch.equal(skew, -skew.mT):
                raise ValueError(
                    f"a constant skew part is a (dim, dim) matrix with skew = -skewᵀ; got {tuple(skew.shape)}"
                )
            self.register_buffer("skew", skew)
        elif skew is None or callable(skew):
            self.skew = skew
        else:
            raise TypeError(f"skew is a tensor, a callable or None; got {type(skew).__name__}")

    def sigma(self, t: Time, x: Tensor) -> Tensor:
        return self.coefficients.sigma(t, x)

    def drift(self, t: Time, x: Tensor) -> Tensor:
        gradient = self.coefficients.drift(t, x)
        covariance_gradient = self._covariance_product(x, gradient)
        drift = self._covariance_divergence(x) - covariance_gradient
        if self.skew is not None:
            drift = drift - (self._skew(x) @ gradient.unsqueeze(-1)).squeeze(-1)
            if not isinstance(self.skew, Tensor):
                drift = drift + divergence(self._skew, x)
        return 0.5 * drift

    def _covariance_product(self, x: Tensor, v: Tensor) -> Tensor:
        """σσᵀv."""
        sigma = self.sigma(0.0, x)
        if self.noise.separable:
            return self.noise.product(sigma, self.noise.product(sigma, v))
        matrix = self.noise.matrix(sigma, x)
        return (matrix @ (matrix.mT @ v.unsqueeze(-1))).squeeze(-1)

    def _covariance_divergence(self, x: Tensor) -> Tensor:
        """⟨∇, σσᵀ⟩."""
        if self.noise.constant:
            return torch.zeros_like(x)
        if self.noise.separable:
            return gradient_of_sum(lambda y: self.sigma(0.0, y).square(), x)

        def covariance(y: Tensor) -> Tensor:
            matrix = self.noise.matrix(self.sigma(0.0, y), y)
            return matrix @ matrix.mT

        return divergence(covariance, x)

    def _skew(self, x: Tensor) -> Tensor:
        if isinstance(self.skew, Tensor):
            return self.skew
        assert self.skew is not None
        value = self.skew(x)
        valid = isinstance(value, Tensor) and value.shape == (*x.shape, x.shape[-1])
        check_output(value, x, valid=valid, what="skew", expected="(..., dim, dim)")
        return value


def divergence(matrix: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """⟨∇, w⟩_i = Σ_j ∂w_ij/∂x_j at x (..., dim), for w from (..., dim) to (..., dim, dim)."""

    def along(direction: Tensor) -> Tensor:
        derivative = torch.func.jvp(matrix, (x,), (direction.expand_as(x),))[1]
        return (derivative @ direction.unsqueeze(-1)).squeeze(-1)

    identity = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    return torch.func.vmap(along)(identity).sum(0)
