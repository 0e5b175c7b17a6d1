"""Steps compiled to C: the scheme, the gradient and the noise of a tile of particles in one loop."""

from .steps import BoundSteps, CompiledSteps, compiled_steps, compiling_pays
from .trace import CannotCompile

__all__ = ["BoundSteps", "CannotCompile", "CompiledSteps", "compiled_steps", "compiling_pays"]
