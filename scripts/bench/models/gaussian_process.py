"""Gaussian-process regression: length ρ, amplitude α and noise σ of a squared exponential kernel, from 20 points.

ρ ~ Gamma(25, 4), α ~ half-N(0, 2), σ ~ half-N(0, 1); points are their logarithms.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

NAME, DIM = "Gaussian process", 3
_POINTS = 20


def data() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    at = np.linspace(-10.0, 10.0, _POINTS)
    distances = (at[:, None] - at) ** 2
    truth = np.linalg.cholesky(2.0**2 * np.exp(-0.5 * distances / 5.5**2) + 1e-9 * np.eye(_POINTS))
    return {
        "y": truth @ rng.standard_normal(_POINTS) + 0.5 * rng.standard_normal(_POINTS),
        "distances": distances,
        "eye": np.eye(_POINTS),
    }


def in_torch(y, distances, eye) -> Callable:
    import torch

    def log_density(x):
        rho, alpha, sigma = torch.exp(x).unbind(-1)
        kernel = (alpha**2)[..., None, None] * torch.exp(-0.5 * distances / (rho**2)[..., None, None])
        # One matrix that rounding has made indefinite must not end the run of all: jax has NaN there.
        root, failed = torch.linalg.cholesky_ex(kernel + (sigma**2)[..., None, None] * eye)
        whitened = torch.linalg.solve_triangular(root, y.expand(*x.shape[:-1], -1)[..., None], upper=False)[..., 0]
        likelihood = -0.5 * (whitened**2).sum(-1) - torch.log(root.diagonal(dim1=-2, dim2=-1)).sum(-1)
        prior = 25.0 * x[..., 0] - 4.0 * rho - 0.5 * (alpha / 2.0) ** 2 + x[..., 1] - 0.5 * sigma**2 + x[..., 2]
        return (likelihood + prior).masked_fill(failed > 0, torch.nan)

    return log_density


def in_jax(y, distances, eye) -> Callable:
    import jax.numpy as jnp
    from jax.scipy.linalg import solve_triangular

    def log_density(x):
        rho, alpha, sigma = jnp.exp(x)
        root = jnp.linalg.cholesky(alpha**2 * jnp.exp(-0.5 * distances / rho**2) + sigma**2 * eye)
        whitened = solve_triangular(root, y, lower=True)
        likelihood = -0.5 * (whitened**2).sum() - jnp.log(jnp.diagonal(root)).sum()
        prior = 25.0 * x[0] - 4.0 * rho - 0.5 * (alpha / 2.0) ** 2 + x[1] - 0.5 * sigma**2 + x[2]
        return likelihood + prior

    return log_density
