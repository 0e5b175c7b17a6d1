"""SDEs: drift, diffusion and the structure of the noise."""

from .base import BaseSDE
from .general import SDE
from .ito_diffusion import ItoDiffusion
from .langevin import Langevin
from .noise_types import NOISE_TYPES, NoiseType
from .terms import Term, add_, plus
from .underdamped import UnderdampedLangevin

__all__ = [
    "NOISE_TYPES",
    "SDE",
    "BaseSDE",
    "ItoDiffusion",
    "Langevin",
    "NoiseType",
    "Term",
    "UnderdampedLangevin",
    "add_",
    "plus",
]
