"""Steps compiled to C: the scheme, the gradient and the noise of a tile of particles in one loop."""

from .checked import checked_steps
from .explain import Explanation, explain
from .problem import Problem
from .programs import compiling_pays
from .solve import CompiledSolve, compiled_solve, forget_solve
from .steps import BoundSteps
from .trace import CannotCompile, OperationCounter
from .with_torch import TorchSteps, torch_steps

__all__ = [
    "BoundSteps",
    "CannotCompile",
    "CompiledSolve",
    "Explanation",
    "OperationCounter",
    "Problem",
    "TorchSteps",
    "checked_steps",
    "compiled_solve",
    "compiling_pays",
    "explain",
    "forget_solve",
    "torch_steps",
]
