"""The programs of this process: traced, lowered and compiled at first, found again afterwards.

A program is for a form of problem (see Key): SDEs that differ in the values of their tensors alone share one. One that
reads a tensor which its key does not name is for the SDE alone that it was traced of, and goes with it.
"""

from __future__ import annotations

import ctypes
import math
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import resources
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ..brownian import native
from ..derived import Ledger
from . import build, recorded
from .build import CannotBuild
from .fingerprint import number_of
from .literals import Literals, Reading, have_same_numbers, literals_of
from .lowering import StepCode, lower
from .problem import Key, Problem
from .steps import CompiledSteps
from .trace import CannotCompile, OperationCounter, StepFails, TracedStep, reason_of, trace_step

# Counts of particles that no dimension of a problem is likely to be a multiple of; steps traced with two must agree.
_MARKERS = (7907, 7919, 7927, 7933)
# From so many on, a step is run to be traced: torch's own way takes about a millisecond each, four times over.
_MANY_OPERATIONS, _MOST_TRACED = 1_000, 8_000
# So near that a step of it has the same form, and so far that its numbers are others.
_OTHER_STEP_SIZE = 1.0 + 2.0**-6
# A particle's noise for one step, beyond which a tile's is far from fitting any cache.
_MOST_NORMALS = 1 << 14
# Seconds: of an eager gradient and its share of the step, for each call and for each number; of compiling.
_EAGER_CALL, _EAGER_NUMBER, _COMPILING = 40e-6, 2e-9, 1.0

# Takes the pragmas by which the sums of one-by-one steps may be added up in several parts.
_SIMD = ("-fopenmp-simd",)
_REALS = {torch.float32: ("float", "int32_t", "x##f"), torch.float64: ("double", "int64_t", "x")}

# Programs kept. More are seldom asked for in turns, unless an SDE changes with every call.
_MOST_KEPT = 64


@dataclass(frozen=True)
class Found:
    """A program for a problem.

    Attributes:
        steps, key: the program, and what its tensors are now.
        is_other: it is another one than at the last call for this SDE, or has other tensors.
        is_due: that, or the step size is another one.
    """

    steps: CompiledSteps
    key: Key
    is_other: bool
    is_due: bool


@dataclass(frozen=True)
class _Names:
    """What a program of a problem may be kept under, from the most general on."""

    form: Hashable
    step_size: float
    tensors: Hashable

    @staticmethod
    def of(problem: Problem, key: Key) -> _Names:
        return _Names(key.form, problem.step_size, tuple(map(number_of, (problem.owner, *key.tensors))))

    @property
    def of_this(self) -> Hashable:
        """The name of what is so of this SDE alone."""
        return self.form, self.tensors

    def all(self) -> tuple[Hashable, ...]:
        form, step_size, tensors = self.form, self.step_size, self.tensors
        return form, (form, step_size), self.of_this, (form, step_size, tensors)

    def of_program(self, steps: CompiledSteps) -> tuple[Hashable, Hashable]:
        """The name of a program for all step sizes that it serves, and its name for this one."""
        form, step_size, tensors = self.form, self.step_size, self.tensors
        return (form, (form, step_size)) if steps.shared else (self.of_this, (form, step_size, tensors))


class _Programs(OrderedDict[Hashable, "CompiledSteps | str"]):
    """Programs, or the reasons why there is none; the least recently used first."""

    def find(self, names: _Names, key: Key) -> CompiledSteps | None:
        """A program that serves.

        Raises:
            CannotCompile: there can't be one.
        """
        for name in names.all():
            found = self.get(name)
            if isinstance(found, str):
                raise CannotCompile(found)
            if found is not None and found.serves(names.step_size):
                if found.is_current(key):
                    self.move_to_end(name)
                    return found
                del self[name]
        return None

    def keep(self, name: Hashable, program: CompiledSteps | str) -> None:
        self[name] = program
        while len(self) > _MOST_KEPT:
            self.popitem(last=False)


_PROGRAMS = _Programs()
_LAST: WeakKeyDictionary[Any, _Names] = WeakKeyDictionary()  # what was asked for last, of every SDE
_LOCK = threading.RLock()


def find(problem: Problem) -> Found:
    """The problem's program, compiled unless it was before.

    Raises:
        CannotCompile: the message says why. It is remembered.
    """
    check_place(problem.state)
    with _LOCK:
        key = problem.key()
        steps = _PROGRAMS.find(_Names.of(problem, key), key)
        if steps is None:
            steps, key = _made(problem)
        names, last = _Names.of(problem, key), _LAST.get(problem.owner)
        _LAST[problem.owner] = names
        is_other = last is None or (last.form, last.tensors) != (names.form, names.tensors)
        return Found(steps, key, is_other, last != names)


def forget(problem: Problem, reason: str | None = None) -> None:
    """Compile the problem anew at the next call, or never again if there is a reason."""
    with _LOCK:
        names = _Names.of(problem, problem.key())
        for name in names.all():
            _PROGRAMS.pop(name, None)
        _LAST.pop(problem.owner, None)
        if reason is not None:
            _PROGRAMS.keep(names.of_this, reason)


def _made(problem: Problem) -> tuple[CompiledSteps, Key]:
    """A program made now and kept, and its key."""
    start = time.perf_counter()
    key = problem.key()
    try:
        operations = warm_up(problem)
        key = problem.key()
        steps = _compile(problem, key, operations)
        if problem.key().form != key.form:
            raise CannotCompile("a step changes the SDE, or what its functions read")
    except CannotCompile as reason:
        names = _Names.of(problem, key)
        is_of_this = isinstance(reason, (CannotBuild, StepFails))
        _PROGRAMS.keep(names.of_this if is_of_this else names.form, str(reason))
        raise
    steps.seconds = time.perf_counter() - start
    general, special = _Names.of(problem, key).of_program(steps)
    name = general if steps.any_step_size and general not in _PROGRAMS else special
    _PROGRAMS.keep(name, steps)
    if not steps.shared:  # it holds tensors of the SDE's
        weakref.finalize(problem.owner, _PROGRAMS.pop, name, None).atexit = False
    return steps, key


def warm_up(problem: Problem) -> int:
    """Eager steps of two and of three particles, before any trace. Gives the number of their operations.

    So what the SDE's code keeps for later (a distribution's Cholesky factor, say) is kept with its data: tracing has
    none. And code that loops over particles, as vmap does where it has no better way, is found out before it loops over
    as many as a trace has.
    """
    _, *operations = [_operations(problem, particles) for particles in (2, 2, 3)]  # the first fills what is kept
    if operations[0] != operations[1]:
        raise CannotCompile("a step loops over its particles")
    return operations[0]


def _operations(problem: Problem, particles: int) -> int:
    """How many operations an eager step makes."""
    row = problem.state if problem.state.ndim == 1 else problem.state[0]
    x = row.expand(particles, *row.shape).clone()
    normals = [x.new_zeros(*x.shape[:-1], problem.substeps * draw.components) for draw in problem.noise]
    try:
        with torch.no_grad(), OperationCounter() as counter:
            problem.step(problem.step_size, x, *normals, 0.0)
    except Exception as error:  # the user's own, as a rule, which the run will raise again
        raise StepFails(f"a step of {particles} particles fails: {reason_of(error)}") from error
    return counter.operations


def check_place(state: Tensor) -> None:
    if state.device.type != "cpu":
        raise CannotCompile(f"compiled steps run on the CPU and the state is on {state.device}")
    if native.library() is None:
        raise CannotCompile("the noise kernel was not built, for want of a C compiler")


def compiling_pays(gradients: int, numbers: int) -> bool:
    """Whether so many gradients of states of so many numbers would take longer eagerly than compiling does."""
    return gradients * (_EAGER_CALL + _EAGER_NUMBER * numbers) > _COMPILING


def _compile(problem: Problem, key: Key, operations: int) -> CompiledSteps:
    way = Way(problem.flat_step, problem.width, partial(lower, one_by_one=problem.one_by_one), operations)
    first = way.read(problem, problem.step_size)
    literals = _literals(problem, way, first)
    library = load(program_of(first.code, problem))
    return CompiledSteps(first.code, library, first.traced, literals, problem, key)


@dataclass(frozen=True)
class Way:
    """What is traced of a problem, and how it becomes C.

    Attributes:
        step: a function of the step size, states of ``width`` numbers, normals and the time.
        lowering: from a trace to what has the C in it: a StepCode, or something whose ``code`` is one.
        operations: that an eager step makes.
    """

    step: Callable[..., Any]
    width: int
    lowering: Callable[[TracedStep], Any]
    operations: int = 0

    def read(self, problem: Problem, step_size: float, after: Reading | None = None) -> Reading:
        """The step with the first of the numbers of particles that no dimension is a multiple of; with another one than
        was taken before, if that is given."""
        copies = problem.substeps * math.prod(problem.members)
        normals = [copies * draw.components for draw in problem.noise]
        if sum(normals) > _MOST_NORMALS:
            raise CannotCompile(f"a step draws more than {_MOST_NORMALS} normals a particle, for its Lévy areas")
        for number in range(0 if after is None else after.number + 1, len(_MARKERS)):
            ledger = Ledger()
            step = partial(self.step, ledger.step_size(step_size))
            traced = self._traced(problem, step, normals, number)
            sizes = (self.width, *(size for tensor in traced.constants for size in tensor.shape))
            if all(size % traced.particles or not size for size in sizes):
                return Reading(traced, self._lowered(traced), ledger, step_size, number)
        raise CannotCompile("a step depends on the number of particles")

    def read_twice(self, problem: Problem) -> Reading:
        """The step at the problem's step size, if it is the same for any number of particles."""
        first = self.read(problem, problem.step_size)
        _check_same(first, self.read(problem, problem.step_size, first))
        return first

    def _traced(self, problem: Problem, step: Callable[..., Any], normals: Sequence[int], number: int) -> TracedStep:
        if self.operations > _MANY_OPERATIONS:
            row = problem.state.reshape(-1, self.width)[0]
            try:
                return recorded.record_step(step, normals, row, recorded.MARKERS[number])
            except CannotCompile:
                if self.operations > _MOST_TRACED:
                    raise  # torch's own way takes more steps, and far more time
        return trace_step(step, normals, self.width, problem.state.dtype, _MARKERS[number])

    def _lowered(self, traced: TracedStep) -> Any:
        try:
            return self.lowering(traced)
        except CannotCompile:
            raise
        except Exception as error:  # a graph that this compiler was not made for must not cost the user the run
            reason = f"{type(error).__name__}: {reason_of(error)}"
            raise CannotCompile(f"a step has an unexpected form ({reason})") from error


def _literals(problem: Problem, way: Way, first: Reading) -> Literals:
    """The numbers of a step, by a trace with another number of particles, and another step size if it takes one."""
    with suppress(CannotCompile):  # of a step size that makes another step, say one with more terms
        literals = literals_of(first, way.read(problem, _OTHER_STEP_SIZE * problem.step_size, first))
        if literals is not None:
            return literals
    _check_same(first, way.read(problem, problem.step_size, first))
    return Literals.of_one_step_size(first)


def _check_same(first: Reading, second: Reading) -> None:
    if not have_same_numbers(first, second):
        raise CannotCompile("a step depends on the number of particles")


def load(program: str) -> ctypes.CDLL:
    """The library of a program: ``torchsrk_run`` takes a struct that says all, and the number of threads."""
    library = build.load(program, _SIMD)
    library.torchsrk_run.argtypes = (ctypes.c_void_p, ctypes.c_int)
    library.torchsrk_run.restype = ctypes.c_int
    return library


def program_of(code: StepCode, problem: Problem, loop: str = "driver.c", **more: Any) -> str:
    """All of a library's C: the step, and the loop around it, with what that asks for to be defined."""
    dtype, noise = problem.state.dtype, problem.noise
    real, integer, suffixed = _REALS[dtype]
    definitions = {
        "REAL": real,
        "REAL_BYTES": dtype.itemsize,
        "INTEGER": integer,
        "F(x)": suffixed,
        "KIND": native.KINDS[dtype],
        "WIDTH": problem.width,
        "MEMBERS": math.prod(problem.members),
        "SUBSTEPS": problem.substeps,
        "WORKSPACE": code.workspace,
        "GROUPS": code.groups,
        "NOISES": len(noise),
        "STREAMS": ", ".join(str(int(source.stream)) for source in noise),
        "COMPONENTS": ", ".join(str(source.components) for source in noise),
        **({"ONE_BY_ONE": 1} if code.one_by_one else {}),
        **more,
    }
    header = "".join(f"#define {name} {value}\n" for name, value in definitions.items())
    files = resources.files(__package__)
    names = ("vector.h", "exponential.h", "functions.h", "groups.h", *code.headers, loop)
    *before, driver = (files.joinpath(name).read_text() for name in names)
    return "\n".join((header + "\n".join(before), code.source, driver))
