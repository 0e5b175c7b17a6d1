"""A bent Gaussian in the plane: strong curvature that turns, with exact draws and moments."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..brownian.noise import Stream, fill_normal
from .base import Potential, check_dim
from .draws import draw_shape


class Banana(Potential):
    """x₁ ~ N(0, 1) and x₂ given x₁ ~ N(x₁², s²): f(x) = ½x₁² + (x₂ - x₁²)²/(2s²).

    Its gradient grows like the third power of x₁, so steps without rejections are stable for as long as no particle
    comes far out, and the curvature, 1/s² across the bend at its middle, is (1 + 4x₁²)/s² further out.

    Args:
        spread: s, the standard deviation across the bend.
    """

    dim = 2

    def __init__(self, spread: float = 1.0) -> None:
        super().__init__()
        if isinstance(spread, bool) or not isinstance(spread, (int, float)) or not 0.0 < spread < math.inf:
            raise ValueError(f"spread is a positive number; got {spread!r}")
        self.spread = float(spread)

    def forward(self, x: Tensor) -> Tensor:
        check_dim(x, self.dim, "this Banana")
        first, second = x.unbind(-1)
        return 0.5 * first.square() + (second - first.square()).square() * (0.5 / self.spread**2)

    def grad(self, x: Tensor) -> Tensor:
        """(x₁ - 2x₁r, r), r = (x₂ - x₁²)/s²."""
        check_dim(x, self.dim, "this Banana")
        first, second = x[..., :1], x[..., 1:]
        pull = (second - first.square()) * self.spread**-2
        return torch.cat((first - 2.0 * first * pull, pull), -1)

    def sample(
        self,
        shape: Sequence[int] = (),
        *,
        seed: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> Tensor:
        """Exact draws, (*shape, 2)."""
        count, final_shape = draw_shape(shape, self.dim)
        drawn = torch.empty(count, self.dim, dtype=dtype, device=device)
        fill_normal(drawn, seed=seed, stream=Stream.EXACT_DRAW)
        drawn[:, 1] = self.spread * drawn[:, 1] + drawn[:, 0].square()
        return drawn.view(final_shape)

    def mean(self) -> tuple[float, float]:
        """E x = (0, 1)."""
        return 0.0, 1.0

    def variance(self) -> tuple[float, float]:
        """Of x₁ and x₂, which are uncorrelated: 1 and 2 + s²."""
        return 1.0, 2.0 + self.spread**2

    def second_moment(self) -> float:
        """E‖x‖² = 4 + s²."""
        return 4.0 + self.spread**2

    def extra_repr(self) -> str:
        return f"spread={self.spread:g}"
