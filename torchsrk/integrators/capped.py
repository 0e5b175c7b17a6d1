"""Any scheme with kicks of bounded length, and a count of those that were cut."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor

from ..brownian.increment import Increment
from ..potentials.base import row_by_row
from ..sde.base import BaseSDE, Normals, Time
from ..sde.langevin import Langevin
from ..sde.underdamped import UnderdampedLangevin
from .base import Integrator
from .wrapped import Wrapped


class Capped(Wrapped):
    """X' is that of another scheme, with g·min(1, cap/(h‖g‖)) for every gradient g = ∇f: no kick hg is longer than cap.

    Where gradients grow faster than a line an unadjusted step of one particle in thousands escapes; a cap beyond what
    the bulk has keeps it, and leaves all others alone. A gradient that is infinite or NaN, or can't be computed as a
    matrix is not definite, is left out. What was cut is counted in the state: ``Run.statistics["capped"]`` is the share
    of gradients. A cap biases what it touches: a share of a hundredth is too much. As steps get shorter it touches
    less, so its bias falls along with the scheme's own.

    Args:
        scheme: of a ``Langevin`` or ``UnderdampedLangevin`` diffusion.
        cap: the largest length of a kick, in velocity where there is one and in position otherwise.
    """

    def __init__(self, scheme: Integrator, cap: float) -> None:
        super().__init__(scheme)
        if isinstance(cap, bool) or not isinstance(cap, (int, float)) or not 0.0 < cap < math.inf:
            raise ValueError(f"cap is a positive number; got {cap!r}")
        self.cap = float(cap)

    def init(self, sde: BaseSDE, t: Time, x: Tensor, dt: float, normals: Normals) -> Tensor:
        state = self.scheme.init(self._capping(sde, dt, []), t, x, dt, normals)
        return torch.cat((state, torch.zeros_like(state[..., :1])), -1)

    def step(self, sde: BaseSDE, t: Time, state: Tensor, increment: Increment) -> Tensor:
        cuts: list[Tensor] = []
        moved = self.scheme.step(self._capping(sde, increment.dt, cuts), t, state[..., :-1], increment)
        return torch.cat((moved, state[..., -1:] + sum(cuts) / self.gradients_per_step), -1)

    def position(self, sde: BaseSDE, t: Time, state: Tensor, increment: Increment | None) -> Tensor:
        return self.scheme.position(sde, t, state[..., :-1], increment)

    def tallies(self, state: Tensor) -> dict[str, Tensor]:
        return {**self.scheme.tallies(state[..., :-1]), "capped": state[..., -1]}

    def check(self, sde: BaseSDE) -> None:
        if not isinstance(sde, (Langevin, UnderdampedLangevin)):
            raise ValueError(
                f"Capped bounds gradients of a potential: it serves Langevin and UnderdampedLangevin; got "
                f"{type(sde).__name__}"
            )
        super().check(sde)

    def _capping(self, sde: BaseSDE, dt: float, cuts: list[Tensor]) -> BaseSDE:
        """The same SDE with its gradients cut, which notes where they were, (..., 1)."""
        assert isinstance(sde, (Langevin, UnderdampedLangevin))
        gradient, longest = sde.gradient, self.cap / dt

        def capped(x: Tensor) -> Tensor:
            g = row_by_row(gradient, x, x.shape[-1])
            length = g.norm(dim=-1, keepdim=True)
            within = length <= longest
            cuts.append((~within).to(g.dtype))
            return torch.where(within, g, torch.where(length.isfinite(), g * (longest / length), 0.0))

        bounded = copy.copy(sde)
        bounded.gradient = capped  # type: ignore[method-assign]
        return bounded
