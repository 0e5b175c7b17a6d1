"""Whether an SDE is still the one that was compiled.

The values of its tensors are read at every run. What a trace has baked in is everything else: plain attributes, which
tensors there are, and what functions read from around them. A fingerprint of those tells when to trace again.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterator
from contextlib import suppress
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from torch import Tensor

_PLAIN = (int, float, complex, bool, str, bytes, type(None))
# Code that does not change under a running program.
_SETTLED = {*sys.stdlib_module_names, "torch", "torchsrk", "numpy", "scipy"} - {"__main__"}


def fingerprint(value: Any) -> Hashable:
    """Equal as long as a trace that read the value is up to date; tensors count by identity, objects by their parts."""
    return _mark(value, set())


def _mark(value: Any, seen: set[int]) -> Hashable:
    if isinstance(value, _PLAIN):
        return type(value), value
    if isinstance(value, Tensor):
        return id(value), value.shape, value.dtype, value.device
    if id(value) in seen or isinstance(value, (ModuleType, type)):
        return id(value)
    seen.add(id(value))
    if isinstance(value, (tuple, list)):
        return type(value), tuple(_mark(item, seen) for item in value)
    if isinstance(value, dict):
        return tuple((repr(key), _mark(item, seen)) for key, item in value.items())
    if isinstance(value, MethodType):
        return _mark(value.__self__, seen), _mark(value.__func__, seen)
    if isinstance(value, FunctionType):
        return id(value.__code__), tuple(_mark(item, seen) for item in _read_by(value))
    methods = () if _is_settled(type(value)) else vars(type(value)).values()
    code = tuple(_mark(item, seen) for item in methods if isinstance(item, FunctionType))
    return id(value), code, _mark(getattr(value, "__dict__", None), seen)


def _read_by(function: FunctionType) -> Iterator[Any]:
    """What a function reads that is not its arguments."""
    yield function.__defaults__
    yield function.__kwdefaults__
    with suppress(ValueError):  # a variable that is not assigned yet
        for cell in function.__closure__ or ():
            yield cell.cell_contents
    if not _is_settled(function):
        for name in _global_names(function.__code__):
            if name in function.__globals__:
                yield function.__globals__[name]


def _global_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):  # a function within the function
            yield from _global_names(constant)


def _is_settled(thing: Any) -> bool:
    return (getattr(thing, "__module__", None) or "").partition(".")[0] in _SETTLED
