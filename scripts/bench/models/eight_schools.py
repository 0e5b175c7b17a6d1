"""Eight schools, non-centred: y_j ~ N(μ + τη_j, σ_j), η_j ~ N(0, 1), μ ~ N(0, 5), τ ~ half-Cauchy(5).

Points are (μ, log τ, η). Data of Rubin, 1981.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

NAME, DIM = "eight schools", 10


def data() -> dict[str, np.ndarray]:
    return {
        "y": np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0]),
        "sigma": np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0]),
    }


def in_torch(y, sigma) -> Callable:
    import torch

    def log_density(x):
        mu, log_tau, eta = x[..., 0], x[..., 1], x[..., 2:]
        tau = torch.exp(log_tau)
        misfit = (y - mu[..., None] - tau[..., None] * eta) / sigma
        prior = -0.5 * (mu / 5.0) ** 2 - torch.log1p((tau / 5.0) ** 2) + log_tau - 0.5 * (eta**2).sum(-1)
        return prior - 0.5 * (misfit**2).sum(-1)

    return log_density


def in_jax(y, sigma) -> Callable:
    import jax.numpy as jnp

    def log_density(x):
        mu, log_tau, eta = x[0], x[1], x[2:]
        tau = jnp.exp(log_tau)
        misfit = (y - mu - tau * eta) / sigma
        prior = -0.5 * (mu / 5.0) ** 2 - jnp.log1p((tau / 5.0) ** 2) + log_tau - 0.5 * (eta**2).sum()
        return prior - 0.5 * (misfit**2).sum()

    return log_density
