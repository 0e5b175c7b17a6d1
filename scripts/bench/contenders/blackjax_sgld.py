"""blackjax's SGLD kernel, which with the full gradient is Euler-Maruyama, in a jitted scan over the batch."""

from __future__ import annotations

from functools import partial
from typing import Any

import blackjax
import jax
from jax import Array

from cases import EM, Case, Run
from jax_targets import gradient, start_of


def build(case: Case) -> Run:
    if case.scheme != EM:
        raise ValueError("blackjax has no scheme of higher order for overdamped Langevin")
    grad, h = gradient(case), case.step_size
    kernel = blackjax.sgld(lambda x, minibatch: -grad(x))

    @partial(jax.jit, static_argnums=2, donate_argnums=0)
    def scan(x: Array, key: Array, steps: int) -> Array:
        def step(x: Array, key: Array) -> tuple[Array, None]:
            return kernel.step(key, x, None, h), None

        return jax.lax.scan(step, x, jax.random.split(key, steps))[0]

    def run(steps: int, *, seed: int = 0, start: Any = None) -> Array:
        return scan(start_of(case, start), jax.random.key(seed), steps).block_until_ready()

    return run
