"""blackjax's ChEES-HMC: 128 chains, 1000 draws of warm-up and 1000 more."""

from __future__ import annotations

from collections.abc import Iterator

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import optax

from models import jax_log_density, starts
from samplers import DRAWS, FIRST_DRAWS, MANY_CHAINS, WARM_UP, Chunk, Sampler
from samplers.scan import chunks

_FIRST_STEP, _LEARNING_RATE = 0.1, 0.02  # it has no defaults for these
_MOST_DRAWS = 100_000


def build(file: str) -> Sampler:
    log_density = jax_log_density(file)
    adaptation = blackjax.chees_adaptation(log_density, MANY_CHAINS)
    functions = {}

    @jax.jit
    def warm_up(key, x):
        (state, found), info = adaptation.run(
            key, x, _FIRST_STEP, optax.adam(_LEARNING_RATE), WARM_UP, max_sampling_steps=_MOST_DRAWS
        )
        functions.update({name: found[name] for name in ("next_random_arg_fn", "integration_steps_fn")})
        tuned = tuple(found[name] for name in ("step_size", "inverse_mass_matrix", "integration_steps_params"))
        return state, tuned, info.info.num_integration_steps.sum(0).mean()

    @jax.jit
    def more(key, state, tuned):
        kernel = blackjax.dynamic_hmc.build_kernel(**functions)

        def step(state, key):
            def one(key, state):
                return kernel(key, state, log_density, *tuned)

            state, info = jax.vmap(one)(jax.random.split(key, MANY_CHAINS), state)
            return state, (state.position, info.num_integration_steps.mean())

        return jax.lax.scan(step, state, jax.random.split(key, FIRST_DRAWS))

    def run(seed: int, limit: float) -> Iterator[Chunk]:
        first, second = jax.random.split(jax.random.key(seed))
        state, tuned, steps = warm_up(first, jnp.asarray(starts(file, MANY_CHAINS, seed)))
        yield from chunks(more, second, state, tuned, float(np.asarray(steps)))

    return Sampler(run, DRAWS)
