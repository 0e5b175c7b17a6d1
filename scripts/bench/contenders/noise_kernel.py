"""The noise of a step and nothing else: what no sampler on these random numbers can beat."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from cases import EM, Case, Run
from torchsrk.brownian import Stream, fill_normal

# Several steps in one call, while they fit the cache: waking threads is then no part of the cost.
_MOST_STEPS, _MOST_NORMALS = 16, 1 << 21


def build(case: Case) -> Run:
    normals = 1 if case.scheme == EM else 2
    together = max(1, min(_MOST_STEPS, _MOST_NORMALS // math.prod(case.shape)))
    out, threads = torch.empty(together, *case.shape, dtype=getattr(torch, case.dtype)), torch.get_num_threads()

    def run(steps: int, *, seed: int = 0, start: Any = None) -> Tensor:
        for step in range(0, steps * normals, together):
            part = out[: min(together, steps * normals - step)]
            fill_normal(part, seed=seed, stream=Stream.INCREMENT, step=step, threads=threads)
        return out[-1]

    return run
