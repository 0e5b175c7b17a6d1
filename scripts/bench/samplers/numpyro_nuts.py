"""numpyro's NUTS with its defaults: 4 chains, 1000 draws of warm-up and 1000 more."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
from numpyro.infer import MCMC
from numpyro.infer import NUTS as Kernel

from models import jax_log_density, starts
from samplers import CHAINS, DRAWS, FIRST_DRAWS, WARM_UP, Chunk, Sampler
from samplers.scan import chunks

_FIELDS = ("num_steps",)


def build(file: str, *, chain_method: str) -> Sampler:
    log_density = jax_log_density(file)
    mcmc = MCMC(
        Kernel(potential_fn=lambda x: -log_density(x)),
        num_warmup=WARM_UP,
        num_samples=FIRST_DRAWS,
        num_chains=CHAINS,
        chain_method=chain_method,
        progress_bar=False,
    )

    # numpyro compiles several chains anew in every run, unless a user does this. It leaves nothing of use in ``mcmc``.
    @jax.jit
    def warm_up(key, x):
        mcmc.warmup(key, init_params=x, extra_fields=_FIELDS, collect_warmup=True)
        return mcmc.last_state, mcmc.get_extra_fields(group_by_chain=True)["num_steps"].sum(1).mean()

    @jax.jit
    def more(key, state, tuned):
        mcmc.post_warmup_state = state
        mcmc.run(state.rng_key, extra_fields=_FIELDS)
        steps = mcmc.get_extra_fields(group_by_chain=True)["num_steps"].mean(0)
        return mcmc.last_state, (mcmc.get_samples(group_by_chain=True).swapaxes(0, 1), steps)

    def run(seed: int, limit: float) -> Iterator[Chunk]:
        key = jax.random.key(seed)
        state, steps = warm_up(key, jnp.asarray(starts(file, CHAINS, seed)))
        yield from chunks(more, key, state, None, float(steps))

    return Sampler(run, DRAWS)
