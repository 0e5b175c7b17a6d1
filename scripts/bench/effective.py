"""How many independent draws some draws are worth."""

from __future__ import annotations

import numpy as np


def smallest_ess(draws: np.ndarray) -> float:
    """Of draws (draws, chains, dim): for means and for second moments about the mean, the smallest of all coordinates.

    Long chains go through ArviZ. Where there are more chains than draws of each, these are particles: correlations
    between a particle's draws are averages over particles, which leave nothing to be guessed but where to stop.
    """
    both = np.concatenate((draws, np.square(draws - draws.mean((0, 1)))), -1)
    ess = _of_particles if both.shape[1] > both.shape[0] else _of_chains
    return float(min(ess(both[..., i]) for i in range(both.shape[-1])))


def _of_chains(values: np.ndarray) -> float:
    import arviz

    return float(arviz.ess(np.ascontiguousarray(values.T), method="mean"))


def _of_particles(values: np.ndarray) -> float:
    """n / (1 + 2 Σ (1 - k/draws) ρ_k) over the lags k before the first correlation that is not positive."""
    draws, particles = values.shape
    centred = values - values.mean()
    variance, total = float(np.square(centred).mean()), 1.0
    for lag in range(1, draws):
        correlation = float((centred[lag:] * centred[:-lag]).mean()) / variance
        if correlation <= 0.0:
            break
        total += 2.0 * (1.0 - lag / draws) * correlation
    return draws * particles / total
