"""Steps compiled to C: the scheme, the gradient and the noise of a tile of particles in one loop."""

from .checked import checked_steps
from .steps import BoundSteps, Problem, compiling_pays
from .trace import CannotCompile

__all__ = ["BoundSteps", "CannotCompile", "Problem", "checked_steps", "compiling_pays"]
