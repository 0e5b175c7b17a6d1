"""The paper's non-convex target, sampled with a state-dependent diffusion."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..brownian.noise import Stream, draw_uniform, fill_normal
from .base import Potential, check_dim
from .draws import draw_shape

Array = Any  # a float or an array of them
_TOLERANCE = 1e-7  # of a probability
_DEPTH = 80.0  # the grid ends where the density is e^-80 of its peak
_FAR = (-700.0, 350.0)  # beyond the logarithm of any radius that matters, for any β that a float can be


class NonConvex(Potential):
    """f(x) = g + γ log g², g(x) = √(β + ‖x‖²).

    Its natural diffusion has σ(x) = √g·I (``scale``), and then the drift is -x/2 + (½ - γ)x/g, linear at γ = ½:
    ``ItoDiffusion(target, diffusion=target.scale, noise_type="isotropic")`` finds that drift by itself.

    Args:
        beta, gamma: positive: how flat f is near 0, and the power of g that its logarithm adds.
        dim: of x.
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
        cumulative, log_radius, _ = _radial_law(self.beta, self.gamma, self.dim)
        radius = torch.from_numpy(np.exp(np.interp(uniform.numpy(), cumulative, log_radius)))
        direction = torch.empty(count, self.dim, dtype=torch.float64)
        fill_normal(direction, seed=seed, stream=Stream.EXACT_DRAW)
        drawn = radius * direction / direction.norm(dim=-1, keepdim=True)
        return drawn.to(device=device, dtype=dtype).view(final_shape)

    def second_moment(self) -> float:
        """E‖x‖², by the quadrature of the draws: a factor r² is what two more dimensions bring."""
        more, own = (_radial_law(self.beta, self.gamma, self.dim + extra)[-1] for extra in (2, 0))
        return math.exp(more - own)

    def _check(self, x: Tensor) -> None:
        check_dim(x, self.dim, "this NonConvex")

    def extra_repr(self) -> str:
        return f"beta={self.beta}, gamma={self.gamma}, dim={self.dim}"


@lru_cache(maxsize=8)
def _radial_law(beta: float, gamma: float, dim: int) -> tuple[np.ndarray, np.ndarray, float]:
    """The cumulative distribution of u = log‖x‖ on a grid, the grid, and the logarithm of ∫ r^(dim-1) e^(-f) dr.

    The density of u is log-concave whatever β, γ and dim are, so that one peak and its two sides are all of it, at
    every scale that the radius has: a grid of radii would miss what a small β does close to the centre.
    """
    mode = _root(lambda u: _log_density(u, beta, gamma, dim)[1])
    top = float(_log_density(mode, beta, gamma, dim)[0])
    left, right = (_root(lambda u: _log_density(u, beta, gamma, dim)[0] - top + _DEPTH, mode, far) for far in _FAR)
    for cells in (1 << 14, 1 << 16, 1 << 18, 1 << 20):
        log_radius = np.linspace(left, right, 2 * cells + 1)
        density = np.exp(_log_density(log_radius, beta, gamma, dim)[0] - top)
        start, middle, end = density[:-1:2], density[1::2], density[2::2]
        mass = (start + 4.0 * middle + end) / 6.0  # Simpson's rule
        # The trapezoid's error bounds Simpson's, and that of going straight between the nodes.
        if np.abs(mass - 0.5 * (start + end)).sum() <= _TOLERANCE * mass.sum():
            cumulative = np.concatenate(([0.0], np.cumsum(mass)))
            total = math.log(cumulative[-1] * (right - left) / cells) + top
            return cumulative / cumulative[-1], log_radius[::2], total
    raise ArithmeticError(
        f"the radial law of beta={beta}, gamma={gamma}, dim={dim} was not resolved to {_TOLERANCE} by {cells} cells: "
        "sample it with a diffusion instead"
    )


def _log_density(u: Array, beta: float, gamma: float, dim: int) -> tuple[Array, Array]:
    """Of u = log r, and its derivative, less what f is at the centre: with a large β that would drown the rest."""
    root, square = math.sqrt(beta), np.exp(2.0 * u)
    log_g = 0.5 * np.logaddexp(math.log(beta), 2.0 * u)
    g = np.exp(log_g)
    value = dim * u - square / (g + root) - 2.0 * gamma * (log_g - math.log(root))
    return value, dim - square / g - 2.0 * gamma * (square / g) / g


def _root(falling: Callable[[float], float], low: float = _FAR[0], high: float = _FAR[1]) -> float:
    """Where a function that is positive at ``low`` and negative at ``high`` is 0."""
    for _ in range(80):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if falling(middle) > 0.0 else (low, middle)
    return 0.5 * (low + high)
