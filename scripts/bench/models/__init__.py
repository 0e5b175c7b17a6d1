"""Posteriors, one a file: a log density on ℝⁿ in torch and its twin in jax, up to a constant.

Each file has ``NAME``, ``DIM``, ``data()`` in numpy, ``in_torch(**data)``, a function of points (..., dim), and
``in_jax(**data)``, a function of one point (dim,). Libraries are imported by those two alone: a process that runs one
does not hold the other.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

FILES = ("eight_schools", "logistic_regression", "gaussian_process", "autoregression", "hierarchy")
SPREAD = 2.0  # particles and chains start uniform on (-SPREAD, SPREAD), as is the custom


def model(file: str) -> Any:
    """The module of a posterior."""
    return import_module(f"models.{file}")


def torch_log_density(file: str) -> Callable:
    """In double precision; it is torch's default from here on, for whatever a sampler makes."""
    import torch

    torch.set_default_dtype(torch.float64)
    posterior = model(file)
    return posterior.in_torch(**{name: torch.as_tensor(value) for name, value in posterior.data().items()})


def jax_log_density(file: str) -> Callable:
    """In the precision that the process is set to."""
    import jax.numpy as jnp

    posterior = model(file)
    return posterior.in_jax(**{name: jnp.asarray(value) for name, value in posterior.data().items()})


def starts(file: str, chains: int, seed: int) -> np.ndarray:
    """Where chains start, (chains, dim)."""
    return np.random.default_rng(seed).uniform(-SPREAD, SPREAD, (chains, model(file).DIM))


def check_twins(file: str, points: int = 20) -> float:
    """The largest difference of values, up to a constant, and of gradients, relative to the largest of each.

    Raises:
        ValueError: torch and jax do not have the same density.
    """
    import jax
    import torch

    x = starts(file, points, seed=0)
    given = torch.as_tensor(x).requires_grad_()
    ours = torch_log_density(file)(given)
    (gradient,) = torch.autograd.grad(ours.sum(), given)
    theirs, their_gradient = jax.vmap(jax.value_and_grad(jax_log_density(file)))(x)
    value = ours.detach().numpy()
    pairs = ((value - value[0], np.asarray(theirs - theirs[0])), (gradient.numpy(), np.asarray(their_gradient)))
    worst = max(float(np.abs(a - b).max() / np.abs(a).max()) for a, b in pairs)
    if not worst < 1e-10:
        raise ValueError(f"the densities in torch and jax differ by {worst:.1e}")
    return worst
