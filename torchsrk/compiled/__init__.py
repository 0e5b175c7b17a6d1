"""Steps compiled to C: the scheme, the gradient and the noise of a tile of particles in one loop."""

from .checked import checked_steps
from .explain import Explanation, explain
from .problem import Problem
from .programs import compiling_pays
from .steps import BoundSteps
from .trace import CannotCompile, OperationCounter
from .with_torch import TorchSteps, torch_steps

__all__ = [
    "BoundSteps",
    "CannotCompile",
    "Explanation",
    "OperationCounter",
    "Problem",
    "TorchSteps",
    "checked_steps",
    "compiling_pays",
    "explain",
    "torch_steps",
]
