"""Doors to other libraries: their models and posteriors, sampled here. Each needs its own extra."""

from .pyro_models import PyroPotential, potential_from_pyro
from .sbi_posteriors import SbiPosterior

__all__ = ["PyroPotential", "SbiPosterior", "potential_from_pyro"]
