"""Samplers of posteriors as a user would call them, one a file, each with its library's own tuning.

Each file has ``build(file, **options)`` for a posterior's file, which gives a ``Sampler``. Chains start uniform on
(-2, 2); whatever the sampler compiles, it compiles in its first run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module

import numpy as np

TORCHSRK, TORCHSRK_EAGER = "torchsrk compiled", "torchsrk eager"
NUMPYRO, NUMPYRO_PARALLEL, PYRO, NUTPIE = (
    "numpyro NUTS, vectorized",
    "numpyro NUTS, parallel",
    "Pyro NUTS",
    "nutpie NUTS",
)
NUTS, MCLMC, MEADS, CHEES, LAPS = (f"blackjax {name}" for name in ("NUTS", "MCLMC", "MEADS", "ChEES", "LAPS"))

WARM_UP, FIRST_DRAWS, DRAWS = 1000, 125, 1000  # of NUTS, a chain
CHAINS, MANY_CHAINS = 4, 128


@dataclass(frozen=True)
class Chunk:
    """What a run has come to.

    Attributes:
        draws: the new ones, (draws, chains, dim).
        gradients: that a chain has taken by each of them, with the warm-up; (draws,).
        alone: these draws are another run, that began when the chunk before it was done.
        note: what the sampler says of its draws.
        path: where there are particles enough to be judged at any one time: the gradients taken after each step or
            window so far, (steps,), and the mean over particles of their squares by then, (steps, dim).
    """

    draws: np.ndarray
    gradients: np.ndarray
    alone: bool = False
    note: str = ""
    path: tuple[np.ndarray, np.ndarray] | None = None


@dataclass(frozen=True)
class Sampler:
    """A sampler of one posterior.

    Attributes:
        run: from a seed and a limit in seconds, chunks for as long as it is asked. The limit is for a sampler whose
            warm-up alone may pass it, which then raises a TimeoutError.
        draws: of a chain in a run as its users make it.
    """

    run: Callable[[int, float], Iterator[Chunk]]
    draws: int


_FILES: dict[str, tuple[str, dict[str, object]]] = {
    TORCHSRK: ("torchsrk_tune", {"compile": True}),
    TORCHSRK_EAGER: ("torchsrk_tune", {}),
    NUMPYRO: ("numpyro_nuts", {"chain_method": "vectorized"}),
    NUMPYRO_PARALLEL: ("numpyro_nuts", {"chain_method": "parallel"}),
    PYRO: ("pyro_nuts", {}),
    NUTPIE: ("nutpie_nuts", {}),
    NUTS: ("blackjax_nuts", {}),
    MCLMC: ("blackjax_mclmc", {}),
    MEADS: ("blackjax_meads", {}),
    CHEES: ("blackjax_chees", {}),
    LAPS: ("blackjax_laps", {}),
}
NAMES = tuple(_FILES)


def environment(name: str) -> dict[str, str]:
    """What a sampler's process needs set."""
    devices = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={CHAINS}"} if name == NUMPYRO_PARALLEL else {}
    return {"JAX_ENABLE_X64": "1", **devices}


def builder(name: str) -> Callable[[str], Sampler]:
    """The sampler's ``build``. Imports its library, so only in the process that runs it."""
    file, options = _FILES[name]
    return partial(import_module(f"samplers.{file}").build, **options)


def doublings() -> Iterator[int]:
    """1, 1, 2, 4, ...: so many more each time that there are twice as many in all."""
    yield 1
    more = 1
    while True:
        yield more
        more *= 2
