"""nutpie's NUTS on a jitted jax function: 4 chains, its own number of draws of warm-up and 1000 more.

It can't go on from where it was, so that more draws are another run.
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np
import nutpie
from nutpie.compiled_pyfunc import from_pyfunc

from models import jax_log_density, model, starts
from samplers import CHAINS, DRAWS, FIRST_DRAWS, Chunk, Sampler


def build(file: str) -> Sampler:
    dim = model(file).DIM
    both = jax.jit(jax.value_and_grad(jax_log_density(file)))

    def make_log_density():
        def log_density(x):
            value, gradient = both(x)
            return float(value), np.asarray(gradient)

        return log_density

    def make_expand(*_):
        return lambda x: {"x": np.array(x)}

    def start(seed):
        return starts(file, 1, seed)[0]

    def run(seed: int, limit: float) -> Iterator[Chunk]:
        compiled = from_pyfunc(
            dim, make_log_density, make_expand, [np.dtype("float64")], [(dim,)], ["x"], make_initial_point_fn=start
        )
        draws = FIRST_DRAWS
        while True:
            trace = nutpie.sample(compiled, draws=draws, chains=CHAINS, seed=seed, progress_bar=False)
            warm_up = trace.warmup_sample_stats["n_steps"].to_numpy().sum(1).mean()
            gradients = warm_up + trace.sample_stats["n_steps"].to_numpy().mean(0).cumsum()
            yield Chunk(trace.posterior["x"].to_numpy().swapaxes(0, 1), gradients, alone=True)
            draws *= 2

    return Sampler(run, DRAWS)
