"""numpyro's NUTS with its defaults: 4 chains, 1000 draws of warm-up and 1000 more."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np
from numpyro.infer import MCMC
from numpyro.infer import NUTS as Kernel

from models import jax_log_density, starts
from samplers import CHAINS, DRAWS, FIRST_DRAWS, WARM_UP, Chunk, Sampler, doublings

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

    def more() -> tuple[np.ndarray, np.ndarray]:
        """FIRST_DRAWS draws and their gradients, going on from where the chains are."""
        state = mcmc.post_warmup_state
        mcmc.run(state.rng_key, extra_fields=_FIELDS)
        mcmc.post_warmup_state = mcmc.last_state
        draws = np.asarray(mcmc.get_samples(group_by_chain=True)).swapaxes(0, 1)
        return draws, np.asarray(mcmc.get_extra_fields(group_by_chain=True)["num_steps"]).mean(0)

    def run(seed: int, limit: float) -> Iterator[Chunk]:
        x = starts(file, CHAINS, seed)
        mcmc.warmup(jax.random.key(seed), init_params=x, extra_fields=_FIELDS, collect_warmup=True)
        spent = float(np.asarray(mcmc.get_extra_fields(group_by_chain=True)["num_steps"]).sum(1).mean())
        for count in doublings():
            parts = [more() for _ in range(count)]
            gradients = spent + np.concatenate([steps for _, steps in parts]).cumsum()
            spent = float(gradients[-1])
            yield Chunk(np.concatenate([draws for draws, _ in parts]), gradients)

    return Sampler(run, DRAWS)
