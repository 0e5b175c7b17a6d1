"""Bayesian logistic regression: the paper's example without exact draws."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ..brownian.noise import Stream, draw_uniform
from .base import Potential, check_dim


class LogisticRegression(Potential):
    """f(θ) = Σ softplus(θᵀxᵢ) - yᵀXθ + (α/2)‖Σ_X^{1/2} θ‖², Σ_X = XᵀX/n.

    The paper prints softplus(-θᵀxᵢ); with labels 0 and 1 and P(y = 1 | x) = sigmoid(θᵀx), which it states, the sign
    here is the one that follows.

    Args:
        features: X, (observations, dim).
        labels: y, (observations,), zeros and ones.
        alpha: the prior's precision; None takes the paper's 0.3·dim/π².
    """

    dim: int
    features: Tensor
    labels: Tensor
    covariance: Tensor

    def __init__(self, features: Tensor, labels: Tensor, alpha: float | None = None) -> None:
        super().__init__()
        if features.ndim != 2 or 0 in features.shape or not features.isfinite().all():
            raise ValueError(
                f"features is a finite (observations, dim) matrix; got shape {tuple(features.shape)}"
                f"{'' if features.isfinite().all() else ' with non-finite entries'}"
            )
        if labels.shape != features.shape[:1] or not ((labels == 0) | (labels == 1)).all():
            raise ValueError(f"labels is ({len(features)},) of zeros and ones; got shape {tuple(labels.shape)}")
        observations, self.dim = features.shape
        self.alpha = 0.3 * self.dim / math.pi**2 if alpha is None else float(alpha)
        if not 0.0 <= self.alpha < math.inf:
            raise ValueError(f"alpha is a finite non-negative precision; got {alpha!r}")
        self.register_buffer("features", features.detach().clone())
        self.register_buffer("labels", labels.detach().to(features.dtype).clone())
        self.register_buffer("covariance", features.detach().T @ features.detach() / observations)
        # ∇²f lies between αΣ_X and (α + n/4)Σ_X (Dalalyan, 2017).
        eigenvalues = torch.linalg.eigvalsh(self.covariance.double())
        self.strong_convexity = self.alpha * max(0.0, float(eigenvalues[0]))
        self.smoothness = (self.alpha + observations / 4) * float(eigenvalues[-1])
        # The sigmoid's second and third derivatives are at most 1/√108 and 1/8; Σ|xᵢᵀu|³ ≤ max‖xᵢ‖ Σ(xᵢᵀu)².
        longest, whole = float(features.double().norm(dim=-1).max()), observations * float(eigenvalues[-1])
        self.hessian_lipschitz = longest * whole / math.sqrt(108.0)
        self.third_derivative_lipschitz = longest**2 * whole / 8.0

    @classmethod
    def synthetic(
        cls, observations: int, dim: int, *, seed: int, dtype: torch.dtype = torch.float32, alpha: float | None = None
    ) -> LogisticRegression:
        """The paper's data: X = R√dim/‖R‖_F with R of random signs, y drawn from the model at θ = (1, ..., 1)."""
        if observations < 1 or dim < 1:
            raise ValueError(f"observations and dim are positive; got {observations} and {dim}")
        drawn = draw_uniform((observations, dim + 1), seed=seed, stream=Stream.EXACT_DRAW, device=torch.device("cpu"))
        signs = torch.where(drawn[:, :dim] < 0.5, -1.0, 1.0).double()
        features = (signs * math.sqrt(dim) / signs.norm()).to(dtype)
        labels = drawn[:, dim] < torch.sigmoid(features.double().sum(-1))
        return cls(features, labels.to(dtype), alpha)

    def forward(self, x: Tensor) -> Tensor:
        check_dim(x, self.dim, "this LogisticRegression")
        logits = x @ self.features.T
        likelihood = F.softplus(logits).sum(-1) - logits @ self.labels
        return likelihood + 0.5 * self.alpha * ((x @ self.covariance) * x).sum(-1)

    def grad(self, x: Tensor) -> Tensor:
        """Xᵀ(sigmoid(Xθ) - y) + αΣ_X θ."""
        check_dim(x, self.dim, "this LogisticRegression")
        residual = torch.sigmoid(x @ self.features.T) - self.labels
        return residual @ self.features + self.alpha * (x @ self.covariance)

    def extra_repr(self) -> str:
        return f"observations={len(self.features)}, dim={self.dim}, alpha={self.alpha:.4g}"
