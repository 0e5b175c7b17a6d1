"""Diagnostics: what a run is worth, in numbers and in words."""

from .diagnose import diagnose
from .diagnosis import Diagnosis
from .inference_data import to_arviz
from .rhat import nested_rhat

__all__ = ["Diagnosis", "diagnose", "nested_rhat", "to_arviz"]
