"""A hierarchical regression with 96 groups of 2 to 6 observations, non-centred, on generated data.

y_i ~ N(μ + τη_g(i) + βx_i, σ), η_g ~ N(0, 1), μ, β ~ N(0, 5), τ, σ ~ half-N(0, 1); points are
(μ, β, log τ, log σ, η).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

_GROUPS = 96
NAME, DIM = "hierarchy", 4 + _GROUPS


def data() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    group = np.repeat(np.arange(_GROUPS), rng.integers(2, 7, _GROUPS))
    x = rng.standard_normal(len(group))
    means = 1.0 + 0.5 * rng.standard_normal(_GROUPS)
    return {"y": means[group] - 0.7 * x + 0.8 * rng.standard_normal(len(group)), "covariate": x, "group": group}


def in_torch(y, covariate, group) -> Callable:
    import torch

    def log_density(x):
        mu, beta, log_tau, log_sigma, eta = *x[..., :4].unbind(-1), x[..., 4:]
        tau, sigma = torch.exp(log_tau), torch.exp(log_sigma)
        effect = mu[..., None] + tau[..., None] * eta
        misfit = (y - effect[..., group] - beta[..., None] * covariate) / sigma[..., None]
        prior = -0.5 * ((mu / 5.0) ** 2 + (beta / 5.0) ** 2 + tau**2 + sigma**2 + (eta**2).sum(-1))
        return prior + log_tau + log_sigma - 0.5 * (misfit**2).sum(-1) - len(y) * log_sigma

    return log_density


def in_jax(y, covariate, group) -> Callable:
    import jax.numpy as jnp

    def log_density(x):
        mu, beta, log_tau, log_sigma, eta = *x[:4], x[4:]
        tau, sigma = jnp.exp(log_tau), jnp.exp(log_sigma)
        misfit = (y - (mu + tau * eta)[group] - beta * covariate) / sigma
        prior = -0.5 * ((mu / 5.0) ** 2 + (beta / 5.0) ** 2 + tau**2 + sigma**2 + (eta**2).sum())
        return prior + log_tau + log_sigma - 0.5 * (misfit**2).sum() - len(y) * log_sigma

    return log_density
