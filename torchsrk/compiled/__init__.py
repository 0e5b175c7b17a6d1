"""Steps compiled to C: the scheme, the gradient and the noise of a tile of particles in one loop."""

from .checked import checked_steps
from .problem import Problem
from .programs import compiling_pays
from .steps import BoundSteps
from .trace import CannotCompile

__all__ = ["BoundSteps", "CannotCompile", "Problem", "checked_steps", "compiling_pays"]
