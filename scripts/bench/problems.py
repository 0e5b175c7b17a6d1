"""The targets of the benchmark, as plain numbers: torch and jax build the same energies from them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Problem:
    """A target density, or an SDE, by its name and parameters.

    The targets' step sizes are powers of two, so that times are exact: no solver adds a last sliver of a step.
    """

    name: str
    dim: int
    step_size: float
    parameters: dict[str, np.ndarray] = field(default_factory=dict, repr=False)

    @property
    def size(self) -> int:
        """How many numbers a gradient goes through."""
        return sum(value.size for value in self.parameters.values())


def mixture(dim: int = 20) -> Problem:
    """½N(a, I) + ½N(-a, I) with ‖a‖² = ½; the smoothness is 1."""
    return Problem("mixture", dim, 2.0**-3, {"shift": np.full(dim, (2 * dim) ** -0.5)})


def logistic_regression(observations: int = 1000, dim: int = 20) -> Problem:
    """The posterior of a logistic regression; the smoothness is about 0.3."""
    import torch

    from torchsrk.potentials import LogisticRegression

    target = LogisticRegression.synthetic(observations, dim, seed=0, dtype=torch.float64)
    parameters = {name: buffer.numpy() for name, buffer in target.named_buffers()}
    return Problem("logistic regression", dim, 2.0**-2, {**parameters, "alpha": np.array(target.alpha)})


def network(hidden: int = 64) -> Problem:
    """f(x) = ½‖x‖² + wᵀtanh(Vx + b) in 2-D; w is so small that the quadratic rules far out and near."""
    rng = np.random.default_rng(0)
    weights = {
        "inner": rng.standard_normal((hidden, 2)),
        "bias": rng.standard_normal(hidden),
        "outer": rng.standard_normal(hidden) / np.sqrt(hidden),
    }
    return Problem("network", 2, 2.0**-4, weights)


def deep_network(hidden: int = 64) -> Problem:
    """f(x) = ½‖x‖² + wᵀtanh(U tanh(Vx + b) + c) in 2-D: 2-64-64-1, nearly all of it the product with U."""
    rng = np.random.default_rng(1)
    weights = {
        "inner": rng.standard_normal((hidden, 2)),
        "bias": rng.standard_normal(hidden),
        "middle": rng.standard_normal((hidden, hidden)) / np.sqrt(hidden),
        "shift": rng.standard_normal(hidden),
        "outer": rng.standard_normal(hidden) / np.sqrt(hidden),
    }
    return Problem("deep network", 2, 2.0**-4, weights)


def general_noise(dim: int) -> Problem:
    """An SDE with as many Brownian motions as dimensions, which do not commute; see contenders/srk_id.py."""
    return Problem("general noise", dim, 1e-3)
