"""An autoregression of order 5 on a generated series of 200: y_t ~ N(α + Σ β_k y_{t-k}, σ).

α, β_k ~ N(0, 10), σ ~ half-Cauchy(2.5); points are (α, β, log σ).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

NAME, DIM = "autoregression", 7
_ORDER, _LENGTH = 5, 200


def data() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    slopes = np.array([0.6, -0.3, 0.25, 0.1, -0.1])
    series = list(rng.standard_normal(_ORDER))
    for _ in range(_LENGTH + 50 - _ORDER):
        series.append(0.5 + slopes @ series[: -_ORDER - 1 : -1] + 0.8 * rng.standard_normal())
    kept = np.array(series[-_LENGTH:])
    lags = [kept[_ORDER - k : _LENGTH - k] for k in range(1, _ORDER + 1)]
    return {"y": kept[_ORDER:], "past": np.column_stack((np.ones(_LENGTH - _ORDER), *lags))}


def in_torch(y, past) -> Callable:
    import torch

    def log_density(x):
        log_sigma = x[..., -1]
        sigma = torch.exp(log_sigma)
        misfit = (y - x[..., :-1] @ past.T) / sigma[..., None]
        prior = -0.5 * ((x[..., :-1] / 10.0) ** 2).sum(-1) - torch.log1p((sigma / 2.5) ** 2) + log_sigma
        return prior - 0.5 * (misfit**2).sum(-1) - len(y) * log_sigma

    return log_density


def in_jax(y, past) -> Callable:
    import jax.numpy as jnp

    def log_density(x):
        log_sigma = x[-1]
        sigma = jnp.exp(log_sigma)
        misfit = (y - past @ x[:-1]) / sigma
        prior = -0.5 * ((x[:-1] / 10.0) ** 2).sum() - jnp.log1p((sigma / 2.5) ** 2) + log_sigma
        return prior - 0.5 * (misfit**2).sum() - len(y) * log_sigma

    return log_density
