"""Posteriors of sbi, sampled by diffusions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Size, Tensor, nn
from torch.distributions import Distribution, Transform

from ..brownian.noise import derive_seed
from ..distributions import DiffusionDistribution
from ..extras import missing


class SbiPosterior:
    """What sbi's ``MCMCPosterior`` is, with thousands of particles of a tuned diffusion in the place of its chains.

    ::

        potential_fn, theta_transform = likelihood_estimator_based_potential(estimator, prior, x_o)
        posterior = SbiPosterior(potential_fn, prior, theta_transform)
        theta = posterior.sample((10_000,), x=x_o)
        many = posterior.sample_batched((1_000,), x=observations)      # (1000, observations, dim)

    Every observation is tuned on its own, when it is first sampled from; ``diagnose`` tells of one what speaks for its
    draws and what against them.

    Args:
        potential_fn: of sbi, theta (batch, dim) to log densities (batch,), up to a constant, with ``set_x``.
        prior: of theta.
        theta_transform: from theta to unconstrained space, as sbi makes it; by default ``mcmc_transform(prior)``.
        seed: of the draws; by default of torch's generator.
        options: others of DiffusionDistribution, such as ``particles``, or ``step_size`` and ``num_steps``.
    """

    def __init__(
        self,
        potential_fn: Any,
        prior: Distribution,
        theta_transform: Transform | None = None,
        *,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        if theta_transform is None:
            theta_transform = _transform_of(prior)
        self.potential_fn, self.prior, self.theta_transform = potential_fn, prior, theta_transform
        self.seed, self.options = seed, options
        self._dim = prior.sample(Size((1,))).shape[-1]

    def sample(self, sample_shape: Sequence[int] = (), x: Tensor | None = None) -> Tensor:
        """Draws (*sample_shape, dim) given one observation x, by default that of the potential."""
        return self.theta(self.conditioned(x).sample(sample_shape))

    def sample_batched(self, sample_shape: Sequence[int], x: Tensor) -> Tensor:
        """Draws (*sample_shape, observations, dim) given each of the observations (observations, ...)."""
        draws = [self.theta(self._made(row, number).sample(sample_shape)) for number, row in enumerate(x)]
        return torch.stack(draws, -2)

    def diagnose(self, x: Tensor | None = None) -> Any:
        """See ``torchsrk.diagnose``: print it."""
        return self.conditioned(x).diagnose()

    def conditioned(self, x: Tensor | None = None) -> DiffusionDistribution:
        """The posterior given x, in unconstrained space: ``theta`` takes its draws back."""
        return self._made(x, 0)

    def theta(self, z: Tensor) -> Tensor:
        """Parameters (..., dim) of unconstrained points."""
        flat = self.theta_transform.inv(z.reshape(-1, z.shape[-1]))
        return flat.reshape(*z.shape[:-1], flat.shape[-1])

    def _made(self, x: Tensor | None, number: int) -> DiffusionDistribution:
        seed = None if self.seed is None else derive_seed(self.seed, number)
        density = _FreeDensity(self.potential_fn, self.theta_transform, x)
        return DiffusionDistribution(log_density=density, event_shape=(self._dim,), seed=seed, **self.options)


class _FreeDensity(nn.Module):
    """Log density of unconstrained points, (..., dim) to (...)."""

    def __init__(self, potential_fn: Any, theta_transform: Transform, x: Tensor | None) -> None:
        super().__init__()
        self.potential_fn, self.theta_transform = potential_fn, theta_transform
        self.x = potential_fn.return_x_o() if x is None else x

    def forward(self, z: Tensor) -> Tensor:
        flat = z.reshape(-1, z.shape[-1])
        theta = self.theta_transform.inv(flat)
        if self.x is not None:
            self.potential_fn.set_x(self.x)  # one potential serves all observations
        log_density = self.potential_fn(theta, track_gradients=torch.is_grad_enabled())
        log_volume = self.theta_transform.inv.log_abs_det_jacobian(flat, theta)
        if log_volume.ndim > 1:
            log_volume = log_volume.sum(-1)
        return (log_density + log_volume).reshape(z.shape[:-1])


def _transform_of(prior: Distribution) -> Transform:
    try:
        from sbi.utils import mcmc_transform
    except ImportError as error:
        raise missing("sbi", "sbi") from error
    return mcmc_transform(prior)
