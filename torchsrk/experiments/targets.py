"""The paper's strongly log-concave targets, with the choices it leaves out."""

from __future__ import annotations

import math

import torch

from ..potentials import GaussianMixture, LogisticRegression
from .base import Context

FAR = 1e100  # a particle beyond it has diverged: squares of more are not finite
SEPARATION = math.sqrt(0.5)  # ‖a‖ of the mixture: its curvatures are between ½ and 1


def mixture(dim: int, context: Context) -> GaussianMixture:
    """½N(a, I) + ½N(-a, I), a along the diagonal."""
    entry = SEPARATION / math.sqrt(dim)
    return GaussianMixture(torch.full((dim,), entry, dtype=context.dtype, device=context.device))


def regression(observations: int, dim: int, data_seed: int, context: Context) -> LogisticRegression:
    """Bayesian logistic regression on synthetic data."""
    target = LogisticRegression.synthetic(observations, dim, seed=data_seed, dtype=context.dtype)
    return target.to(context.device)
