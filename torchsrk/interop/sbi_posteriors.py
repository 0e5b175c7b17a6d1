"""Posteriors of sbi, sampled by diffusions."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Size, Tensor, nn
from torch.distributions import Distribution, Transform

from ..brownian.noise import derive_seed
from ..distributions import DiffusionDistribution
from ..extras import missing

_MOST_KEPT = 256  # observations, each with its chains

_Key = tuple[torch.dtype, tuple[int, ...], bytes]  # of an observation


class SbiPosterior:
    """What sbi's ``MCMCPosterior`` is, with thousands of particles of a tuned diffusion in the place of its chains.

    ::

        made = likelihood_estimator_based_potential(estimator, prior, x_o)
        potential_fn, theta_transform = made
        posterior = SbiPosterior(potential_fn, prior, theta_transform)
        theta = posterior.sample((10_000,), x=x_o)
        many = posterior.sample_batched((1_000,), x=observations)  # (1000, observations, dim)

    Every observation is tuned on its own, when it is first sampled from. Later draws go on from its chains, and
    ``diagnose`` tells what speaks for them and what against them. The 256 observations that were asked for last are
    kept. Observations are set in copies of the potential, with the same networks: the one that was given stays as it
    is.

    Args:
        potential_fn: of sbi, theta (batch, dim) to log densities (batch,), up to a constant, with ``set_x``. The
            observation that it has is the default one.
        prior: of theta.
        theta_transform: from theta to unconstrained space, as sbi makes it; by default ``mcmc_transform(prior)``.
        seed: of the draws, which depend on it and on the calls before; by default of torch's generator.
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
        default_x = potential_fn.return_x_o()
        self._default_x = None if default_x is None else default_x.detach().clone()
        self._dim = prior.sample(Size((1,))).shape[-1]
        self._kept: OrderedDict[_Key | None, DiffusionDistribution] = OrderedDict()
        self._made = 0

    def sample(
        self, sample_shape: Sequence[int] = (), x: Tensor | None = None, *, show_progress_bars: bool | None = None
    ) -> Tensor:
        """Draws (*sample_shape, dim) given one observation x, by default that which the potential had."""
        return self._drawn(self.conditioned(x), sample_shape, show_progress_bars)

    def sample_batched(
        self, sample_shape: Sequence[int], x: Tensor, *, show_progress_bars: bool | None = None
    ) -> Tensor:
        """Draws (*sample_shape, observations, dim) given each of the observations (observations, ...)."""
        return torch.stack([self._drawn(self.conditioned(row), sample_shape, show_progress_bars) for row in x], -2)

    def diagnose(self, x: Tensor | None = None) -> Any:
        """See ``torchsrk.diagnose``: print it. Looks at the chains that draws given x came from."""
        return self.conditioned(x).diagnose()

    def conditioned(self, x: Tensor | None = None) -> DiffusionDistribution:
        """The posterior given x, in unconstrained space: ``theta`` takes its draws back.

        It is the one that ``sample`` draws from: the draws of either go on from those of the other.
        """
        x = self._default_x if x is None else torch.as_tensor(x)
        key = None if x is None else _key(x)
        if key not in self._kept:
            self._kept[key] = self._new(x)
        self._kept.move_to_end(key)
        if len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return self._kept[key]

    def theta(self, z: Tensor) -> Tensor:
        """Parameters (..., dim) of unconstrained points."""
        flat = self.theta_transform.inv(z.reshape(-1, z.shape[-1]))
        return flat.reshape(*z.shape[:-1], flat.shape[-1])

    def _drawn(self, given_x: DiffusionDistribution, sample_shape: Sequence[int], show: bool | None) -> Tensor:
        by_default = given_x.progress
        given_x.progress = by_default if show is None else show
        try:
            return self.theta(given_x.sample(sample_shape))
        finally:
            given_x.progress = by_default

    def _new(self, x: Tensor | None) -> DiffusionDistribution:
        """Its seed is that of no other, an earlier one of the same observation included."""
        seed = None if self.seed is None else derive_seed(self.seed, self._made)
        self._made += 1
        density = _FreeDensity(_with_observation(self.potential_fn, x), self.theta_transform)
        return DiffusionDistribution(log_density=density, event_shape=(self._dim,), seed=seed, **self.options)


class _FreeDensity(nn.Module):
    """Log density of unconstrained points, (..., dim) to (...)."""

    def __init__(self, potential_fn: Any, theta_transform: Transform) -> None:
        super().__init__()
        self.potential_fn, self.theta_transform = potential_fn, theta_transform

    def forward(self, z: Tensor) -> Tensor:
        flat = z.reshape(-1, z.shape[-1])
        theta = self.theta_transform.inv(flat)
        log_density = self.potential_fn(theta, track_gradients=torch.is_grad_enabled())
        log_volume = self.theta_transform.inv.log_abs_det_jacobian(flat, theta)
        if log_volume.ndim > 1:
            log_volume = log_volume.sum(-1)
        return (log_density + log_volume).reshape(z.shape[:-1])


def _with_observation(potential_fn: Any, x: Tensor | None) -> Any:
    """The potential given x. Blocks of particles run on threads, so that no two observations can take turns in one."""
    twin = _apart(potential_fn)
    if x is not None:
        twin.set_x(x.detach().clone())
    return twin


def _apart(part: Any) -> Any:
    """A copy of a potential and of those within it, which hold the observation too; networks and tensors are shared."""
    if isinstance(part, (list, tuple)) and any(hasattr(entry, "set_x") for entry in part):
        return type(part)(map(_apart, part))
    if isinstance(part, dict):
        twin = copy.copy(part)
        twin.update({name: _apart(value) for name, value in part.items()})
        return twin
    if not hasattr(part, "set_x") or isinstance(part, type):
        return part
    twin = copy.copy(part)
    vars(twin).update(_apart(vars(part)))
    return twin


def _key(x: Tensor) -> _Key:
    """The same for equal observations, with or without a dimension of one trial."""
    rows = torch.atleast_2d(x.detach()).cpu().contiguous()
    return rows.dtype, tuple(rows.shape), rows.view(-1).view(torch.uint8).numpy().tobytes()


def _transform_of(prior: Distribution) -> Transform:
    try:
        from sbi.utils import mcmc_transform
    except ImportError as error:
        raise missing("sbi", "sbi") from error
    return mcmc_transform(prior)
