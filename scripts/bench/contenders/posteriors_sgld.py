"""posteriors' SGLD, which with the full gradient is Euler-Maruyama; it differentiates the log posterior by itself."""

from __future__ import annotations

from typing import Any

import posteriors
import torch
from torch import Tensor

from cases import AUTOGRAD, EM, Case, Run
from torch_targets import potential, start_of


def build(case: Case) -> Run:
    if case.scheme != EM or case.gradient != AUTOGRAD:
        raise ValueError("posteriors' SGLD is Euler-Maruyama with a gradient by autograd")
    target, nothing = potential(case), torch.tensor([])

    def log_posterior(x: Tensor, batch: None) -> tuple[Tensor, Tensor]:
        return -target(x).sum(), nothing  # particles are independent: the sum's gradient is each one's own

    transform = posteriors.sgmcmc.sgld.build(log_posterior, lr=case.step_size)

    def run(steps: int, *, seed: int = 0, start: Any = None) -> Tensor:
        torch.manual_seed(seed)
        state = transform.init(start_of(case, start).clone())
        for _ in range(steps):
            state, _ = transform.update(state, None, inplace=True)
        return state.params

    return run
