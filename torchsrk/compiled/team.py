"""The threads that torch's own operations run on, where compiled code can have them work, too."""

from __future__ import annotations

import ctypes
import os
from functools import cache

import torch


def team() -> int | None:
    """The address of GNU OpenMP's GOMP_parallel, whose calls have a team work at once; None where torch has no such
    team, or this process may not use it: one that was forked has lost all threads, and OpenMP waits for them."""
    return _found() if os.getpid() == _loaded_by() else None


@cache
def _loaded_by() -> int:
    """The process that has imported this: a function's, as what modules call a number is a part of programs' names."""
    return os.getpid()


_loaded_by()


@cache
def _found() -> int | None:
    if "OpenMP" not in torch.__config__.parallel_info().partition("ATen parallel backend:")[2]:
        return None
    try:
        return ctypes.cast(ctypes.CDLL(None).GOMP_parallel, ctypes.c_void_p).value
    except (AttributeError, OSError):  # it is there under another name, or not for others to call
        return None
