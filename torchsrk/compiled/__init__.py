"""Steps compiled to C, or for a GPU: the scheme, the gradient and the noise of a tile of particles in one loop.

What is imported here is light: the compiler itself is loaded when a first program is asked for.
"""

from .captured import CapturedSteps, captured_steps
from .checked import checked_steps
from .exact_time import LengthsAs
from .explain import Explanation, explain
from .pays import compiling_pays
from .problem import Places, Problem, Uneven
from .trace import CannotCompile, OperationCounter
from .with_torch import TorchSteps, torch_steps

__all__ = [
    "CannotCompile",
    "CapturedSteps",
    "Explanation",
    "LengthsAs",
    "OperationCounter",
    "Places",
    "Problem",
    "TorchSteps",
    "Uneven",
    "captured_steps",
    "checked_steps",
    "compiling_pays",
    "explain",
    "torch_steps",
]
