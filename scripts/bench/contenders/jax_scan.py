"""A jitted lax.scan over the steps, as a careful user of jax writes it."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
from jax import Array

from cases import EM, Case, Run
from jax_targets import gradient, start_of

# Drawing the noise of several steps at once made runs of few particles two to four times faster, and slower for many,
# where it no longer fits the cache. Of 1, 4, 16 and 128 steps a draw, these bounds pick the best or one close to it.
_MOST_STEPS_A_DRAW, _MOST_NORMALS_A_DRAW = 16, 1 << 19


def build(case: Case, *, prng: str) -> Run:
    grad, h = gradient(case), case.step_size
    root = math.sqrt(2 * h)
    normals = 1 if case.scheme == EM else 2

    def euler(x: Array, noise: Array) -> tuple[Array, None]:
        return x - h * grad(x) + root * noise[0], None

    def srk(x: Array, noise: Array) -> tuple[Array, None]:
        area = x + (root / math.sqrt(12)) * noise[1]
        first = area + root * (0.5 + 1 / math.sqrt(6)) * noise[0]
        second = area + root * (0.5 - 1 / math.sqrt(6)) * noise[0] - h * grad(x)
        return x + root * noise[0] - 0.5 * h * (grad(first) + grad(second)), None

    step = euler if case.scheme == EM else srk

    @partial(jax.jit, static_argnums=2, donate_argnums=0)
    def scan(x: Array, key: Array, steps: int) -> Array:
        a_draw = _steps_a_draw(steps, case)

        def some_steps(x: Array, key: Array) -> tuple[Array, None]:
            noise = jax.random.normal(key, (a_draw, normals, *case.shape), x.dtype)
            return jax.lax.scan(step, x, noise)[0], None

        return jax.lax.scan(some_steps, x, jax.random.split(key, steps // a_draw))[0]

    def run(steps: int, *, seed: int = 0, start: Any = None) -> Array:
        return scan(start_of(case, start), jax.random.key(seed, impl=prng), steps).block_until_ready()

    return run


def _steps_a_draw(steps: int, case: Case) -> int:
    """A divisor of the number of steps."""
    fit = max(1, min(_MOST_STEPS_A_DRAW, _MOST_NORMALS_A_DRAW // math.prod(case.shape)))
    return max(divisor for divisor in range(1, fit + 1) if steps % divisor == 0)
