"""blackjax's NUTS with window adaptation: 4 chains side by side, 1000 draws of warm-up and 1000 more."""

from __future__ import annotations

from collections.abc import Iterator

import blackjax
import jax
import jax.numpy as jnp
import numpy as np

from models import jax_log_density, starts
from samplers import CHAINS, DRAWS, FIRST_DRAWS, WARM_UP, Chunk, Sampler
from samplers.scan import chunks


def build(file: str, chains: int = CHAINS, first_draws: int = FIRST_DRAWS) -> Sampler:
    log_density = jax_log_density(file)
    adaptation = blackjax.window_adaptation(blackjax.nuts, log_density)
    kernel = blackjax.nuts.build_kernel()

    @jax.jit
    def warm_up(key, x):
        def one(key, x):
            (state, parameters), info = adaptation.run(key, x, WARM_UP)
            tuned = parameters["step_size"], parameters["inverse_mass_matrix"]
            return state, tuned, info.info.num_integration_steps.sum()

        return jax.vmap(one)(jax.random.split(key, chains), x)

    @jax.jit
    def more(key, state, tuned):
        def step(state, key):
            def one(key, state, tuned):
                return kernel(key, state, log_density, *tuned)

            state, info = jax.vmap(one)(jax.random.split(key, chains), state, tuned)
            return state, (state.position, info.num_integration_steps.mean())

        return jax.lax.scan(step, state, jax.random.split(key, first_draws))

    def run(seed: int, limit: float) -> Iterator[Chunk]:
        first, second = jax.random.split(jax.random.key(seed))
        state, tuned, steps = warm_up(first, jnp.asarray(starts(file, chains, seed)))
        yield from chunks(more, second, state, tuned, float(np.mean(steps)))

    return Sampler(run, DRAWS)
