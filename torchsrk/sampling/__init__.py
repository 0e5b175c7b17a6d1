"""The loop: ``sample`` draws from what an SDE converges to, ``integrate`` solves it, a ``Chain`` goes on."""

from .chain import Chain
from .checks import check_step_size
from .compiling import problem_of
from .failures import NonFiniteStateError
from .runs import Callback, Company, Run, sample, sample_alone
from .solves import integrate

__all__ = [
    "Callback",
    "Chain",
    "Company",
    "NonFiniteStateError",
    "Run",
    "check_step_size",
    "integrate",
    "problem_of",
    "sample",
    "sample_alone",
]
