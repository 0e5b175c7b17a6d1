"""torchsrk: tune with nothing given but a seed, then ten draws of every particle."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from models import model, torch_log_density
from samplers import Chunk, Sampler
from torchsrk.tuning import settle as settling
from torchsrk.tuning import tune

_DRAWS = (1, 1, 2, 6, 10, 20, 40, 80, 160)  # more each time; ten in all after the fourth


def build(file: str, **options: bool) -> Sampler:
    log_density, dim = torch_log_density(file), model(file).DIM

    def run(seed: int, limit: float) -> Iterator[Chunk]:
        with warnings.catch_warnings(record=True) as caught, _watched_windows() as seen:
            warnings.simplefilter("always")
            plan = tune(log_density, dim=dim, seed=seed)
        note = "; ".join(dict.fromkeys(str(each.message) for each in caught if each.category is RuntimeWarning))
        spent, cost = sum(plan.report.gradients.values()), plan.length * plan.integrator.gradients_per_step
        reached = plan.report.gradients["reach"]
        seen = [(reached + taken, second) for taken, second in seen]
        seen.append((spent, plan.positions.square().mean(0)))
        before, drawn = None, 0
        for draws in _DRAWS:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # of a run that is eager: tune has said so
                before = plan.sample(draws, after=before, **options)
            gradients = spent + cost * np.arange(drawn + 1, drawn + draws + 1)
            drawn += draws
            seen += zip(gradients, before.trajectory.square().mean(1), strict=True)
            path = np.array([taken for taken, _ in seen]), torch.stack([second for _, second in seen]).numpy()
            yield Chunk(before.trajectory.numpy(), gradients, note=note, path=path)

    return Sampler(run, 10)


@contextmanager
def _watched_windows() -> Iterator[list[tuple[float, torch.Tensor]]]:
    """Gradients taken since the windows began, and second moments after each. The run pays for being looked at."""
    seen: list[tuple[float, torch.Tensor]] = []
    window = settling._window

    def watched(ensemble: Any, step_size: float, steps: int, *, seed: int) -> Any:
        x, capped = yield from window(ensemble, step_size, steps, seed=seed)
        taken = seen[-1][0] if seen else 0.0
        seen.append((taken + steps + 2.0, x.square().mean(0)))  # with those that a window begins with
        return x, capped

    settling._window = watched
    try:
        yield seen
    finally:
        settling._window = window
