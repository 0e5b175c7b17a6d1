"""Stochastic Runge-Kutta samplers for PyTorch."""

from .integrators import (
    BAOAB,
    GHMC,
    OBABO,
    QUICSORT,
    SRKID,
    SRKLD,
    UBU,
    Cheng,
    EulerMaruyama,
    Integrator,
    RandomizedMidpoint,
)
from .sampling import NonFiniteStateError, Run, integrate, sample
from .sde import SDE, ItoDiffusion, Langevin, UnderdampedLangevin

__version__ = "0.1.0"

__all__ = [
    "BAOAB",
    "GHMC",
    "OBABO",
    "QUICSORT",
    "SDE",
    "SRKID",
    "SRKLD",
    "UBU",
    "Cheng",
    "EulerMaruyama",
    "Integrator",
    "ItoDiffusion",
    "Langevin",
    "NonFiniteStateError",
    "RandomizedMidpoint",
    "Run",
    "UnderdampedLangevin",
    "integrate",
    "sample",
]
