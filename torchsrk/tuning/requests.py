"""What tuning asks for.

A plan is made for one target, by generators: they yield what they want to know of the density and are sent the answer.
So the targets of a batch, each with a plan of its own, are tuned side by side, and what they ask for at the same time
is answered in one go (see ``together``).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor

from ..integrators import Integrator
from .metric import Coordinates

T = TypeVar("T")


@dataclass(frozen=True)
class Points:
    """Energies and gradients at x (particles, dim): an Ensemble."""

    x: Tensor


@dataclass(frozen=True)
class Read:
    """What a user reads of positions x (..., dim): (..., parameters), or None where that is x itself."""

    x: Tensor


@dataclass(frozen=True)
class Chain:
    """A short run from z (particles, dim) in whitened coordinates: where it ends, and the shares that it counted."""

    z: Tensor
    coordinates: Coordinates
    scheme: Integrator
    friction: float
    step_size: float
    steps: int
    seed: int
    first_particle: int = 0


@dataclass(frozen=True)
class Coupled:
    """Chains with steps h, 2h and 4h on one path: positions (periods, levels, particles, dim), whitened."""

    z: Tensor
    coordinates: Coordinates
    scheme: Integrator
    friction: float
    step_size: float
    periods: int
    seed: int


@dataclass(frozen=True)
class Phase:
    """The name of what comes next, for the count of gradients and the progress bar; answered by nothing."""

    name: str


@dataclass(frozen=True)
class Show:
    """What there is to tell meanwhile; answered by nothing."""

    text: str


Asked = Points | Read | Chain | Coupled  # of the density
Request = Asked | Phase | Show
Asking = Generator[Request, Any, T]
