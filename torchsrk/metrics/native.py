"""The compiled assignment of points to points (assignment.c), loaded through ctypes; absent where it was not built."""

from __future__ import annotations

import ctypes
import importlib.util
from functools import cache

import torch
from torch import Tensor

_SIGNATURE = (
    ctypes.c_int64,  # count
    ctypes.c_int64,  # dim
    ctypes.c_void_p,  # x
    ctypes.c_void_p,  # y
    ctypes.c_void_p,  # to
    ctypes.POINTER(ctypes.c_double),  # gap
)


@cache
def library() -> ctypes.CDLL | None:
    """The solver, or None: other solvers give the same value then, more slowly."""
    spec = importlib.util.find_spec("torchsrk.metrics._assignment")
    return None if spec is None or spec.origin is None else load(spec.origin)


def load(path: str) -> ctypes.CDLL:
    """A solver built from assignment.c."""
    solver = ctypes.CDLL(path)
    solver.torchsrk_assign.argtypes = _SIGNATURE
    solver.torchsrk_assign.restype = ctypes.c_int
    return solver


def assign(solver: ctypes.CDLL, x: Tensor, y: Tensor) -> tuple[Tensor, float] | None:
    """The point of y for every point of x so that Σ‖x_i - y_to(i)‖² is least, and by how much it may not be.

    That is the duality gap, over all pairs. Clouds are float64 on the CPU, of one shape and of a size around 1. The
    call releases the interpreter lock. None if there was not the memory.
    """
    x, y = x.contiguous(), y.contiguous()
    to = torch.empty(len(x), dtype=torch.int64)
    gap = ctypes.c_double()
    places = (x.data_ptr(), y.data_ptr(), to.data_ptr())
    return (to, gap.value) if solver.torchsrk_assign(*x.shape, *places, ctypes.byref(gap)) else None
