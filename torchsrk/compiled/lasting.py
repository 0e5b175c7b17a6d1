"""A name for a problem's program that another process gives to the same problem, before it has traced anything.

It is made of all that decides a trace: the code of the user's functions and classes, what they read from around them,
attributes, the kinds of tensors, versions, and torchsrk's own source. What is not known to be told by its parts (an
object of an extension, a clock, a function that was put in the place of one of torch's) leaves a problem without one.
"""

from __future__ import annotations

import array
import builtins
import functools
import hashlib
import sys
from collections import OrderedDict
from collections.abc import Hashable
from enum import Enum
from pathlib import PurePath
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from .fingerprint import SETTLED, Reader, is_settled, root_of
from .problem import Problem
from .surroundings import are_as_written, surroundings

_PLAIN = {int, float, complex, bool, str, bytes, type(None), type(...)}
_OF_TORCH = {torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size}
_READ_INTO = {
    *(dict, OrderedDict, MappingProxyType, list, tuple, array.array, bytearray, np.ndarray),
    *(FunctionType, MethodType, functools.partial, CellType, staticmethod, classmethod, property),
}
_TENSORS = {Tensor, nn.Parameter}
# Attributes of torch and numpy through which code reads what is not told by its parts: files, generators, the machine.
_ELSEWHERE = {
    *("load", "loadtxt", "genfromtxt", "fromfile", "from_file", "memmap", "random", "hub", "seed", "initial_seed"),
    *("get_rng_state", "default_generator", "backends", "cuda", "mps", "accelerator", "distributed", "is_available"),
    *("get_num_threads", "get_num_interop_threads", "is_grad_enabled", "is_inference_mode_enabled", "device_count"),
    *("are_deterministic_algorithms_enabled", "get_default_device", "current_device"),
}
# Builtins that give something else in every process.
_OF_A_PROCESS = {"id", "hash", "dir", "object", "breakpoint", "exit", "quit"}
_HEAP_TYPE = 1 << 9


class Lasting(NamedTuple):
    """What a program is kept under, and the tensors that it may read, in an order that every process has them in."""

    name: str
    tensors: tuple[Tensor, ...]


def lasting(problem: Problem) -> Lasting | None:
    """The problem's name; None if it is not known to tell all that decides a trace."""
    around = surroundings()
    if around is None or problem.language != "c":
        return None
    reader = _LastingReader()
    marks = tuple(map(reader.mark, problem.parts))
    digest = hashlib.sha256()
    for part in (marks, problem.form(), around):
        reader.add_to(digest, part)
    return Lasting(digest.hexdigest()[:32], tuple(reader.tensors)) if reader.complete else None


class _LastingReader(Reader):
    """Reads what it is known to read to the last part, and nothing else."""

    def mark(self, value: Any) -> Hashable:
        if isinstance(value, BuiltinFunctionType):
            return self._function_of_c(value)
        if not _is_known(value):
            self.complete = False
            return "unknown"
        if isinstance(value, FunctionType) and value.__name__ in _ELSEWHERE:
            self.complete = False
        return super().mark(value)

    def _function_of_c(self, value: BuiltinFunctionType) -> Hashable:
        owner: Any = value.__self__
        if isinstance(owner, (ModuleType, type)):
            self.complete &= root_of(owner) in SETTLED and value.__name__ not in _ELSEWHERE
            return "function", owner.__name__ if isinstance(owner, ModuleType) else _name(owner), value.__qualname__
        return "method", value.__qualname__, self.mark(owner)

    def itself(self, value: Any) -> Hashable:
        if isinstance(value, CodeType):
            return _code(value)
        if isinstance(value, ModuleType):
            return value.__name__
        bases = value.__mro__
        self.complete &= all(are_as_written(base) for base in bases if is_settled(base))
        return tuple(map(_name, bases))

    def kind(self, value: type) -> Hashable:
        return self.mark(value)

    def is_settled(self, value: FunctionType) -> bool:
        """By where it was written: a decorator may have given it another function's name."""
        return _is_written_in_settled(value)

    def not_found(self, name: str) -> None:
        value = getattr(builtins, name, None)
        is_builtin = hasattr(builtins, name) and "builtins" in (root_of(value), type(value).__module__)
        self.complete &= is_builtin and name not in _OF_A_PROCESS

    def named_of(self, module: ModuleType, attributes: frozenset[str]) -> None:
        self.complete &= _ELSEWHERE.isdisjoint(attributes)

    def add_to(self, digest: Any, mark: Any) -> None:
        """Write a mark as bytes, so that no two marks have the same."""
        kind = type(mark)
        if isinstance(mark, tuple):
            digest.update(b"(%d " % len(mark))
            for part in mark:
                self.add_to(digest, part)
        elif isinstance(mark, frozenset):
            self.add_to(digest, ("set", *sorted(map(repr, mark))))
        elif isinstance(mark, Enum):
            self.add_to(digest, ("member", _name(kind), mark.name))
        elif kind in _PLAIN or kind in _OF_TORCH:
            text = f"{kind.__name__} {mark!r}".encode()
            digest.update(b"%d " % len(text) + text)
        elif isinstance(mark, type):
            self.add_to(digest, ("class", _name(mark) if is_settled(mark) else self.mark(mark)))
        else:
            self.complete = False


def _is_known(value: Any) -> bool:
    kind: Any = type(value)
    if kind in _PLAIN or kind in _OF_TORCH or kind in _READ_INTO or kind is range:
        return True
    if kind in _TENSORS:
        is_plain = value.layout == torch.strided and not value.is_conj() and not value.is_neg()
        return is_plain and not value._backward_hooks
    if kind is slice:
        return all(type(part) in (int, type(None)) for part in (value.start, value.stop, value.step))
    if kind in (set, frozenset):  # their order is another one in every process: of plain values it makes no difference
        return all(type(item) in _PLAIN for item in value)
    if isinstance(value, (np.generic, PurePath, ModuleType)):
        return is_settled(kind) or kind.__module__ == "pathlib" or is_settled(value)
    if isinstance(value, type):
        return type(value) is type or is_settled(type(value))
    return not isinstance(value, (Tensor, *_READ_INTO, set, frozenset, int, float, complex, str, bytes)) and all(
        map(_is_written_in_python, kind.__mro__[:-1])
    )


@functools.lru_cache(maxsize=4096)
def _is_written_in_python(kind: type) -> bool:
    """Whether objects of a class have no state but attributes and slots."""
    file = str(getattr(sys.modules.get(kind.__module__), "__file__", None) or "")
    hides = kind.__module__.startswith(("torch._C", "torch.jit", "torch._dynamo", "functools", "_"))
    main = kind.__module__ == "__main__"
    return bool(kind.__flags__ & _HEAP_TYPE) and not file.endswith((".so", ".pyd")) and (main or not hides)


def _is_written_in_settled(function: FunctionType) -> bool:
    name = function.__globals__.get("__name__")
    module = sys.modules.get(name) if isinstance(name, str) else None
    return module is not None and vars(module) is function.__globals__ and is_settled(module)


@functools.lru_cache(maxsize=4096)
def _code(code: CodeType) -> Hashable:
    """All that code does, without where it was written."""
    constants = tuple(map(_constant, code.co_consts))
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return code.co_code, code.co_exceptiontable, constants, counts, names


def _constant(value: Any) -> Hashable:
    if isinstance(value, CodeType):
        return _code(value)
    if isinstance(value, frozenset):
        return "set", *sorted(map(repr, value))
    return tuple(map(_constant, value)) if isinstance(value, tuple) else (type(value), repr(value))


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
