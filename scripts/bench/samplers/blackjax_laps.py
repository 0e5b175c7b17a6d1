"""blackjax's LAPS: 1000 chains, at most 500 unadjusted steps and 500 gradients of adjusted ones; the end is the draw.

It compiles anew in every call, as its library has it. Without the jit that is added here, it would be operation by
operation.
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from blackjax import eca
from blackjax.adaptation.laps import laps

from models import SPREAD, jax_log_density, model
from samplers import Chunk, Sampler

_CHAINS, _STEPS = 1000, 500
_STEPS_A_SAMPLE = 15

_shard_map = eca.shard_map
eca.shard_map = lambda *arguments, **named: jax.jit(_shard_map(*arguments, **named))


def build(file: str) -> Sampler:
    log_density, dim = jax_log_density(file), model(file).DIM

    def start(key):
        return jax.random.uniform(key, (dim,), minval=-SPREAD, maxval=SPREAD)

    def run(seed: int, limit: float) -> Iterator[Chunk]:
        chains = _CHAINS
        while True:
            info, cost, _, state = laps(
                log_density,
                start,
                dim,
                num_steps1=_STEPS,
                num_steps2=_STEPS,
                num_chains=chains,
                mesh=jax.sharding.Mesh(jax.devices()[:1], "chains"),
                rng_key=jax.random.key(seed),
                observables_for_bias=jnp.square,
                contract=lambda second: second,
            )
            seconds = [np.asarray(info[phase]["bias"]) for phase in ("phase_1", "phase_2")]
            unadjusted, samples = map(len, seconds)
            taken = np.concatenate((np.ones(unadjusted), np.full(samples, cost * _STEPS_A_SAMPLE))).cumsum()
            path = taken, np.concatenate(seconds)
            yield Chunk(np.asarray(state.position)[None], taken[-1:], alone=True, path=path)
            chains *= 2

    return Sampler(run, 1)
