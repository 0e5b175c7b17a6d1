"""Stochastic Runge-Kutta samplers for PyTorch."""

from .integrators import SRKID, SRKLD, EulerMaruyama, Integrator
from .sampling import NonFiniteStateError, Run, integrate, sample
from .sde import SDE, ItoDiffusion, Langevin, UnderdampedLangevin

__version__ = "0.1.0"

__all__ = [
    "SDE",
    "SRKID",
    "SRKLD",
    "EulerMaruyama",
    "Integrator",
    "ItoDiffusion",
    "Langevin",
    "NonFiniteStateError",
    "Run",
    "UnderdampedLangevin",
    "integrate",
    "sample",
]
