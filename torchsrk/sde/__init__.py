"""SDEs: drift, diffusion and the structure of the noise."""

from .base import BaseSDE
from .general import SDE
from .ito_diffusion import ItoDiffusion
from .langevin import Langevin
from .noise_types import NOISE_TYPES, NoiseType
from .reverse_diffusion import ReverseDiffusion
from .schedules import Schedule, VarianceExploding, VariancePreserving
from .terms import Term, add_, plus
from .torchsde_objects import TorchsdeSDE, as_sde
from .underdamped import UnderdampedLangevin

__all__ = [
    "NOISE_TYPES",
    "SDE",
    "BaseSDE",
    "ItoDiffusion",
    "Langevin",
    "NoiseType",
    "ReverseDiffusion",
    "Schedule",
    "Term",
    "TorchsdeSDE",
    "UnderdampedLangevin",
    "VarianceExploding",
    "VariancePreserving",
    "add_",
    "as_sde",
    "plus",
]
