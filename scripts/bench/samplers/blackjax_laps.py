"""blackjax's LAPS: 1000 chains, at most 500 unadjusted steps and 500 gradients of adjusted ones; the end is the draw.

It compiles anew in every call, as its library has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.laps import laps

from models import SPREAD, jax_log_density, model
from samplers import Chunk, Sampler

_CHAINS, _STEPS = 1000, 500
_STEPS_A_SAMPLE = 15


def build(file: str) -> Sampler:
    log_density, dim = jax_log_density(file), model(file).DIM

    def start(key):
        return jax.random.uniform(key, (dim,), minval=-SPREAD, maxval=SPREAD)

    def call(seed: int, chains: int, contract: Callable = lambda moments: 0.0):
        mesh = jax.sharding.Mesh(jax.devices()[:1], "chains")
        info, cost, _, state = laps(
            log_density,
            start,
            dim,
            num_steps1=_STEPS,
            num_steps2=_STEPS,
            num_chains=chains,
            mesh=mesh,
            rng_key=jax.random.key(seed),
            observables_for_bias=jnp.square,
            contract=contract,
        )
        unadjusted = len(info["phase_1"]["step_size"])
        samples = len(info["phase_2"]["step_size"])
        taken = np.arange(1, unadjusted + 1), unadjusted + cost * _STEPS_A_SAMPLE * np.arange(1, samples + 1)
        return np.asarray(state.position), np.concatenate(taken), info

    def run(seed: int, limit: float) -> Iterator[Chunk]:
        chains = _CHAINS
        while True:
            x, gradients, _ = call(seed, chains)
            yield Chunk(x[None], gradients[-1:], alone=True)
            chains *= 2

    def path(seed: int, badness: Callable) -> list[tuple[float, float]]:
        _, gradients, info = call(seed, _CHAINS, badness)
        values = np.concatenate([np.asarray(info[phase]["bias"]) for phase in ("phase_1", "phase_2")])
        return list(zip(gradients.tolist(), values.tolist(), strict=True))

    return Sampler(run, 1, path)
