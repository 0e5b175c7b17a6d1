"""What a careful user of torch writes: in place, noise by normal_."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from cases import EM, Case, Run
from torch_targets import potential, start_of


def build(case: Case) -> Run:
    gradient, h = potential(case).grad, case.step_size
    root = math.sqrt(2 * h)
    noise, area, stage = (torch.empty(case.shape, dtype=getattr(torch, case.dtype)) for _ in range(3))

    def euler(x: Tensor) -> None:
        x.add_(gradient(x), alpha=-h).add_(noise.normal_(), alpha=root)

    def srk(x: Tensor) -> None:
        noise.normal_()
        torch.add(x, area.normal_(), alpha=root / math.sqrt(12), out=stage)
        second = stage.add(noise, alpha=root * (0.5 - 1 / math.sqrt(6))).add_(gradient(x), alpha=-h)
        stage.add_(noise, alpha=root * (0.5 + 1 / math.sqrt(6)))
        x.add_(noise, alpha=root).add_(gradient(stage), alpha=-h / 2).add_(gradient(second), alpha=-h / 2)

    step = euler if case.scheme == EM else srk

    @torch.no_grad()
    def run(steps: int, *, seed: int = 0, start: Any = None) -> Tensor:
        torch.manual_seed(seed)
        x = start_of(case, start).clone()
        for _ in range(steps):
            step(x)
        return x

    return run
