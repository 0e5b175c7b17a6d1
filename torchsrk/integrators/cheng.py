"""Cheng's scheme: underdamped Langevin with the gradient frozen over a step."""

from __future__ import annotations

import torch
from torch import Tensor

from ..brownian.increment import Increment, Needs
from ..sde.base import BaseSDE, Time
from ..sde.terms import Term
from ..sde.underdamped import UnderdampedLangevin, split
from .base import Integrator
from .free_flow import composed, free_flow


class Cheng(Integrator):
    """X' = X + cV - ((h - c)/γ)u∇f(X) + N_X,  V' = ηV - cu∇f(X) + N_V,  η = e^(-γh), c = (1 - η)/γ.

    The diffusion solved exactly with ∇f held at its value at the step's start; (N_X, N_V) is the exact noise of the
    free flow, made of W and H. One gradient a step. Strong order 1; local deviation orders (2, 2), of which the paper
    uses (1.5, 2). The variance at stationarity is too large by O(h). The scheme that theory treats first; UBU and
    BAOAB cost the same and err by O(h²). Cheng, Chatterji, Bartlett and Jordan (2018); an example of the paper's
    section 3.
    """

    name = "cheng"
    strong_order = 1.0
    strong_order_additive = 1.0
    law_order = 1.0
    serves = (UnderdampedLangevin,)
    needs = Needs.INCREMENT | Needs.SPACE_TIME_AREA
    gradients_per_step = 1

    def step(self, sde: BaseSDE, t: Time, state: Tensor, increment: Increment) -> Tensor:
        assert isinstance(sde, UnderdampedLangevin)
        assert increment.H is not None
        flow = free_flow(sde.friction, sde.u, increment.dt)
        x, v = split(state)
        force = sde.gradient(x)
        noise_x, noise_v = flow.noise(increment.W, increment.H)
        moved = x + noise_x + Term(flow.c, v) + Term(-sde.u * flow.k, force)
        return torch.cat((moved, noise_v + Term(flow.eta, v) + Term(-sde.u * flow.c, force)), -1)

    def compose(self, sde: BaseSDE, first: Increment, second: Increment) -> Increment:
        assert isinstance(sde, UnderdampedLangevin)
        return composed(sde.friction, sde.u, first, second)
