"""The paper's non-convex target, sampled with a state-dependent diffusion."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..brownian.noise import Stream, draw_uniform, fill_normal
from .base import Potential, check_dim
from .draws import draw_shape


class NonConvex(Potential):
    """f(x) = g + γ log g², g(x) = √(β + ‖x‖²).

    Its natural diffusion has σ(x) = √g·I (``scale``), and then the drift is -x/2 + (½ - γ)x/g, linear at γ = ½:
    ``ItoDiffusion(target, diffusion=target.scale, noise_type="isotropic")`` finds that drift by itself.
    """

    dim: int

    def __init__(self, beta: float, gamma: float, dim: int) -> None:
        super().__init__()
        if not (0.0 < beta < math.inf and 0.0 < gamma < math.inf):
            raise ValueError(f"beta and gamma are positive; got {beta!r} and {gamma!r}")
        if not isinstance(dim, int) or dim < 1:
            raise ValueError(f"dim is a positive integer; got {dim!r}")
        self.beta, self.gamma = float(beta), float(gamma)
        self.dim = dim

    @property
    def dissipativity(self) -> float:
        """½ - 2|γ - ½|/√β - dim/(8√β): the diffusion with ``scale`` is uniformly dissipative where this is positive."""
        return 0.5 - (2.0 * abs(self.gamma - 0.5) + self.dim / 8.0) / math.sqrt(self.beta)

    def _g(self, x: Tensor) -> Tensor:
        return (self.beta + x.square().sum(-1)).sqrt()

    def forward(self, x: Tensor) -> Tensor:
        self._check(x)
        g = self._g(x)
        return g + 2.0 * self.gamma * g.log()

    def grad(self, x: Tensor) -> Tensor:
        """x(1/g + 2γ/g²)."""
        self._check(x)
        inverse = self._g(x).reciprocal()
        return x * (inverse + 2.0 * self.gamma * inverse.square()).unsqueeze(-1)

    def scale(self, x: Tensor) -> Tensor:
        """√g(x), one number a particle: the diffusion coefficient is √g·I."""
        self._check(x)
        return self._g(x).sqrt()

    def sample(
        self,
        shape: Sequence[int] = (),
        *,
        seed: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> Tensor:
        """Exact draws, (*shape, dim): the radius by quadrature of r^(dim-1) e^(-f(r)), the direction uniform."""
        count, final_shape = draw_shape(shape, self.dim)
        uniform = draw_uniform((count, 1), seed=seed, stream=Stream.EXACT_DRAW, step=1, device=torch.device("cpu"))
        radius = torch.from_numpy(np.interp(uniform[:, 0].numpy(), *self._radial_law())).unsqueeze(-1)
        direction = torch.empty(count, self.dim, dtype=torch.float64)
        fill_normal(direction, seed=seed, stream=Stream.EXACT_DRAW)
        drawn = radius * direction / direction.norm(dim=-1, keepdim=True)
        return drawn.to(device=device, dtype=dtype).view(final_shape)

    def second_moment(self) -> float:
        """E‖x‖², by the quadrature of the draws."""
        cumulative, radius = self._radial_law()
        middle = 0.5 * (radius[1:] + radius[:-1])
        return float(np.sum(np.diff(cumulative) * middle**2))

    def _radial_law(self) -> tuple[np.ndarray, np.ndarray]:
        """The cumulative distribution of ‖x‖ on a grid; beyond its end less than e^-60 of the mass is left."""
        rise = 80.0 + 10.0 * self.dim  # of g from the centre to the end: where β is large, g rises slowly
        radius = np.linspace(0.0, math.sqrt(rise**2 + 2.0 * rise * math.sqrt(self.beta)), 1 << 18)
        middle = 0.5 * (radius[1:] + radius[:-1])
        g = np.sqrt(self.beta + middle**2)
        log_density = (self.dim - 1) * np.log(middle) - g - 2.0 * self.gamma * np.log(g)
        mass = np.exp(log_density - log_density.max())
        cumulative = np.concatenate(([0.0], np.cumsum(mass)))
        return cumulative / cumulative[-1], radius

    def _check(self, x: Tensor) -> None:
        check_dim(x, self.dim, "this NonConvex")

    def extra_repr(self) -> str:
        return f"beta={self.beta}, gamma={self.gamma}, dim={self.dim}"
