"""blackjax's MEADS: generalized HMC with 128 chains, 1000 steps of warm-up and 1000 more, each a draw."""

from __future__ import annotations

from collections.abc import Iterator

import blackjax
import jax
import jax.numpy as jnp

from models import jax_log_density, starts
from samplers import DRAWS, FIRST_DRAWS, MANY_CHAINS, WARM_UP, Chunk, Sampler
from samplers.scan import chunks


def build(file: str) -> Sampler:
    log_density = jax_log_density(file)
    adaptation = blackjax.meads_adaptation(log_density, MANY_CHAINS)
    kernel = blackjax.ghmc.build_kernel()

    @jax.jit
    def warm_up(key, x):
        (state, found), _ = adaptation.run(key, x, WARM_UP)
        return state, tuple(found[name] for name in ("step_size", "momentum_inverse_scale", "alpha", "delta"))

    @jax.jit
    def more(key, state, tuned):
        def step(state, key):
            def one(key, state):
                return kernel(key, state, log_density, *tuned)[0]

            state = jax.vmap(one)(jax.random.split(key, MANY_CHAINS), state)
            return state, (state.position, 1)

        return jax.lax.scan(step, state, jax.random.split(key, FIRST_DRAWS))

    def run(seed: int, limit: float) -> Iterator[Chunk]:
        first, second = jax.random.split(jax.random.key(seed))
        state, tuned = warm_up(first, jnp.asarray(starts(file, MANY_CHAINS, seed)))
        yield from chunks(more, second, state, tuned, float(WARM_UP))

    return Sampler(run, DRAWS)
