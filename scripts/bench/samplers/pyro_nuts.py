"""Pyro's NUTS on a potential function: one chain, as Pyro draws chains one after another where there are few cores,
and each has a warm-up of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pyro
import torch
from pyro.infer import NUTS as Kernel

from models import starts, torch_log_density
from samplers import DRAWS, FIRST_DRAWS, WARM_UP, Chunk, Sampler, doublings


def build(file: str) -> Sampler:
    log_density, calls = torch_log_density(file), 0

    def potential(values: dict[str, torch.Tensor]) -> torch.Tensor:
        nonlocal calls
        calls += 1  # Pyro takes the gradient of all but a few of the values it asks for
        return -log_density(values["x"])

    def run(seed: int, limit: float) -> Iterator[Chunk]:
        """What ``MCMC.run`` does with its kernel, draw by draw."""
        nonlocal calls
        calls, end = 0, time.perf_counter() + limit
        pyro.set_rng_seed(seed)
        kernel = Kernel(potential_fn=potential)
        kernel.initial_params = {"x": torch.as_tensor(starts(file, 1, seed)[0])}
        kernel.setup(WARM_UP)
        values = kernel.initial_params
        for number in range(WARM_UP):
            values = kernel.sample(values)
            if time.perf_counter() > end:
                raise TimeoutError(f"{number + 1} of {WARM_UP} draws of the warm-up in {limit:.0f} s")
        for count in doublings():
            draws, gradients = [], []
            for _ in range(count * FIRST_DRAWS):
                values = kernel.sample(values)
                draws.append(values["x"].detach().numpy().copy())
                gradients.append(calls)
                if time.perf_counter() > end:
                    raise TimeoutError(f"not accurate in {limit:.0f} s")
            yield Chunk(np.array(draws)[:, None], np.array(gradients, dtype=float))

    return Sampler(run, DRAWS)
