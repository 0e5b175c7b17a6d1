"""UBU: a kick between two halves of exact free motion."""

from __future__ import annotations

import torch
from torch import Tensor

from ..brownian.increment import Increment, Needs
from ..sde.base import BaseSDE, Time
from ..sde.terms import Term
from ..sde.underdamped import UnderdampedLangevin, split
from .base import Integrator
from .free_flow import composed, free_flow, random_time


class UBU(Integrator):
    """X_m = X + c_(h/2)V + N_m,  X' = X + cV - c_(h/2)hu∇f(X_m) + N_X,  V' = ηV - e^(-γh/2)hu∇f(X_m) + N_V.

    The free flow with friction and noise over half a step, a whole kick, and the other half: c_t = (1 - e^(-γt))/γ,
    c = c_h, η = e^(-γh). (N_X, N_V) is the exact noise of the free flow over the step, made of W and H, and N_m the
    flow's noise in position at its middle.

    Two normals a coordinate give (N_X, N_V); for N_m its mean given them is taken. That leaves out of X_m a normal of
    variance γuh³/96, in a step whose own error there is O(h²): on a Gaussian of curvature ω² the variance is smaller by
    a share of (uω²h²)²/192, beside the uω²h²/6 by which UBU's is too small anyway. ``exact=True`` draws that rest too,
    at the price of a third normal: the textbook's scheme to the letter.

    ``randomized=True`` kicks at a time τh with τ uniform, one a particle: U(τh)B(h)U((1 - τ)h), with the rest drawn.
    Its error stays small for potentials whose Hessian is not Lipschitz.

    One gradient a step. Strong order 2 (randomized: 1.5). The law errs by O(h²). Pick it where paths and not only laws
    matter, as in multilevel estimates: no scheme of one gradient has a higher strong order; to sample, BAOAB's
    law is better. Alfonsi, Sanz-Serna and Zygalakis (2021); randomized, Hu, Huang and Huang (2021).

    Args:
        randomized: kick at a random time.
        exact: draw what (N_X, N_V) leave open of N_m.
    """

    name = "ubu"
    law_order = 2.0
    serves = (UnderdampedLangevin,)
    gradients_per_step = 1

    def __init__(self, *, randomized: bool = False, exact: bool = False) -> None:
        self.randomized, self.exact = bool(randomized), bool(exact)

    @property
    def strong_order(self) -> float:  # type: ignore[override]
        return 1.5 if self.randomized else 2.0

    @property
    def strong_order_additive(self) -> float:  # type: ignore[override]
        return self.strong_order

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        needs = Needs.INCREMENT | Needs.SPACE_TIME_AREA
        if self.randomized or self.exact:
            needs |= Needs.BETWEEN
        return needs | Needs.UNIFORM if self.randomized else needs

    def step(self, sde: BaseSDE, t: Time, state: Tensor, increment: Increment) -> Tensor:
        assert isinstance(sde, UnderdampedLangevin)
        assert increment.H is not None
        h, u = increment.dt, sde.u
        flow = free_flow(sde.friction, u, h)
        x, v = split(state)
        noise_x, noise_v = flow.noise(increment.W, increment.H)
        end, speed = x + noise_x + Term(flow.c, v), noise_v + Term(flow.eta, v)
        if self.randomized:
            assert increment.u is not None
            assert increment.Z is not None
            at, tau, left = random_time(sde.friction, u, h), increment.u, 1.0 - increment.u
            within = x + at.reach(tau) * v + at.noise(tau, noise_x, noise_v, increment.Z)
            kick = sde.gradient(within) * (-h * u)
            return torch.cat((end + at.reach(left) * kick, speed + at.decay(left) * kick), -1)
        half = free_flow(sde.friction, u, 0.5 * h)
        from_x, from_v = flow.middle
        within = x + Term(half.c, v) + Term(from_x, noise_x) + Term(from_v, noise_v)
        if self.exact:
            assert increment.Z is not None
            within = within + Term(flow.middle_deviation, increment.Z)
        force = sde.gradient(within)
        return torch.cat((end + Term(-half.c * h * u, force), speed + Term(-half.eta * h * u, force)), -1)

    def compose(self, sde: BaseSDE, first: Increment, second: Increment) -> Increment:
        assert isinstance(sde, UnderdampedLangevin)
        if self.randomized or self.exact:
            return first.then(second)  # which says that what is drawn beside the path can't be put together
        return composed(sde.friction, sde.u, first, second)
