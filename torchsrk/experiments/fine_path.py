"""Fine steps of two schemes on one Brownian path, and what one long step sees of that path."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..brownian import Increment, MrongowiusRoesslerLevyArea, Needs
from ..brownian.levy_area import strictly_upper
from ..integrators import SRKID, EulerMaruyama, Integrator
from ..sampling import sample
from ..sde import BaseSDE
from ..sde.base import Normals, Time

EM, SRK_ID = EulerMaruyama(), SRKID()
# One term: the covariance of a cell's area is right with any number, and most of a step's comes from the cells' W.
AREA_OF_A_CELL = MrongowiusRoesslerLevyArea(terms=1)


class Fine(NamedTuple):
    """Where Euler-Maruyama and SRK-ID are after fine steps, each (particles, dim), and the path over these steps."""

    em: Tensor
    srk_id: Tensor
    path: Increment


def fine_steps(
    sde: BaseSDE, em: Tensor, srk_id: Tensor, *, seed: int, step_size: float, steps: range, compile: bool
) -> Fine:
    """Both schemes from where they are through steps of these numbers, whose noise is a function of (seed, particle,
    number). The normals of a step are drawn once, for both schemes and for the path, of which nothing is stored."""
    scheme = BesideThePath(srk_id.shape[-1])
    run = sample(
        sde,
        srk_id,
        state=scheme.start(em, srk_id),
        integrator=scheme,
        step_size=step_size,
        num_steps=len(steps),
        first_step=steps.start,
        seed=seed,
        levy_area=AREA_OF_A_CELL,
        compile=compile,
    )
    em, srk_id, W, areas = scheme.apart(run.state)
    above = strictly_upper(areas, scheme.dim)
    return Fine(em, srk_id, Increment(len(steps) * step_size, W, A=above - above.mT))


class BesideThePath(Integrator):
    """Euler-Maruyama and SRK-ID at once, and beside them the path over all steps so far.

    The state is (x of Euler-Maruyama, x of SRK-ID, W, the part of A above its diagonal). An increment w with areas a
    goes on to it by Chen's relation: W' = W + w and A' = A + a + ½(W wᵀ - w Wᵀ).
    """

    noise_types = ("isotropic",)  # as many Brownian motions as dimensions
    needs = Needs.INCREMENT | Needs.LEVY_AREA
    gradients_per_step = 2

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def start(self, em: Tensor, srk_id: Tensor) -> Tensor:
        """The state before the first step, of schemes at (..., dim)."""
        return torch.cat((em, srk_id, em.new_zeros(*em.shape[:-1], sum(self._widths()[2:]))), -1)

    def apart(self, state: Tensor) -> tuple[Tensor, ...]:
        """The parts of a state."""
        return state.split(self._widths(), -1)

    def _widths(self) -> tuple[int, ...]:
        return self.dim, self.dim, self.dim, self.dim * (self.dim - 1) // 2

    def init(self, sde: BaseSDE, t: Time, x: Tensor, dt: float, normals: Normals) -> Tensor:
        return self.start(x, x)

    def step(self, sde: BaseSDE, t: Time, state: Tensor, increment: Increment) -> Tensor:
        assert increment.A is not None
        w, a = increment.W, increment.A
        em, srk_id, W, areas = self.apart(state)
        products = W.unsqueeze(-1) * w.unsqueeze(-2)
        added = torch.add(a, products - products.mT, alpha=0.5)
        row, column = torch.triu_indices(self.dim, self.dim, 1, device=w.device)
        areas = areas + added.flatten(-2).index_select(-1, row * self.dim + column)
        moved = (scheme.step(sde, t, x, increment) for scheme, x in ((EM, em), (SRK_ID, srk_id)))
        return torch.cat((*moved, W + w, areas), -1)

    def position(self, sde: BaseSDE, t: Time, state: Tensor, increment: Increment | None) -> Tensor:
        return self.apart(state)[1]
