"""Steps compiled to C: the scheme, the gradient and the noise of a tile of particles in one loop."""

from .checked import checked_steps
from .solve import CompiledSolve, compiled_solve, forget_solve
from .steps import BoundSteps, Problem, compiling_pays
from .trace import CannotCompile

__all__ = [
    "BoundSteps",
    "CannotCompile",
    "CompiledSolve",
    "Problem",
    "checked_steps",
    "compiled_solve",
    "compiling_pays",
    "forget_solve",
]
