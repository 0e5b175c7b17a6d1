"""Integrators: one scheme a file."""

from .baoab import BAOAB
from .base import Integrator, integrator_named, registered
from .cheng import Cheng
from .euler_maruyama import EulerMaruyama
from .ghmc import GHMC
from .leimkuhler_matthews import LeimkuhlerMatthews
from .mala import MALA
from .obabo import OBABO
from .ozaki import Ozaki
from .quicsort import QUICSORT
from .randomized_midpoint import RandomizedMidpoint
from .shark import ShARK
from .sra1 import SRA1
from .srk_id import SRKID
from .srk_ld import SRKLD
from .tamed import Tamed
from .ubu import UBU

__all__ = [
    "BAOAB",
    "GHMC",
    "MALA",
    "OBABO",
    "QUICSORT",
    "SRA1",
    "SRKID",
    "SRKLD",
    "UBU",
    "Cheng",
    "EulerMaruyama",
    "Integrator",
    "LeimkuhlerMatthews",
    "Ozaki",
    "RandomizedMidpoint",
    "ShARK",
    "Tamed",
    "integrator_named",
    "registered",
]
