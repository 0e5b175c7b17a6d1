"""torch.compile: a few steps in one graph, noise from torchsrk's kernel. What sample could have been made of."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from cases import EM, HAND, Case, Run
from torch_targets import potential, start_of
from torchsrk.brownian import Stream, fill_normal

_STEPS = 4  # more take longer to compile, and gain nothing at thousands of particles


def build(case: Case) -> Run:
    target, h = potential(case), case.step_size
    root = math.sqrt(2 * h)
    streams = (Stream.INCREMENT,) if case.scheme == EM else (Stream.INCREMENT, Stream.SPACE_TIME_AREA)
    noise = torch.empty(len(streams), _STEPS, *case.shape, dtype=getattr(torch, case.dtype))

    def gradient(x: Tensor) -> Tensor:
        return target.grad(x) if case.gradient == HAND else torch.func.grad(lambda y: target(y).sum())(x)

    def step(x: Tensor, drawn: Tensor) -> Tensor:
        if case.scheme == EM:
            return x - h * gradient(x) + root * drawn[0]
        area = x + (root / math.sqrt(12)) * drawn[1]
        first = area + root * (0.5 + 1 / math.sqrt(6)) * drawn[0]
        second = area + root * (0.5 - 1 / math.sqrt(6)) * drawn[0] - h * gradient(x)
        return x + root * drawn[0] - 0.5 * h * (gradient(first) + gradient(second))

    @torch.compile(fullgraph=True, dynamic=False)
    def several(x: Tensor, drawn: Tensor) -> Tensor:
        for k in range(_STEPS):
            x = step(x, drawn[:, k])
        return x

    @torch.no_grad()
    def run(steps: int, *, seed: int = 0, start: Any = None) -> Tensor:
        x = start_of(case, start)
        for first in range(0, steps, _STEPS):
            for stream, out in zip(streams, noise, strict=True):
                fill_normal(out, seed=seed, stream=stream, step=first)
            if first + _STEPS <= steps:
                x = several(x, noise)
            else:
                for k in range(steps - first):
                    x = step(x, noise[:, k])
        return x

    return run
