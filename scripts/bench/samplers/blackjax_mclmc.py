"""blackjax's MCLMC: 4 chains side by side, tuned for 10,000 steps each, every step of which is a draw."""

from __future__ import annotations

from collections.abc import Iterator

import blackjax
import jax
import jax.numpy as jnp

from models import jax_log_density, starts
from samplers import CHAINS, Chunk, Sampler
from samplers.scan import chunks

_STEPS, _FIRST_STEPS = 10_000, 1_250
_GRADIENTS = 2  # a step of McLachlan's integrator


def build(file: str) -> Sampler:
    log_density = jax_log_density(file)
    kernel = blackjax.mclmc.build_kernel()

    def tuning(key, x):
        first, second = jax.random.split(key)
        state = blackjax.mclmc.init(x, log_density, first)
        state, found, steps = blackjax.mclmc_find_L_and_step_size(
            mclmc_kernel=kernel, num_steps=_STEPS, state=state, rng_key=second, logdensity_fn=log_density
        )
        return state, (found.inverse_mass_matrix, found.L, found.step_size), steps

    @jax.jit
    def warm_up(key, x):
        return jax.vmap(tuning, out_axes=(0, 0, None))(jax.random.split(key, CHAINS), x)

    @jax.jit
    def more(key, state, tuned):
        def step(state, key):
            def one(key, state, tuned):
                return kernel(key, state, log_density, *tuned)[0]

            state = jax.vmap(one)(jax.random.split(key, CHAINS), state, tuned)
            return state, (state.position, _GRADIENTS)

        return jax.lax.scan(step, state, jax.random.split(key, _FIRST_STEPS))

    def run(seed: int, limit: float) -> Iterator[Chunk]:
        first, second = jax.random.split(jax.random.key(seed))
        state, tuned, steps = warm_up(first, jnp.asarray(starts(file, CHAINS, seed)))
        yield from chunks(more, second, state, tuned, float(_GRADIENTS * steps))

    return Sampler(run, _STEPS)
