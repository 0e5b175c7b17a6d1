"""Whether an SDE is still the one that was compiled.

The values of its tensors are read at every run. What a trace has baked in is everything else: plain attributes, which
tensors there are, and what functions read from around them. A fingerprint of those tells when to trace again. What it
can't look into (an iterator, a clock, an object of an extension) makes it incomplete: then every run is checked.
"""

from __future__ import annotations

import array
import builtins
import dis
import functools
import itertools
import logging
import os
import sys
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from enum import Enum
from pathlib import PurePath
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

PLAIN = (int, float, complex, bool, str, bytes, type(None), type(...), range, slice, np.generic, PurePath)
_SIMPLE = {int, str, bool, bytes, type(None)}
_CONTAINERS = {dict, OrderedDict, set}
_NAMES = {str}
SETTLED_VALUES = (torch.dtype, torch.device, torch.layout, torch.memory_format)
# Code that does not change under a running program, and reads nothing that does.
SETTLED = {"torch", "torchsrk", "numpy", "scipy", "math", "cmath", "operator", "functools", "itertools", "typing"} | {
    *("collections", "dataclasses", "abc", "enum", "types", "builtins", "numbers", "copy", "contextlib", "warnings"),
}
# Builtins through which a function reads what its code does not name.
_UNSEEN = {"globals", "locals", "vars", "eval", "exec", "compile", "open", "input", "__import__", "getattr", "next"}
_SKIPPED = {"__module__", "__doc__", "__dict__", "__weakref__", "__qualname__", "__annotations__", "_abc_impl"}
_MOST_PARTS = 20_000  # a fingerprint of more would take longer than a check
_MOST_BYTES = 1 << 22


class Fingerprint(NamedTuple):
    """What a step reads.

    Attributes:
        mark: equal as long as a trace is up to date, as far as can be seen.
        complete: all was seen.
        tensors: those that were met, in order. Of these the mark tells the kinds, and which are one and the same.
    """

    mark: Hashable
    complete: bool
    tensors: tuple[Tensor, ...]


def fingerprint(*values: Any) -> Fingerprint:
    """The fingerprint of all that a step reads. Tensors count by their places, other objects by their parts."""
    reader = Reader()
    return Fingerprint(tuple(map(reader.mark, values)), reader.complete, tuple(reader.tensors))


class _Numbers:
    """A number for every object that lives, unlike an id never given to another one."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._count = itertools.count()

    def __call__(self, value: Any) -> int:
        key = id(value)
        known = self._known.get(key)
        if known is None or known[0]() is not value:
            known = weakref.ref(value, lambda _: self._known.pop(key, None)), next(self._count)
            self._known[key] = known
        return known[1]


number_of = _Numbers()


class Reader:
    """Reads values into marks. What it tells by a number of this process lasting.py tells otherwise."""

    def __init__(self) -> None:
        self.complete = True
        self.tensors: list[Tensor] = []
        self._seen: dict[int, int] = {}
        self._held: list[Any] = []  # so that no id is used twice within one reading

    def mark(self, value: Any) -> Hashable:
        kind: Any = type(value)
        if kind in _SIMPLE or (kind in _CONTAINERS and not value):  # most of what a module holds
            return kind, value if kind in _SIMPLE else None
        read = _reader_of(kind)
        if read is None:
            return self.tensor(value) if isinstance(value, Tensor) else _outright(value)
        if id(value) in self._seen:
            return "again", self._seen[id(value)]
        if len(self._seen) >= _MOST_PARTS:
            self.complete = False
            return "too much"
        self._seen[id(value)] = len(self._seen)
        self._held.append(value)
        return read(self, value)

    def itself(self, value: Any) -> Hashable:
        """What code, a class or a module is told by, beside its parts."""
        return number_of(value)

    def is_settled(self, value: FunctionType) -> bool:
        """Whether a function does not change, and reads nothing that does."""
        return is_settled(value)

    def not_found(self, name: str) -> None:
        """Code names what is neither a global nor a module that is loaded: a builtin, as a rule."""

    def named_of(self, module: ModuleType, attributes: frozenset[str]) -> None:
        """Code names a settled module, and attributes of anything."""
        self.complete &= root_of(module) != "numpy" or "random" not in attributes

    def tensor(self, value: Tensor) -> Hashable:
        """By its place among those met, and what a trace sees of it but for its values."""
        place = self._seen.get(id(value))
        if place is None:
            place = self._seen[id(value)] = len(self.tensors)
            self.tensors.append(value)
        layout = value.stride() if value.layout == torch.strided else value.layout
        attributes = getattr(value, "__dict__", None)  # that a user gave it
        form = (value.shape, layout, value.dtype, value.device, value.requires_grad)
        return type(value), place, form, self.mark(attributes) if attributes else None

    def sequence(self, value: Any) -> Hashable:
        attributes = getattr(value, "__dict__", None)  # of a subclass
        return type(value), tuple(map(self.mark, value)), self.mark(attributes) if attributes else None

    def unordered(self, value: Any) -> Hashable:
        # A set has no places: its tensors count by themselves.
        themselves = frozenset(number_of(item) for item in value if isinstance(item, Tensor))
        return type(value), themselves, frozenset(self.mark(item) for item in value if not isinstance(item, Tensor))

    def mapping(self, value: Mapping[Any, Any]) -> Hashable:
        items = tuple(value.values())
        kinds = tuple(map(type, items))
        simple, containers, others = _sorted_out(kinds)
        # As ``mark`` would tell, without a call for each of the many that a module has and are of no interest.
        told = [items[place] for place in simple]
        full = [(place, self.mark(items[place])) for place in containers if items[place]]
        parts = [self.mark(items[place]) for place in others]
        keys = tuple(value) if set(map(type, value)) <= _NAMES else tuple(map(self.mark, value))
        return type(value), keys, kinds, tuple(told), tuple(full), tuple(parts)

    def buffer(self, value: Any) -> Hashable:
        data = memoryview(value).tobytes()
        return type(value), data

    def numbers(self, value: np.ndarray) -> Hashable:
        if value.dtype.hasobject or value.nbytes > _MOST_BYTES:
            self.complete = False
            return number_of(value), value.shape, value.dtype.str
        return value.shape, value.dtype.str, value.tobytes()

    def method(self, value: MethodType) -> Hashable:
        return self.mark(value.__self__), self.mark(value.__func__)

    def builtin(self, value: BuiltinFunctionType) -> Hashable:
        """A function of C: a method of an object, or of a module."""
        owner = value.__self__
        if owner is None or isinstance(owner, (ModuleType, type)) or type(owner).__module__.startswith("torch"):
            self._module_of(value)
            return value.__qualname__
        return value.__qualname__, self.mark(owner)

    def partial(self, value: functools.partial) -> Hashable:
        return self.mark(value.func), self.mark(value.args), self.mark(value.keywords), self.mark(vars(value))

    def cached(self, value: Any) -> Hashable:
        """A function whose results functools keeps: which ones can't be seen."""
        self.complete = False
        return self.mark(value.__wrapped__)

    def cell(self, value: CellType) -> Hashable:
        try:
            return "cell", self.mark(value.cell_contents)
        except ValueError:
            return "a variable that is not assigned yet"

    def wrapper(self, value: Any) -> Hashable:
        return type(value), self.mark(value.__func__)

    def property(self, value: property) -> Hashable:
        return self.mark(value.fget)

    def module(self, value: ModuleType) -> Hashable:
        """One that is not named by the code that reads it: what is read of it is not known."""
        self.complete &= is_settled(value)
        return self.itself(value)

    def function(self, value: FunctionType) -> Hashable:
        around = (value.__defaults__, value.__kwdefaults__, value.__closure__, vars(value) or None)
        told = tuple(None if part is None else self.mark(part) for part in around)
        if self.is_settled(value):
            return self.itself(value.__code__), told
        return self.itself(value.__code__), told, tuple(self._read_by(value))

    def _read_by(self, function: FunctionType) -> Iterator[Hashable]:
        """What a function reads by name: globals, and attributes of modules among them."""
        names, attributes = _names(function.__code__)
        for name in names:
            if name in function.__globals__:
                yield name, self._named(function.__globals__[name], attributes)
            elif name in _UNSEEN:
                self.complete = False
            elif name in sys.modules and not hasattr(builtins, name):  # imported within the function
                yield name, self._named(sys.modules[name], attributes)
            else:
                self.not_found(name)

    def _named(self, value: Any, attributes: frozenset[str]) -> Hashable:
        """What code names; of a module, what it names there in turn."""
        if not isinstance(value, ModuleType):
            return self.mark(value)
        self._module_of(value)
        if value is os:
            return tuple(os.environ.items())
        if is_settled(value):
            self.named_of(value, attributes)
            return self.itself(value)
        read = sorted(attributes & vars(value).keys())
        return self.itself(value), tuple((name, self._named(vars(value)[name], attributes)) for name in read)

    def _module_of(self, value: Any) -> None:
        """A module of the standard library may read anything: a clock, a file, a generator of random numbers."""
        root = root_of(value)
        if root in sys.stdlib_module_names and root not in SETTLED:
            self.complete = False

    def class_(self, value: type) -> Hashable:
        """A class: what its code reads, and its attributes; a settled one by itself."""
        own = _unsettled(value)
        if not own:
            return self.itself(value)
        for kind in own:
            self._module_of(kind)
        return self.itself(value), tuple(
            (name, self.mark(item)) for kind in own for name, item in vars(kind).items() if name not in _SKIPPED
        )

    def object(self, value: Any) -> Hashable:
        kind: Any = type(value)
        attributes = getattr(value, "__dict__", None)
        slots = [name for name in _slots(kind) if hasattr(value, name)]
        if isinstance(value, torch.jit.ScriptModule) or (attributes is None and not slots):
            self.complete = False
        parts = tuple((name, self.mark(getattr(value, name))) for name in slots)
        return self.kind(kind), parts, None if attributes is None else self.mark(attributes)

    def kind(self, value: type) -> Hashable:
        """The class of an object, which most share with others."""
        return self.mark(value) if _unsettled(value) else self.itself(value)


def _outright(value: Any) -> Hashable:
    """What has no parts to look into."""
    # A number by its text, as NaN is not equal to itself and 0.0 is to -0.0.
    return type(value), value if isinstance(value, SETTLED_VALUES) else repr(value)


_Read = Callable[[Reader, Any], Hashable]

_READERS: tuple[tuple[Any, _Read | None], ...] = (
    ((Tensor, *PLAIN, *SETTLED_VALUES), None),
    ((FunctionType,), Reader.function),
    ((dict, Mapping), Reader.mapping),
    ((tuple, list, deque), Reader.sequence),
    ((set, frozenset), Reader.unordered),
    ((MethodType,), Reader.method),
    # What a logger holds beside is its own: what it has been asked for, and all other loggers.
    ((logging.Logger,), lambda reader, value: (type(value), value.name, value.level, value.disabled)),
    ((Enum,), lambda reader, value: (type(value), value.name, reader.mark(value.value))),
    ((type,), Reader.class_),
    ((ModuleType,), Reader.module),
    ((functools.partial,), Reader.partial),
    ((np.ndarray,), Reader.numbers),
    ((array.array, bytearray, memoryview), Reader.buffer),
    ((BuiltinFunctionType,), Reader.builtin),
    ((functools._lru_cache_wrapper,), Reader.cached),
    ((CellType,), Reader.cell),
    ((staticmethod, classmethod), Reader.wrapper),
    ((property,), Reader.property),
    ((object,), Reader.object),
)


@functools.lru_cache(maxsize=4096)
def _reader_of(kind: type) -> _Read | None:
    return next(read for kinds, read in _READERS if issubclass(kind, kinds))


@functools.lru_cache(maxsize=4096)
def _sorted_out(kinds: tuple[type, ...]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The places of what is told by itself, of containers that may be empty, and of all else."""
    simple = tuple(place for place, kind in enumerate(kinds) if kind in _SIMPLE)
    containers = tuple(place for place, kind in enumerate(kinds) if kind in _CONTAINERS)
    return simple, containers, tuple(sorted({*range(len(kinds))} - {*simple, *containers}))


@functools.lru_cache(maxsize=4096)
def _names(code: CodeType) -> tuple[tuple[str, ...], frozenset[str]]:
    """The globals and the attributes that code names, that of functions within it included."""
    names, attributes = set(), set()
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME", "IMPORT_NAME"):
            names.add(str(instruction.argval).partition(".")[0])
        elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM"):
            attributes.add(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):  # a function within the function
            inner = _names(constant)
            names.update(inner[0])
            attributes.update(inner[1])
    return tuple(sorted(names)), frozenset(attributes)


@functools.lru_cache(maxsize=4096)
def _slots(kind: type) -> tuple[str, ...]:
    """The names of the slots of a class and of those it is made from."""
    names: list[str] = []
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ())
        names += (slots,) if isinstance(slots, str) else slots
    return tuple(name for name in names if name not in _SKIPPED)


@functools.lru_cache(maxsize=4096)
def _unsettled(kind: type) -> tuple[type, ...]:
    """Of a class and those it is made from, the ones whose code may change or read what does."""
    return tuple(base for base in kind.__mro__ if not is_settled(base))


def root_of(thing: Any) -> str:
    """The package that a module is in, or that a function or class was written in."""
    name = thing.__name__ if isinstance(thing, ModuleType) else getattr(thing, "__module__", None)
    return (name if isinstance(name, str) else "").partition(".")[0]


def is_settled(thing: Any) -> bool:
    return root_of(thing) in SETTLED
