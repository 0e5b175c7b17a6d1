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
from .sampling import Chain, NonFiniteStateError, Run, integrate, sample
from .sde import (
    SDE,
    ItoDiffusion,
    Langevin,
    ReverseDiffusion,
    UnderdampedLangevin,
    VarianceExploding,
    VariancePreserving,
)
from .tuning import Tuning, tune
from .version import __version__

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
    "Chain",
    "Cheng",
    "EulerMaruyama",
    "Integrator",
    "ItoDiffusion",
    "Langevin",
    "LeimkuhlerMatthews",
    "NonFiniteStateError",
    "Ozaki",
    "RandomizedMidpoint",
    "ReverseDiffusion",
    "Run",
    "ShARK",
    "Tamed",
    "Tuning",
    "UnderdampedLangevin",
    "VarianceExploding",
    "VariancePreserving",
    "__version__",
    "diagnose",
    "integrate",
    "sample",
    "to_arviz",
    "tune",
]
