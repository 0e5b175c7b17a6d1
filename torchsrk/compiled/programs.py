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
from dataclasses import dataclass
from functools import partial
from importlib import resources
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import torch

from ..brownian import native
from ..derived import Ledger
from . import build, recorded, stored, triton_steps
from .build import CannotBuild
from .fingerprint import number_of
from .literals import Reading, read_with_literals
from .lowering import StepCode, lower
from .problem import Form, Key, Problem
from .recorded import CannotRecord
from .steps import CompiledSteps, Program
from .trace import (
    CannotCompile,
    CannotTrace,
    OperationCounter,
    StepFails,
    TracedStep,
    collected_later,
    reason_of,
    trace_step,
)

# Counts of particles that no dimension of a problem is likely to be a multiple of; steps traced with two must agree.
_MARKERS = (7907, 7919, 7927, 7933)
# A step is run to be traced, unless it writes so many numbers and makes few operations: torch's own way makes none, but
# imports for more than a second, and takes about a millisecond for each operation, four times over.
_MOST_WRITTEN, _FEW_OPERATIONS, _MOST_TRACED = 1 << 25, 1_000, 8_000
# As many operations as a step of two particles makes, times this: a trace that makes more loops over its particles.
_TIMES_MORE = 8
# A particle's noise for one step, beyond which a tile's is far from fitting any cache.
_MOST_NORMALS = 1 << 14

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

    steps: Program
    key: Key
    is_other: bool
    is_due: bool


@dataclass(frozen=True)
class _Names:
    """What a program of a problem may be kept under, from the most general on."""

    form: Form
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

    def of_program(self, steps: Program) -> tuple[Hashable, Hashable]:
        """The name of a program for all step sizes that it serves, and its name for this one."""
        form, step_size, tensors = self.form, self.step_size, self.tensors
        return (form, (form, step_size)) if steps.shared else (self.of_this, (form, step_size, tensors))


class _Programs(OrderedDict[Hashable, "Program | str"]):
    """Programs, or the reasons why there is none; the least recently used first."""

    def find(self, names: _Names, key: Key) -> Program | None:
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

    def keep(self, name: Hashable, program: Program | str) -> None:
        self[name] = program
        while len(self) > _MOST_KEPT:
            self.popitem(last=False)


_PROGRAMS = _Programs()
_LAST: WeakKeyDictionary[Any, _Names] = WeakKeyDictionary()  # what was asked for last, of every SDE
_LOCK = threading.RLock()


def find(problem: Problem, from_disk: bool = True) -> Found:
    """The problem's program, compiled unless it was before; one that was traced in this process, if not ``from_disk``.

    Raises:
        CannotCompile: the message says why. It is remembered.
    """
    check_place(problem)
    with _LOCK:
        key, last = problem.key(), _LAST.get(problem.owner)
        if last is not None and key.form == last.form:
            key = key._replace(form=last.form)  # the same object, as it is compared a few times more
        names = _Names.of(problem, key)
        steps = _PROGRAMS.find(names, key)
        if steps is not None and steps.stored_as is not None and not from_disk:
            forget(problem)
            steps = None
        if steps is None and from_disk:
            steps = _kept(problem, key)
        if steps is None:
            steps, key = _made(problem, from_disk)
            names = _Names.of(problem, key)
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


def _kept(problem: Problem, key: Key) -> Program | None:
    """A program that another process has kept on disk, and this one from now on."""
    start = time.perf_counter()
    steps = stored.find(problem, key)
    if steps is not None:
        _keep(problem, key, steps, start)
    return steps


def _keep(problem: Problem, key: Key, steps: Program, start: float) -> None:
    """Have a program found from now on; getting it has taken since ``start``."""
    steps.seconds = time.perf_counter() - start
    general, special = _Names.of(problem, key).of_program(steps)
    name = general if steps.any_step_size and general not in _PROGRAMS else special
    _PROGRAMS.keep(name, steps)
    if not steps.shared:  # it holds tensors of the SDE's
        weakref.finalize(problem.owner, _PROGRAMS.pop, name, None).atexit = False


def _made(problem: Problem, from_disk: bool) -> tuple[Program, Key]:
    """A program made now and kept, and its key."""
    start = time.perf_counter()
    key = problem.key()
    try:
        work = warm_up(problem)
        before, key = key, problem.key()
        if from_disk and key.form != before.form:  # the first steps have filled what is kept
            found = _kept(problem, key)
            if found is not None:
                return found, key
        if problem.language == "triton":
            steps: Program = triton_steps.compile(problem, key, work.operations)
        else:
            steps = _compile(problem, key, work)
        if problem.key().form != key.form:
            raise CannotCompile("a step changes the SDE, or what its functions read")
    except CannotCompile as reason:
        names = _Names.of(problem, key)
        is_of_this = isinstance(reason, (CannotBuild, StepFails))
        _PROGRAMS.keep(names.of_this if is_of_this else names.form, str(reason))
        raise
    _keep(problem, key, steps, start)
    return steps, key


class Work(NamedTuple):
    """What an eager step does: its operations, and the numbers that they write for a particle."""

    operations: int
    numbers: int


def warm_up(problem: Problem) -> Work:
    """Eager steps of a few particles, before any trace. Gives what they do.

    So what the SDE's code keeps for later (a distribution's Cholesky factor, say) is kept with its data: tracing has
    none. And code that loops over particles, as vmap does where it has no better way, is found out before it loops over
    as many as a trace has; of a step so long that a second one takes its time, by the trace, which ends when it makes
    many times the operations.
    """
    # The first step of all may fill what is kept, and a product may copy a factor for one size of a batch alone: only
    # what differs a second time, of two other sizes, grows with the particles.
    for few, more in ((2, 3), (5, 7)):
        less = _work(problem, few)
        if less.operations > _MOST_TRACED:
            return less
        work = _work(problem, more)
        if work.operations == less.operations:
            return Work(work.operations, (work.numbers - less.numbers) // (more - few))
    raise CannotCompile("a step loops over its particles")


def _work(problem: Problem, particles: int) -> Work:
    """What an eager step of so many particles does."""
    row = problem.state if problem.state.ndim == 1 else problem.state[0]
    x = row.expand(particles, *row.shape).clone()
    normals = [x.new_zeros(*x.shape[:-1], problem.substeps * draw.components) for draw in problem.noise]
    try:
        with torch.no_grad(), OperationCounter() as counter:
            problem.step(problem.step_size, x, *normals, 0.0, *problem.first_places())
    except Exception as error:  # the user's own, as a rule, which the run will raise again
        raise StepFails(f"a step of {particles} particles fails: {reason_of(error)}") from error
    return Work(counter.operations, counter.numbers)


def check_place(problem: Problem) -> None:
    if problem.language == "triton":
        return triton_steps.check_place(problem.state)
    if problem.state.device.type != "cpu":
        raise CannotCompile(f"C runs on the CPU and the state is on {problem.state.device}")
    if native.library() is None:
        raise CannotCompile("the noise kernel was not built, for want of a C compiler")


def _compile(problem: Problem, key: Key, work: Work) -> Program:
    return by_either_way(work, partial(_compiled, problem, key))


Made = TypeVar("Made")


def by_either_way(work: Work, compiled: Callable[[bool, int], Made]) -> Made:
    """What ``compiled(is_run, most)`` gives, of a step that does this work: with traces by running it, if they will do,
    else with torch's own.

    Raises:
        CannotCompile: of a step that one way has no graph of, the message says what the other way has met.
    """
    first: CannotCompile | None = None
    if work.operations > _FEW_OPERATIONS or recorded.MARKERS[0] * work.numbers <= _MOST_WRITTEN:
        try:
            return compiled(True, _TIMES_MORE * max(_MOST_TRACED, work.operations))
        except CannotBuild:
            raise
        except CannotCompile as reason:
            if work.operations > (_MOST_TRACED if isinstance(reason, CannotRecord) else _FEW_OPERATIONS):
                raise
            first = reason
    try:
        return compiled(False, recorded.MOST_OPERATIONS)
    except CannotTrace:
        if first is None or isinstance(first, CannotRecord):
            raise
    raise first


def _compiled(problem: Problem, key: Key, is_run: bool, most: int) -> Program:
    way = Way(problem.flat_step, problem.width, partial(lower, one_by_one=problem.one_by_one), is_run, most)
    first, literals = read_with_literals(partial(way.read, problem), problem.step_size)
    library = load(program_of(first.code, problem))
    return CompiledSteps(first.code, library, first.traced, literals, problem, key)


@dataclass(frozen=True)
class Way:
    """What is traced of a problem, and how it becomes C.

    Attributes:
        step: a function of the step size, states of ``width`` numbers, normals and the time.
        lowering: from a trace to what has the C in it: a StepCode, or something whose ``code`` is one.
        is_run: the step is run to be traced: see recorder.py.
        most: operations in such a trace.
    """

    step: Callable[..., Any]
    width: int
    lowering: Callable[[TracedStep], Any]
    is_run: bool = False
    most: int = recorded.MOST_OPERATIONS

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
            with collected_later():
                traced = self._traced(problem, step, normals, number)
                sizes = (self.width, *(size for tensor in traced.constants for size in tensor.shape))
                if all(size % traced.particles or not size for size in sizes):
                    return Reading(traced, self._lowered(traced), ledger, step_size, number)
        raise CannotCompile("a step depends on the number of particles")

    def _traced(self, problem: Problem, step: Callable[..., Any], normals: Sequence[int], number: int) -> TracedStep:
        places = problem.first_places()
        if self.is_run:
            row = problem.state.reshape(-1, problem.width)[0].repeat(self.width // problem.width)
            return recorded.record_step(step, normals, row, recorded.MARKERS[number], places, self.most)
        return trace_step(step, normals, self.width, problem.state.dtype, _MARKERS[number], places)

    def _lowered(self, traced: TracedStep) -> Any:
        try:
            return self.lowering(traced)
        except CannotCompile:
            raise
        except Exception as error:  # a graph that this compiler was not made for must not cost the user the run
            reason = f"{type(error).__name__}: {reason_of(error)}"
            raise CannotCompile(f"a step has an unexpected form ({reason})") from error


def load(program: str) -> ctypes.CDLL:
    """The library of a program: see ``stored.declared``."""
    return stored.declared(build.load(program, _SIMD))


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
    names = ("vector.h", "exponential.h", "functions.h", "groups.h", *code.headers, "threads.h", loop)
    *before, driver = (files.joinpath(name).read_text() for name in names)
    return "\n".join((header + "\n".join(before), code.source, driver))
