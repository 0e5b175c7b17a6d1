"""A density whose sign is swapped: energies that fall without end, the farther particles go."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..dtensors import is_sharded
from ..potentials.base import Potential, is_stateful
from ..sde import BaseSDE, Langevin, UnderdampedLangevin
from ..transforms import is_transformed
from .failures import NonFiniteStateError

HINT = (
    "energies fall the farther particles go, eight times as far as they are, too: exp(-energy) can't be normalised "
    "there, unless particles are still far from its bulk. Is the sign right? FunctionPotential(f) takes an energy, "
    "-log p, and DiffusionDistribution(f) a log density: both take energy= and log_density="
)
SHORT_HINT = (
    "Is its sign right? A log density is log p, up to a constant, and an energy -log p: log_density= and energy= say "
    "which a function is"
)
_FAR, _LOOKED_AT = 10.0, 64


@dataclass(frozen=True)
class Start:
    """Where a run began, as far as it is remembered: a few rows, and how far out. Its tensor may be gone by the end."""

    rows: Tensor
    width: float

    @classmethod
    def of(cls, x0: Tensor) -> Start | None:
        """Nothing under a transformation, where numbers can't be looked at."""
        x0 = x0.to_local() if is_sharded(x0) else x0
        return None if is_transformed() or not x0.numel() else cls(_few(x0.detach()).clone(), _width(x0))


@dataclass
class Watch:
    """Looks at the energies of a run, or of all runs of a chain, from where the first began; tells what it sees once.

    Attributes:
        beyond: how far out particles are when energies are looked at. Few go ten times as far as they began: others
            pay for no energy. Those that do, and are sound, are looked at again twice as far out.
    """

    start: Start | None
    beyond: float
    told: bool = False

    @classmethod
    def of(cls, x0: Tensor) -> Watch:
        start = Start.of(x0)
        return cls(start, math.inf if start is None else _FAR * (1.0 + start.width))

    def look(self, sde: BaseSDE, x: Tensor, stacklevel: int) -> None:
        """Warn of a swapped sign, when particles have come to x, (..., dim)."""
        if self.start is None or self.told or is_transformed() or _width(x) <= self.beyond:
            return
        self.beyond = 2.0 * _width(x)
        if falls_without_end(_potential_of(sde), self.start.rows, x):
            self.told = True
            warnings.warn(f"this run can't be trusted: {HINT}", RuntimeWarning, stacklevel=stacklevel)


def add_hint_of_sign(
    failure: NonFiniteStateError, sde: BaseSDE, start: Start | None, positions: Callable[[Tensor, int], Tensor]
) -> None:
    """For a run that went beyond all numbers."""
    if start is None:
        return
    if falls_without_end(_potential_of(sde), start.rows, positions(failure.last_finite, failure.last_finite_step)):
        failure.args = (f"{failure} But {HINT}.",)


def falls_without_end(potential: Potential | None, x0: Tensor, x: Tensor) -> bool:
    """Energies of nearly all particles are lower at x than at x0, and lower still at 2, 4 and 8 times the way.

    A target that is merely far from the start has its bulk behind it by then. What the density refuses or has no
    number for decides nothing.
    """
    if potential is None or is_stateful(potential):
        return False
    count = min(len(x0), len(x))
    start = _few(x0[:count])
    way = _few(x[:count]) - start
    with torch.no_grad():
        try:
            energies = torch.stack([potential(start + times * way) for times in (0.0, 1.0, 2.0, 4.0, 8.0)])
        except Exception:  # user's code, far from where it need be defined
            return False
    sinks = (energies[1:] < energies[:-1]) | energies[1:].isneginf()
    return bool(sinks.all(0).double().mean() > 0.9)


def _potential_of(sde: BaseSDE) -> Potential | None:
    return sde.potential if isinstance(sde, (Langevin, UnderdampedLangevin)) else None


def _few(x: Tensor) -> Tensor:
    return x if x.ndim == 1 else x[:_LOOKED_AT]


def _width(x: Tensor) -> float:
    least, most = torch.aminmax(x)
    return max(-float(least), float(most))
