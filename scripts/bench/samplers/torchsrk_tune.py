"""torchsrk: tune with nothing given but a seed, then ten draws of every particle."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import numpy as np
import torch

from models import model, torch_log_density
from samplers import Chunk, Sampler
from torchsrk.tuning import Tuning, tune
from torchsrk.tuning import settle as settling

_DRAWS = (1, 1, 2, 6, 10, 20, 40, 80, 160)  # more each time; ten in all after the fourth


def build(file: str, **options: bool) -> Sampler:
    log_density, dim = torch_log_density(file), model(file).DIM

    def tuned(seed: int) -> tuple[Tuning, str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            plan = tune(log_density, dim=dim, seed=seed, **options)
        said = dict.fromkeys(str(warning.message) for warning in caught if warning.category is RuntimeWarning)
        return plan, "; ".join(said)

    def run(seed: int, limit: float) -> Iterator[Chunk]:
        plan, note = tuned(seed)
        spent, cost = sum(plan.report.gradients.values()), plan.length * plan.integrator.gradients_per_step
        before, drawn = None, 0
        for draws in _DRAWS:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # of a run that is eager: tune has said so
                before = plan.sample(draws, after=before, **options)
            gradients = spent + cost * np.arange(drawn + 1, drawn + draws + 1)
            drawn += draws
            yield Chunk(before.trajectory.numpy(), gradients, note=note)

    def path(seed: int, badness: Callable) -> list[tuple[float, float]]:
        found, window = [], settling._window

        def watched(evaluate, *arguments, **named):
            x, capped = window(evaluate, *arguments, **named)
            found.append((evaluate.gradients, badness(x.square().mean(0).numpy())))
            return x, capped

        settling._window = watched
        try:
            plan, _ = tuned(seed)
        finally:
            settling._window = window
        spent = sum(plan.report.gradients.values())
        found.append((spent, badness(plan.positions.square().mean(0).numpy())))
        cost = plan.length * plan.integrator.gradients_per_step
        for number, draw in enumerate(plan.sample(10).trajectory, 1):
            found.append((spent + number * cost, badness(torch.square(draw).mean(0).numpy())))
        return found

    return Sampler(run, 10, path)
