"""Integrators: one scheme a file."""

from .baoab import BAOAB
from .base import Integrator, integrator_named
from .cheng import Cheng
from .euler_maruyama import EulerMaruyama
from .ghmc import GHMC
from .obabo import OBABO
from .quicsort import QUICSORT
from .randomized_midpoint import RandomizedMidpoint
from .srk_id import SRKID
from .srk_ld import SRKLD
from .ubu import UBU

__all__ = [
    "BAOAB",
    "GHMC",
    "OBABO",
    "QUICSORT",
    "SRKID",
    "SRKLD",
    "UBU",
    "Cheng",
    "EulerMaruyama",
    "Integrator",
    "RandomizedMidpoint",
    "integrator_named",
]
