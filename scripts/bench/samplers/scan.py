"""A jitted piece of a chain, called again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from samplers import Chunk, doublings


def chunks(more: Callable, key: Any, state: Any, tuned: Any, spent: float) -> Iterator[Chunk]:
    """Chunks that double what there is.

    Args:
        more: ``more(key, state, tuned)`` gives the next state, and draws (draws, chains, dim) with the gradients that
            each took of a chain, (draws,).
        spent: gradients a chain so far.
    """
    for count in doublings():
        draws, gradients = [], []
        for _ in range(count):
            key, own = jax.random.split(key)
            state, (positions, steps) = more(own, state, tuned)
            draws.append(np.asarray(positions))
            gradients.append(np.asarray(steps, dtype=float))
        taken = spent + np.concatenate(gradients).cumsum()
        spent = float(taken[-1])
        yield Chunk(np.concatenate(draws), taken)
