"""Integrators: one scheme a file."""

from .base import Integrator, integrator_named
from .euler_maruyama import EulerMaruyama
from .srk_id import SRKID
from .srk_ld import SRKLD

__all__ = ["SRKID", "SRKLD", "EulerMaruyama", "Integrator", "integrator_named"]
