"""Logistic regression on scikit-learn's breast cancer data, standardised: an intercept and 30 slopes ~ N(0, 2.5)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

NAME, DIM = "logistic regression", 31
_SCALE = 2.5


def data() -> dict[str, np.ndarray]:
    from sklearn.datasets import load_breast_cancer

    features, labels = load_breast_cancer(return_X_y=True)
    features = (features - features.mean(0)) / features.std(0)
    return {"features": np.column_stack((np.ones(len(features)), features)), "labels": labels.astype(float)}


def in_torch(features, labels) -> Callable:
    from torch.nn.functional import logsigmoid  # softplus is a line from 20 on: off by 2e-9

    def log_density(x):
        logits = x @ features.T
        return logits @ labels + logsigmoid(-logits).sum(-1) - 0.5 * ((x / _SCALE) ** 2).sum(-1)

    return log_density


def in_jax(features, labels) -> Callable:
    from jax.nn import log_sigmoid

    def log_density(x):
        logits = features @ x
        return logits @ labels + log_sigmoid(-logits).sum() - 0.5 * ((x / _SCALE) ** 2).sum()

    return log_density
