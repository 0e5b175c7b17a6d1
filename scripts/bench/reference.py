"""Moments of posteriors by a very long run of NUTS, made once and kept."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np

from crew import Crew
from trial import Reference

FOLDER = Path(__file__).resolve().parents[2] / "results" / "references"
_CHAINS, _A_CALL = 32, 500


def reference_of(file: str, draws: int, crew: Crew) -> Reference:
    """The kept one of so many draws a chain, or a new one."""
    kept = FOLDER / f"{file}-{draws}.npz"
    if not kept.exists():
        worker = crew.hire({"JAX_ENABLE_X64": "1"})
        try:
            found = worker.ask("call", "reference", "long_run", file, draws)
        finally:
            worker.close()
        FOLDER.mkdir(parents=True, exist_ok=True)
        np.savez(kept, **asdict(found))
    with np.load(kept) as stored:
        return Reference(**{name: value if value.ndim else value.item() for name, value in stored.items()})


def long_run(file: str, draws: int) -> Reference:
    """blackjax's NUTS, 32 chains; their scatter about the mean of all is the standard error."""
    from samplers.blackjax_nuts import build

    parts, count = [], 0
    for chunk in build(file, chains=_CHAINS, first_draws=_A_CALL).run(12345, 0.0):
        parts.append(chunk.draws)
        count += len(chunk.draws)
        if count >= draws:
            break
    return moments(np.concatenate(parts))


def moments(x: np.ndarray) -> Reference:
    """Of draws (draws, chains, dim) of chains that are independent."""
    flat, chains = x.reshape(-1, x.shape[-1]), x.shape[1]
    mean, sd = flat.mean(0), flat.std(0)
    squares = np.square(flat)
    centred = np.square(x - mean).mean(0)  # (chains, dim): a variance by every chain
    return Reference(
        mean=mean,
        sd=sd,
        second=squares.mean(0),
        second_variance=squares.var(0),
        draws=len(flat),
        mean_error=float((x.mean(0).std(0, ddof=1) / sd).max() / np.sqrt(chains)),
        sd_error=float((0.5 * centred.std(0, ddof=1) / sd**2).max() / np.sqrt(chains)),
    )
