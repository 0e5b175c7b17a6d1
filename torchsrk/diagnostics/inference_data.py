"""Draws as ArviZ has them, and what ArviZ tells of them. It is an extra, loaded at the first call."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ..extras import missing
from ..sampling import Run
from ..tuning import Tuning
from .draws import Parameters, kept_positions, parameters_for, read, shapes_of

_LEAST_DRAWS = 4  # of a chain: with fewer ArviZ tells nothing
_MOST_CHAINS = 1000  # that are looked at: it takes them one by one


def to_arviz(
    run: Run | Tensor,
    names: Sequence[str] | Mapping[str, Sequence[int]] | None = None,
    parameters: Parameters | None = None,
    tuning: Tuning | None = None,
) -> Any:
    """Draws for ``arviz.summary``, ``arviz.plot_trace`` and the rest: a chain for every particle.

    Args:
        run: a Run, or draws (draws, particles, parameters), as a trajectory is: the n-th draws of all particles stand
            together. ArviZ's own functions take chains first, and so do the draws of a DiffusionDistribution with a
            ``chain_length``: ``.transpose(0, 1)`` leads from the one to the other.
        names: a name for every parameter, or names with the shapes of the arrays that parameters are entries of, in
            order. By default all are one vector x.
        parameters: positions (..., dim) to the (..., parameters) that are read; by default what a plan's run or the
            tuning says, and positions as they are where neither says anything. Of a tensor they are its entries.
        tuning: the plan that drew the run.

    Returns:
        An ``InferenceData``, or from ArviZ 1 on a ``DataTree``, with a posterior group of dims (chain, draw, ...).

    Raises:
        ImportError: ArviZ is not installed.
    """
    arviz = loaded()
    theta = read(_positions(run), parameters or parameters_for(run, tuning))
    draws, particles, count = theta.shape
    rows, posterior, at = theta.transpose(0, 1), {}, 0
    for name, shape in shapes_of(names, count).items():
        size = torch.Size(shape).numel()
        posterior[name] = rows[..., at : at + size].reshape(particles, draws, *shape).numpy()
        at += size
    with _quiet():
        if hasattr(arviz, "InferenceData"):
            return arviz.from_dict(posterior=posterior)
        return arviz.from_dict({"posterior": posterior})


def ranked(theta: Tensor) -> dict[str, Tensor]:
    """Rank-normalised split R̂ and bulk and tail effective sample sizes of (draws, particles, parameters).

    Of at most a thousand particles; sizes are scaled up to all of them, which are independent. Correlations are looked
    for within halves of chains: from a few draws of each they are underrated, and sizes overrated.
    """
    arviz = loaded()
    chains = theta[:, :_MOST_CHAINS]
    scale = theta.shape[1] / chains.shape[1]
    columns = chains.permute(2, 1, 0).numpy()  # (parameters, chain, draw)
    if columns.shape[1] == 1:  # its halves: ArviZ compares two or more
        half = columns.shape[2] // 2
        columns = columns[:, :, -2 * half :].reshape(len(columns), 2, half)
    with _quiet():
        found = {
            "rhat": [float(arviz.rhat(column)) for column in columns],
            "ess_bulk": [scale * float(arviz.ess(column, method="bulk")) for column in columns],
            "ess_tail": [scale * float(arviz.ess(column, method="tail")) for column in columns],
        }
    return {name: torch.tensor(values, dtype=torch.float64) for name, values in found.items()}


def least_draws(particles: int) -> int:
    """Draws of each of so many particles that ArviZ needs; a single one is taken as two."""
    return 2 * _LEAST_DRAWS if particles == 1 else _LEAST_DRAWS


def ranked_chains(particles: int) -> int:
    """How many of so many particles are looked at."""
    return min(particles, _MOST_CHAINS)


def loaded() -> Any:
    """The module arviz, or one clear error."""
    try:
        with _quiet():
            import arviz
    except ImportError as error:
        raise missing("ArviZ", "diagnostics") from error
    return arviz


def _positions(run: Run | Tensor) -> Tensor:
    if not isinstance(run, Tensor):
        return kept_positions(run)
    if run.ndim != 3 or not run.is_floating_point():
        raise ValueError(
            f"draws are a floating tensor (draws, particles, parameters); got {run.dtype} {tuple(run.shape)}. Where "
            "chains come first, as ArviZ has them, transpose(0, 1)"
        )
    return kept_positions(Run(run[-1:].squeeze(0), run, run[-1:].squeeze(0), len(run)))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what ArviZ says of its own future, of many short chains, and of parameters that never change."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, message="(?s).*ArviZ is undergoing")
        warnings.filterwarnings("ignore", category=UserWarning, message="More chains")
        warnings.filterwarnings("ignore", category=RuntimeWarning, message="invalid value encountered")
        yield
