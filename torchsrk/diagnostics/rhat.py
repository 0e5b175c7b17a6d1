"""Nested R-hat: whether particles have forgotten where they started.

After Margossian, Hoffman, Sountsov, Riou-Durand, Vehtari and Gelman, "Nested R̂: assessing the convergence of Markov
chain Monte Carlo when running many short chains" (2022). Chains of one superchain start at one point, and R̂² - 1 is the
variance between superchains' means over that within.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .errors import MANY, critical

# The correlation that draws of one particle may have, on average over its pairs, where particles are many: what is
# left of a start is then a small part of what is seen, and averages over particles do not rest on it.
MEMORY = 0.3
# Of few particles each must tell all: R-hat is to be 1.01, as Vehtari et al. (2021) ask.
_LEAST_MEMORY = 0.02
# By R̂² ≈ 1 + chains/(effective draws) (Vats and Knudson, 2021), so many effective draws in all are asked for between.
_DRAWS = 400
# The variance between superchains that starts in common may leave: a bias of 0.1 standard deviations.
_SHARED = 0.01
_LOOKS = 12


def nested_rhat(theta: Tensor, superchains: Tensor | int | None = None) -> Tensor:
    """R̂ of theta (draws, particles, parameters), (parameters,); NaN where nothing varies within.

    Args:
        superchains: an id for every particle, (particles,), of groups of one size that started at one point each; or
            how many such groups there are, of neighbours. None, for particles with starts of their own, takes each as
            a superchain, and R̂ is the one of Gelman and Rubin. Groups of particles that did not start together tell
            nothing: their means differ as those of random groups do, however far all are from the target.
    """
    between, across, within = variances(theta, superchains)
    return (1.0 + between / (across + within)).sqrt()


def variances(theta: Tensor, superchains: Tensor | int | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Between superchains, between chains of one, and within chains: (parameters,) each."""
    means = theta.mean(0)
    groups = means[_members(superchains, theta.shape[1], theta.device)]  # (superchains, chains, parameters)
    zero = torch.zeros_like(means[0])
    between = groups.mean(1).var(0) if len(groups) > 1 else torch.full_like(zero, math.nan)
    across = groups.var(1).mean(0) if groups.shape[1] > 1 else zero
    within = theta.var(0).mean(0) if len(theta) > 1 else zero
    return between, across, within


def rhat_over_time(theta: Tensor, superchains: Tensor | int | None = None) -> tuple[list[int], Tensor]:
    """R̂ of the draws up to some of them, (times, parameters), and which, spread evenly by ratio."""
    draws, least = len(theta), 2 if superchains is None else 1
    if draws < least:
        return [], theta.new_empty(0, theta.shape[-1])
    ratio = (draws / least) ** (1.0 / (_LOOKS - 1))
    times = sorted({min(draws, round(least * ratio**k)) for k in range(_LOOKS)} | {draws})
    return times, torch.stack([nested_rhat(theta[:time], superchains) for time in times])


def largest_rhat(theta: Tensor, superchains: Tensor | int | None = None) -> Tensor:
    """The R̂ that particles which have forgotten their starts stay below, (parameters,).

    Without superchains it is that of draws as many, with the memory allowed. With them, chains of a superchain make
    its mean vary by their own variance over their number, and a little more is allowed. Noise is as significant as
    declared.
    """
    draws, particles, count = theta.shape
    if superchains is None:
        return theta.new_full((count,), math.sqrt(1.0 + allowed_ratio(draws, particles, count)))
    _, across, within = variances(theta, superchains)
    groups, chains, _ = (*_members(superchains, particles, theta.device).shape, None)
    noise = 1.0 + critical(count, groups) * math.sqrt(2.0 / max(1, groups - 1))
    return (1.0 + noise * across / (chains * (across + within)) + _SHARED).sqrt()


def allowed_ratio(draws: int, particles: int, count: int) -> float:
    """The variance between particles' means over that within them that the allowed memory makes, and its noise."""
    memory = min(MEMORY, max(_LEAST_MEMORY, particles / _DRAWS))
    noise = critical(count, max(particles, MANY)) * math.sqrt(2.0 / max(1, particles - 1)) / draws
    return (1.0 + memory * (draws - 1)) / (draws * (1.0 - memory)) + noise


def memory(theta: Tensor) -> Tensor:
    """The correlation over particles with where they were half of the draws before, (parameters,).

    On average over times; of theta (draws, particles, parameters).
    """
    lag = -(-len(theta) // 2)
    centred = theta - theta.mean(1, keepdim=True)
    then, now = centred[:-lag], centred[lag:]
    scale = (then.square().mean(1) * now.square().mean(1)).sqrt().clamp_min(torch.finfo(theta.dtype).tiny)
    return ((then * now).mean(1) / scale).mean(0)


def checked_superchains(superchains: Tensor | int | None, particles: int) -> None:
    """One clear error for groups that can't be compared."""
    if superchains is not None:
        _members(superchains, particles, torch.device("cpu"))


def _members(superchains: Tensor | int | None, particles: int, device: torch.device) -> Tensor:
    """The particles of every superchain, (superchains, chains)."""
    everyone = torch.arange(particles, device=device)
    if superchains is None:
        return everyone.unsqueeze(1)
    if isinstance(superchains, Tensor):
        if superchains.shape != (particles,) or superchains.is_floating_point():
            raise ValueError(
                f"superchains is an integer id for each of {particles} particles; got {superchains.dtype} "
                f"{tuple(superchains.shape)}"
            )
        sizes = superchains.unique(return_counts=True)[1]
        groups, equal = len(sizes), bool((sizes == sizes[0]).all())
        ordered = superchains.to(device).sort(stable=True).indices
    elif isinstance(superchains, bool) or not isinstance(superchains, int) or superchains < 1:
        raise ValueError(f"superchains is a number of groups, or an id for every particle; got {superchains!r}")
    else:
        groups, equal, ordered = superchains, particles % superchains == 0, everyone
    if not equal or groups < 2 or groups == particles:
        raise ValueError(
            f"superchains are two or more groups of one size, with two or more of the {particles} particles each; got "
            f"{groups}{'' if equal else ' of different sizes'}. Leave it out if every particle has a start of its own"
        )
    return ordered.reshape(groups, -1)
