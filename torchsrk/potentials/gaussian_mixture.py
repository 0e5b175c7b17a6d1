"""Two Gaussians of equal weight: the paper's strongly convex example."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ..brownian.noise import Stream, fill_normal
from .base import Potential, check_dim
from .draws import draw_shape


class GaussianMixture(Potential):
    """½N(a, I) + ½N(-a, I): f(x) = ½‖x - a‖² - log(1 + exp(-2⟨x, a⟩)), strongly convex when ‖a‖ < 1.

    Args:
        shift: a, (dim,). The paper leaves it open; ``torch.full((dim,), (2 * dim) ** -0.5)`` has ‖a‖² = ½.
    """

    dim: int
    shift: Tensor

    def __init__(self, shift: Tensor) -> None:
        super().__init__()
        if shift.ndim != 1 or len(shift) == 0 or not shift.is_floating_point() or not shift.isfinite().all():
            raise ValueError(
                f"shift is a vector (dim,) of finite floats; got shape {tuple(shift.shape)}, {shift.dtype}"
            )
        self.register_buffer("shift", shift.detach().clone())
        self.dim = len(shift)
        squared_norm = float(shift.square().sum())
        self.strong_convexity = 1.0 - squared_norm if squared_norm < 1.0 else None
        # ∇²f = I - 4 s(1 - s) a aᵀ with s a sigmoid: eigenvalues between 1 - ‖a‖² and 1.
        self.smoothness = max(1.0, squared_norm - 1.0)
        # Those of -log cosh⟨x, a⟩: with t = tanh, 2t(1 - t²) is at most 4/√27 and 2(1 - t²)(1 - 3t²) at most 2.
        self.hessian_lipschitz = 4.0 / math.sqrt(27.0) * squared_norm**1.5
        self.third_derivative_lipschitz = 2.0 * squared_norm**2

    def forward(self, x: Tensor) -> Tensor:
        check_dim(x, self.dim, "this GaussianMixture")
        return 0.5 * (x - self.shift).square().sum(-1) - F.softplus(-2.0 * (x @ self.shift))

    def grad(self, x: Tensor) -> Tensor:
        """x - a·tanh⟨x, a⟩."""
        check_dim(x, self.dim, "this GaussianMixture")
        lean = torch.tanh(x @ self.shift)
        return (lean.unsqueeze(-1) * -self.shift).add_(x)

    def sample(self, shape: Sequence[int] = (), *, seed: int) -> Tensor:
        """Exact draws, (*shape, dim)."""
        count, final_shape = draw_shape(shape, self.dim)
        drawn = self.shift.new_empty(count, self.dim + 1)
        fill_normal(drawn, seed=seed, stream=Stream.EXACT_DRAW)
        side = torch.where(drawn[:, -1:] < 0, -1.0, 1.0).to(drawn.dtype)
        return (drawn[:, :-1] + side * self.shift).view(final_shape)

    def second_moment(self) -> float:
        """E‖x‖² = dim + ‖a‖²."""
        return self.dim + float(self.shift.square().sum())

    def extra_repr(self) -> str:
        return f"dim={self.dim}"
