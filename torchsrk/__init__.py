"""Stochastic Runge-Kutta samplers for PyTorch."""

from .diagnostics import diagnose, to_arviz
from .integrators import (
    BAOAB,
    GHMC,
    MALA,
    OBABO,
    QUICSORT,
    SRA1,
    SRKID,
    SRKLD,
    UBU,
    Cheng,
    EulerMaruyama,
    Integrator,
    LeimkuhlerMatthews,
    Ozaki,
    RandomizedMidpoint,
    ShARK,
    Tamed,
)
from .integrators.capped import Capped
from .sampling import NonFiniteStateError, Run, integrate, sample
from .sde import SDE, ItoDiffusion, Langevin, UnderdampedLangevin
from .tuning import Tuning, tune

__version__ = "0.1.0"

__all__ = [
    "BAOAB",
    "GHMC",
    "MALA",
    "OBABO",
    "QUICSORT",
    "SDE",
    "SRA1",
    "SRKID",
    "SRKLD",
    "UBU",
    "Capped",
    "Cheng",
    "EulerMaruyama",
    "Integrator",
    "ItoDiffusion",
    "Langevin",
    "LeimkuhlerMatthews",
    "NonFiniteStateError",
    "Ozaki",
    "RandomizedMidpoint",
    "Run",
    "ShARK",
    "Tamed",
    "Tuning",
    "UnderdampedLangevin",
    "diagnose",
    "integrate",
    "sample",
    "to_arviz",
    "tune",
]
