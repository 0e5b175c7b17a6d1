"""Compiled steps: traced from a function of tensors, run over all particles in one call."""

from __future__ import annotations

import ctypes
import math
import os
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Size, Tensor

from ..brownian import native
from ..brownian.draws import Draw
from . import build, recorded
from .fingerprint import fingerprint
from .lowering import StepCode, lower
from .trace import CannotCompile, OperationCounter, TracedStep, reason_of, trace_step
from .writer import evaluate

# Counts of particles that no dimension of a problem is likely to be a multiple of; steps traced with two must agree.
_MARKERS = (7907, 7919, 7927, 7933)
# From so many on, a step is run to be traced: torch's own way takes about a millisecond each, four times over.
_MANY_OPERATIONS, _MOST_TRACED = 1_000, 8_000
# A particle's noise for one step, beyond which a tile's is far from fitting any cache.
_MOST_NORMALS = 1 << 14
# Starting a second thread costs about as long as this many normals and their share of a step.
_NUMBERS_PER_THREAD = 1 << 17

# Seconds: of an eager gradient and its share of the step, for each call and for each number; of compiling.
_EAGER_CALL, _EAGER_NUMBER, _COMPILING = 40e-6, 2e-9, 1.0

# So few particles run one by one, with vectors along a particle's entries; more run side by side in a vector's lanes.
_FEW = 4
# Takes the pragmas by which the sums of one-by-one steps may be added up in several parts.
_SIMD = ("-fopenmp-simd",)

_REALS = {torch.float32: ("float", "int32_t", "x##f"), torch.float64: ("double", "int64_t", "x")}
# Whole numbers that a REAL holds exactly.
_EXACT = {torch.float32: 2**24, torch.float64: 2**53}


class _Run(ctypes.Structure):
    """The struct Run of driver.c."""

    _fields_ = (
        ("source", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("particles", ctypes.c_int64),
        ("steps", ctypes.c_int64),
        ("seed", ctypes.c_uint64),
        ("first_step", ctypes.c_uint64),
        ("first_particle", ctypes.c_uint32),
        ("step_size", ctypes.c_double),
        ("scales", ctypes.c_void_p),
        ("literals", ctypes.c_void_p),
        ("uniforms", ctypes.c_void_p),
        ("tables", ctypes.c_void_p),
        ("draw", ctypes.c_void_p),
    )


class CompiledSteps:
    """Steps as one C function.

    The numbers are those of the eager step up to rounding, and the same bits whatever the number of threads, the way a
    run is cut into calls or, from five particles on, the batch.

    Attributes:
        seconds: that it took to get here.
        seen: nothing that the step reads is hidden from its fingerprint.
        checks: when it was last held against eager steps.
    """

    def __init__(
        self,
        code: StepCode,
        library: ctypes.CDLL,
        traced: TracedStep,
        problem: Problem,
        seen: bool,
    ) -> None:
        self._code, self._library, self._traced = code, library, traced
        self._noise, self._step_size = problem.noise, problem.step_size
        self._width, self._members = problem.width, math.prod(problem.members)
        self.seen, self.seconds, self.checks = seen, 0.0, Checks()

    @property
    def longest_sum(self) -> int:
        """The most terms that any sum of the step adds up."""
        return self._code.longest_sum

    def is_current(self) -> bool:
        """Whether the numbers that the step read out of tensors are still what they were."""
        return all(torch.equal(_bits(now), _bits(then)) for now, then in self._traced.reads)

    def bind(self, like: Tensor, seed: int, first_particle: int, threads: int) -> BoundSteps:
        """Ready to run: what does not depend on the state is computed here, from the parameters as they are now."""
        literals = torch.tensor(self._code.literals or (0.0,), dtype=torch.float64).to(like.dtype)
        values = evaluate(self._traced, (*self._code.uniforms, *self._code.tables, *self._code.checks))
        uniforms = [torch.as_tensor(v).to(like.dtype).contiguous() for v in values[: len(self._code.uniforms)]]
        places = values[len(self._code.uniforms) :][: len(self._code.tables)]
        tables = [v.to(torch.int64).contiguous() for v in places]
        self._check_places(tables, like.dtype)
        scales = torch.tensor([source.scale for source in self._noise], dtype=torch.float64)
        kernel = native.library()
        assert kernel is not None
        uniform_pointers, table_pointers = _pointers(uniforms), _pointers(tables)
        run = _Run(
            seed=seed,
            first_particle=first_particle,
            step_size=self._step_size,
            scales=scales.data_ptr(),
            literals=literals.data_ptr(),
            uniforms=ctypes.addressof(uniform_pointers),
            tables=ctypes.addressof(table_pointers),
            draw=ctypes.cast(kernel.torchsrk_fill_tile, ctypes.c_void_p).value,
        )
        alive = (literals, uniforms, uniform_pointers, tables, table_pointers, scales)
        return BoundSteps(self._library, run, self._width, self._members, threads, alive)

    def _check_places(self, tables: Sequence[Tensor], dtype: torch.dtype) -> None:
        """No place that reaches C is out of bounds. Eagerly torch itself says which one is."""
        for number, size, from_the_end in self._code.bounds:
            places = tables[number]
            if places.numel() and not -size * from_the_end <= int(places.min()) <= int(places.max()) < size:
                raise CannotCompile(f"a step indexes out of the bounds of a dimension of size {size}")
        if any(table.numel() and int(table.abs().max()) > _EXACT[dtype] for table in tables):
            raise CannotCompile(f"a step in {dtype} reads whole numbers beyond {_EXACT[dtype]}")


@dataclass
class Checks:
    """When a program was held against eager steps, and what that cost.

    Attributes:
        sizes: of the blocks of particles that were checked as a whole.
        at, seconds: when the last check ended, and what it took.
    """

    sizes: set[int] = field(default_factory=set)
    at: float = -math.inf
    seconds: float = 0.0

    def are_due(self, share: float) -> bool:
        """Whether another check would take no more than a share of the time since the last one."""
        return (time.perf_counter() - self.at) * share >= self.seconds


def _bits(x: Tensor) -> Tensor:
    """A tensor that equals another's where they are the same to the bit, NaN included."""
    return x.detach().contiguous().view(torch.uint8) if x.ndim else x.detach().reshape(1).view(torch.uint8)


def _pointers(tensors: Sequence[Tensor]) -> Any:
    return (ctypes.c_void_p * max(1, len(tensors)))(*(tensor.data_ptr() for tensor in tensors))


class BoundSteps:
    """Compiled steps with their parameters and seed; ``alive`` holds what ``run`` points to."""

    def __init__(self, library: ctypes.CDLL, run: _Run, width: int, members: int, threads: int, alive: Any) -> None:
        self._library, self._run, self._threads, self._alive = library, run, threads, alive
        self._width, self._members = width, members
        self._first_particle = int(run.first_particle)

    def advance(self, source: Tensor, out: Tensor, first: int, last: int, row: int = 0) -> None:
        """Write to ``out`` the contiguous states ``source`` of step ``first``, taken to step ``last``.

        ``row`` is the number of the first of them in the batch.
        """
        run = self._run
        run.source, run.out = source.data_ptr(), out.data_ptr()
        run.first_particle = self._first_particle + row * self._members
        run.particles, run.steps, run.first_step = source.numel() // self._width, last - first, first
        work = source.numel() * (last - first)
        threads = min(self._threads, 1 + work // _NUMBERS_PER_THREAD)
        if self._library.torchsrk_run(ctypes.byref(run), threads):
            raise MemoryError("no memory for the workspace of a compiled step")

    def advance_rows(self, x: Tensor, row: int, *, first: int, last: int) -> Tensor:
        """The same for rows from ``row`` on, as a new tensor."""
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        self.advance(x.contiguous(), out, first, last, row)
        return out


# Steps kept for an SDE. More are seldom asked for in turns, unless the SDE changes with every call.
_MOST_KEPT = 16


class _Kept(dict[Hashable, "CompiledSteps | str"]):
    """The programs of an SDE, or the reasons why there is none; and which was asked for last."""

    last: Hashable = None


_COMPILED: WeakKeyDictionary[Any, _Kept] = WeakKeyDictionary()
_COMPILING_LOCK = threading.RLock()


@dataclass(frozen=True)
class Problem:
    """What is compiled: ``step(state, *normals, t)``, for states like ``state``.

    Attributes:
        step: a function of tensors alone: states (particles, *members, width), normals (particles, *members,
            components) for every entry of ``noise``, times their scale, and the time.
        noise: what a step draws.
        step_size: the time that passes in a step.
        parts: what the step reads, to tell when it is another one. Programs live as long as the first of them.
    """

    step: Callable[..., Tensor]
    noise: tuple[Draw, ...]
    step_size: float
    state: Tensor
    parts: tuple[Any, ...]

    @property
    def members(self) -> Size:
        """The dimensions between the first and the last: of what is one particle to the program, the parts that have
        noise of their own."""
        return self.state.shape[1:-1]

    @property
    def width(self) -> int:
        """How many numbers a particle's state has."""
        return math.prod(self.members) * self.state.shape[-1]

    def flat_step(self, state: Tensor, *arguments: Any) -> Tensor:
        """The step on states (particles, numbers), with normals of that form."""
        if not self.members:
            return self.step(state, *arguments)
        *normals, t = arguments
        apart = [tensor.reshape(-1, *self.members, tensor.shape[-1] // math.prod(self.members)) for tensor in normals]
        moved = self.step(state.reshape(-1, *self.members, self.state.shape[-1]), *apart, t)
        return moved.reshape(-1, self.width)

    @property
    def owner(self) -> Any:
        return self.parts[0]

    @property
    def one_by_one(self) -> bool:
        return self.state.numel() <= _FEW * self.width

    def key(self) -> tuple[Hashable, bool]:
        """What a program depends on, and whether that is all of it."""
        mark, complete = fingerprint(*self.parts)
        shape = (*self.members, self.state.shape[-1])
        form = (self.step_size, shape, self.noise, self.state.dtype, self.one_by_one)
        surroundings = (torch.get_default_dtype(), os.environ.get("CC"), os.environ.get("TORCHSRK_CACHE"))
        return (mark, form, surroundings), complete


def compiled_steps(problem: Problem) -> tuple[CompiledSteps, bool]:
    """The problem's steps, compiled unless they were before; and whether they are other ones than at the last call.

    Raises:
        CannotCompile: the message says why. It is remembered.
    """
    _check_state(problem.state)
    with _COMPILING_LOCK:
        kept = _COMPILED.setdefault(problem.owner, _Kept())
        key, _ = problem.key()
        found = kept.get(key)
        if isinstance(found, str):
            raise CannotCompile(found)
        if found is None or not found.is_current():
            key, found = _remembered(problem, kept)
        is_other, kept.last = key != kept.last, key
        return found, is_other


def forget(problem: Problem, reason: str | None = None) -> None:
    """Compile the problem anew at the next call, or never again if there is a reason."""
    with _COMPILING_LOCK:
        kept = _COMPILED.setdefault(problem.owner, _Kept())
        key, _ = problem.key()
        kept.pop(key, None)
        kept.last = None
        if reason is not None:
            kept[key] = reason


def _remembered(problem: Problem, kept: _Kept) -> tuple[Hashable, CompiledSteps]:
    """A program made now, and the key it is kept under."""
    start = time.perf_counter()
    key, seen = problem.key()
    try:
        operations = _warm_up(problem)
        key, seen = problem.key()
        steps = _compile(problem, seen, operations)
        if problem.key()[0] != key:
            raise CannotCompile("a step changes the SDE, or what its functions read")
    except CannotCompile as reason:
        kept[key] = str(reason)
        raise
    steps.seconds = time.perf_counter() - start
    kept[key] = steps
    while len(kept) > _MOST_KEPT:
        del kept[next(iter(kept))]  # the oldest
    return key, steps


def _warm_up(problem: Problem) -> int:
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
    normals = [x.new_zeros(*x.shape[:-1], draw.components) for draw in problem.noise]
    try:
        with torch.no_grad(), OperationCounter() as counter:
            problem.step(x, *normals, 0.0)
    except Exception as error:  # the user's own, as a rule, which the run will raise again
        raise CannotCompile(f"a step of {particles} particles fails: {reason_of(error)}") from error
    return counter.operations


def _check_state(state: Tensor) -> None:
    if state.device.type != "cpu":
        raise CannotCompile(f"compiled steps run on the CPU and the state is on {state.device}")


def compiling_pays(gradients: int, numbers: int) -> bool:
    """Whether so many gradients of states of so many numbers would take longer eagerly than compiling does."""
    return gradients * (_EAGER_CALL + _EAGER_NUMBER * numbers) > _COMPILING


def _compile(problem: Problem, seen: bool, operations: int) -> CompiledSteps:
    if native.library() is None:
        raise CannotCompile("the noise kernel was not built, for want of a C compiler")
    width, dtype, one_by_one = problem.width, problem.state.dtype, problem.one_by_one
    members = math.prod(problem.members)
    if members * sum(draw.components for draw in problem.noise) > _MOST_NORMALS:
        raise CannotCompile(f"a step draws more than {_MOST_NORMALS} normals a particle, for its Lévy areas")
    traced, codes = [], []
    normals = [members * draw.components for draw in problem.noise]
    for number, marker in enumerate(_MARKERS):
        graph: TracedStep | None = None
        if operations > _MANY_OPERATIONS:
            row = problem.state.reshape(-1, width)[0]
            try:
                graph = recorded.record_step(problem.flat_step, normals, row, recorded.MARKERS[number])
            except CannotCompile:
                if operations > _MOST_TRACED:
                    raise
                operations = 0  # torch's own way takes more steps, and more time
        if graph is None:
            graph = trace_step(problem.flat_step, normals, width, dtype, marker)
        marker = graph.particles
        sizes = (width, *(size for tensor in graph.constants for size in tensor.shape))
        if all(size % marker or not size for size in sizes):
            traced.append(graph)
            codes.append(_lowered(graph, one_by_one))
        if len(codes) == 2:
            break
    if len(codes) < 2 or not codes[0].is_like(codes[1]):
        raise CannotCompile("a step depends on the number of particles")
    library = build.load(_program(codes[0], problem), _SIMD)
    library.torchsrk_run.argtypes = (ctypes.POINTER(_Run), ctypes.c_int)
    library.torchsrk_run.restype = ctypes.c_int
    return CompiledSteps(codes[0], library, traced[0], problem, seen)


def _lowered(traced: TracedStep, one_by_one: bool) -> StepCode:
    try:
        return lower(traced, one_by_one)
    except CannotCompile:
        raise
    except Exception as error:  # a graph that this compiler was not made for must not cost the user the run
        raise CannotCompile(f"a step has an unexpected form ({type(error).__name__}: {reason_of(error)})") from error


def _program(code: StepCode, problem: Problem) -> str:
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
        "WORKSPACE": code.workspace,
        "NOISES": len(noise),
        "STREAMS": ", ".join(str(int(source.stream)) for source in noise),
        "COMPONENTS": ", ".join(str(source.components) for source in noise),
        **({"ONE_BY_ONE": 1} if problem.one_by_one else {}),
    }
    header = "".join(f"#define {name} {value}\n" for name, value in definitions.items())
    files = resources.files(__package__)
    names = ("vector.h", "exponential.h", "functions.h", *code.headers, "driver.c")
    *before, driver = (files.joinpath(name).read_text() for name in names)
    return "\n".join((header + "\n".join(before), code.source, driver))
