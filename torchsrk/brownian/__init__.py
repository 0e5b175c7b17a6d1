"""Brownian motion: the only place where torchsrk draws random numbers."""

from .fresh import FreshNoise, start_normals
from .increment import Increment, Needs
from .levy_area import FourierLevyArea, LevyArea, MrongowiusRoesslerLevyArea, WiktorssonLevyArea
from .noise import StepNormals, Stream, fill_normal
from .path import BrownianPath

__all__ = [
    "BrownianPath",
    "FourierLevyArea",
    "FreshNoise",
    "Increment",
    "LevyArea",
    "MrongowiusRoesslerLevyArea",
    "Needs",
    "StepNormals",
    "Stream",
    "WiktorssonLevyArea",
    "fill_normal",
    "start_normals",
]
