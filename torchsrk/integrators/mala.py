"""MALA: Langevin steps that are accepted or rejected."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..brownian.increment import Increment, Needs
from ..sde.base import BaseSDE, Normals, Time
from ..sde.derivatives import energy_and_gradient
from ..sde.langevin import Langevin
from .base import Integrator

_SQRT2 = math.sqrt(2.0)


class MALA(Integrator):
    """Y = X - h∇f(X) + √2 W;  X' = Y where log u < log a, else X' = X.

    log a = f(X) - f(Y) + ½(∇f(X) + ∇f(Y))·(Y - X + ½h(∇f(X) - ∇f(Y))) is the logarithm of the Metropolis-Hastings
    ratio; written so, the terms of order 1/h in it have cancelled before anything is computed. A proposal whose energy
    is not finite is rejected.

    One gradient and one energy a step, from one forward pass where autograd takes the gradient. The law at
    stationarity has no error. There is no strong order: what is accepted is no function of the path alone. Pick it when
    no bias is allowed, at an h with an acceptance of about 0.57, which shrinks as dim^(-1/3). Where gradients grow
    faster than linearly a particle far out stays there, as every proposal overshoots: look at the acceptance. Gradients
    must be exact: minibatches are refused. Roberts and Tweedie (1996).

    The state is (x, ∇f(x), f(x), proposals accepted so far), of width 2·dim + 2. The count is exact up to 2²⁴ in
    float32; a longer run in float32 can't say its acceptance.
    """

    name = "mala"
    law_order = math.inf
    noise_types = ("additive",)
    serves = (Langevin,)
    needs = Needs.INCREMENT | Needs.UNIFORM
    differentiable = False
    gradients_per_step = 1

    def init(self, sde: BaseSDE, t: Time, x: Tensor, dt: float, normals: Normals) -> Tensor:
        assert isinstance(sde, Langevin)
        energy, gradient = energy_and_gradient(sde.potential, x)
        return torch.cat((x, gradient, energy.unsqueeze(-1), torch.zeros_like(x[..., :1])), -1)

    def step(self, sde: BaseSDE, t: Time, state: Tensor, increment: Increment) -> Tensor:
        assert isinstance(sde, Langevin)
        assert increment.u is not None
        h, dim = increment.dt, increment.W.shape[-1]
        x, gradient, energy, accepted = state.split((dim, dim, 1, 1), -1)
        move = _SQRT2 * increment.W - h * gradient
        proposal = x + move
        new_energy, new_gradient = energy_and_gradient(sde.potential, proposal)
        new_energy = new_energy.unsqueeze(-1)
        work = (gradient + new_gradient) * (move + 0.5 * h * (gradient - new_gradient))
        log_ratio = energy - new_energy + 0.5 * work.sum(-1, keepdim=True)
        # A comparison with NaN is false, so what else is not finite is rejected too.
        is_accepted = (increment.u.log() < log_ratio) & new_energy.isfinite()
        proposed = torch.cat((proposal, new_gradient, new_energy, accepted + 1.0), -1)
        return torch.where(is_accepted, proposed, state)

    def position(self, sde: BaseSDE, t: Time, state: Tensor, increment: Increment | None) -> Tensor:
        return state[..., : (state.shape[-1] - 2) // 2]

    def tallies(self, state: Tensor) -> dict[str, Tensor]:
        return {"acceptance": state[..., -1]}
