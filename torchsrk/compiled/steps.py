"""Compiled steps: a program, the tensors that it reads, and runs of it."""

from __future__ import annotations

import ctypes
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, fx

from ..brownian import native
from .evaluation import Evaluation
from .literals import Literals
from .lowering import StepCode
from .moving import Moving, at_most, pointers
from .problem import Key, Problem
from .team import team
from .trace import CannotCompile, TracedStep
from .uneven import Rows

_MOST_ROWS = 1 << 12  # of numbers of steps that have their own, at a time

# Whole numbers that a REAL holds exactly.
_EXACT = {torch.float32: 2**24, torch.float64: 2**53}
_REALS = {torch.float32: ctypes.c_float, torch.float64: ctypes.c_double}


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
        ("times", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("literals", ctypes.c_void_p),
        ("uniforms", ctypes.c_void_p),
        ("tables", ctypes.c_void_p),
        ("scales_apart", ctypes.c_int64),
        ("literals_apart", ctypes.c_int64),
        ("uniforms_apart", ctypes.c_int64),
        ("tables_apart", ctypes.c_int64),
        ("draw", ctypes.c_void_p),
    )


class Program(ABC):
    """Steps as one function.

    The numbers are those of the eager step up to rounding, and the same bits whatever the number of threads, the way a
    run is cut into calls or, from five particles on, the batch.

    Attributes:
        seconds: that it took to get here.
        seen: nothing that the step reads is hidden from its fingerprint.
        shared: it reads no tensor but those of its key, and so serves all problems of that form.
        checks: when it was last held against eager steps.
        is_stored: it is on disk, or can't be there.
        stored_as: the name that it was found there by, or None if it was traced in this process.
    """

    is_stored = False
    stored_as: str | None = None

    def __init__(self, code: Any, traced: TracedStep, literals: Literals, problem: Problem, key: Key) -> None:
        self.code, self.literals = code, literals
        self._width, self._members = problem.width, math.prod(problem.members)
        self.dtype = problem.state.dtype
        self._constants = [_Source.of(tensor, key) for tensor in traced.constants[traced.places :]]
        self._reads = [(_Source.of(tensor, key), then) for tensor, then in traced.reads]
        self.traced = replace(traced, constants=(), reads=())
        self.shared = all(source.place is not None for source in (*self._constants, *(s for s, _ in self._reads)))
        self.seen, self.seconds, self.checks = key.complete, 0.0, Checks()

    @property
    def longest_sum(self) -> int:
        """The most terms that any sum of the step adds up."""
        return int(self.code.longest_sum)

    def constants(self, key: Key) -> list[Tensor]:
        """The tensors that it reads."""
        return [source.tensor(key) for source in self._constants]

    def reads(self, key: Key) -> list[tuple[Tensor, Tensor]]:
        """The tensors that the step read numbers out of, each with what it was then."""
        return [(source.tensor(key), then) for source, then in self._reads]

    def is_current(self, key: Key) -> bool:
        """Whether the numbers that the step read out of tensors are still what they were."""
        return all(torch.equal(_bits(tensor), _bits(then)) for tensor, then in self.reads(key))

    @property
    def source(self) -> str:
        """The step as it is compiled."""
        return str(self.code.source)

    @property
    def graph(self) -> fx.Graph:
        """The operations that it was made of."""
        return self.traced.module.graph

    @property
    @abstractmethod
    def path(self) -> str:
        """Where all of the source is kept."""

    @property
    def any_step_size(self) -> bool:
        """Whether it serves other step sizes than the one it was traced with."""
        return self.literals.known

    def serves(self, step_size: float) -> bool:
        """Whether its numbers are known for a step size."""
        return not self.any_step_size or self.literals.at(step_size) is not None

    @abstractmethod
    def bind(self, problem: Problem, key: Key, seed: int, first_particle: int, threads: int) -> Bound:
        """Ready to run: what does not depend on the state is computed here, from the parameters as they are now."""


class Bound(Protocol):
    """Compiled steps with their parameters and seed."""

    def advance(self, source: Tensor, out: Tensor, first: int, last: int, row: int = 0) -> None:
        """Write to ``out`` the contiguous states ``source`` of step ``first``, taken to step ``last``.

        ``row`` is the number of the first of them in the batch.
        """

    def advance_rows(self, x: Tensor, row: int, *, first: int, last: int) -> Tensor:
        """The same for rows from ``row`` on, as a new tensor."""


class CompiledSteps(Program):
    """Steps as one C function."""

    def __init__(
        self,
        code: StepCode,
        library: ctypes.CDLL,
        traced: TracedStep,
        literals: Literals,
        problem: Problem,
        key: Key,
    ) -> None:
        super().__init__(code, traced, literals, problem, key)
        self.library = library
        self._nodes = (*code.uniforms, *code.tables, *code.checks)
        self._evaluation = Evaluation(self.traced, self._nodes)

    @property
    def path(self) -> str:
        return str(Path(self.library._name).with_suffix(".c"))

    def bind(self, problem: Problem, key: Key, seed: int, first_particle: int, threads: int) -> BoundSteps:
        like = problem.state
        literals = _numbers(self.literals.at(problem.step_size) or [0.0], _REALS[like.dtype])
        constants = [*problem.first_places(), *self.constants(key)]
        values = self._evaluation(constants)
        if self.stored_as is not None:
            self._check_forms(values)
        uniforms = [_as_numbers(value, like.dtype) for value in values[: len(self.code.uniforms)]]
        places = values[len(self.code.uniforms) :][: len(self.code.tables)]
        tables = [v.to(torch.int64).contiguous() for v in places]
        self._check_places(tables)
        scales = _numbers([source.scale for source in problem.noise], ctypes.c_double)
        uniform_pointers, table_pointers = _pointers(uniforms), _pointers(tables)
        run = _Run(
            seed=seed,
            first_particle=first_particle,
            step_size=problem.step_size,
            scales=ctypes.addressof(scales),
            literals=ctypes.addressof(literals),
            uniforms=ctypes.addressof(uniform_pointers),
            tables=ctypes.addressof(table_pointers),
            draw=_draw(),
        )
        alive = (literals, uniforms, uniform_pointers, tables, table_pointers, scales)
        bound = BoundSteps(self.library, run, self._width, self._members, threads, alive)
        if problem.places:
            moving = Moving(self.traced, self._nodes, problem.places, self.constants(key))
            bound.ready.append(partial(self._ready, moving, run, uniforms, tables))
            bound.spans = moving.spans
        if problem.uneven is not None:
            bound.ready.append(partial(Rows(self.literals, problem, problem.uneven).point, run))
            bound.spans = bound.spans if problem.places else at_most(_MOST_ROWS)
        return bound

    def _ready(
        self, moving: Moving, run: _Run, uniforms: Sequence[Tensor], tables: Sequence[Tensor], first: int, last: int
    ) -> Any:
        """Point a run to what its steps from one to another read, which is returned to be kept until then."""
        made, code = moving.made(first, last), self.code
        dtypes = {**dict.fromkeys(code.uniforms, self.dtype), **dict.fromkeys(code.tables, torch.int64)}
        made = {node: made[node].to(dtype).contiguous() for node, dtype in dtypes.items() if node in made}
        try:
            self._check_places([made.get(node, fixed) for node, fixed in zip(code.tables, tables, strict=True)])
        except CannotCompile as error:
            raise IndexError(f"steps {first} to {last}: {error}") from error
        found = [pointers(*of, made, last - first) for of in ((code.uniforms, uniforms), (code.tables, tables))]
        run.uniforms, run.tables = (of.data_ptr() for of in found)
        run.uniforms_apart, run.tables_apart = len(uniforms), len(tables)
        return found, made

    def _check_forms(self, values: Sequence[Any]) -> None:
        """What C is given has the form that it was compiled for: of a program from disk the file says which."""
        for node, value in zip(self._nodes, values, strict=True):
            form = node.meta.get("val")
            if isinstance(form, Tensor) and (not isinstance(value, Tensor) or value.shape != form.shape):
                raise CannotCompile("a program from disk is for tensors of other forms")

    def _check_places(self, tables: Sequence[Tensor]) -> None:
        """No place that reaches C is out of bounds. Eagerly torch itself says which one is."""
        for number, size, from_the_end in self.code.bounds:
            places = tables[number]
            if places.numel() and not -size * from_the_end <= int(places.min()) <= int(places.max()) < size:
                raise CannotCompile(f"a step indexes out of the bounds of a dimension of size {size}")
        if any(table.numel() and int(table.abs().max()) > _EXACT[self.dtype] for table in tables):
            raise CannotCompile(f"a step in {self.dtype} reads whole numbers beyond {_EXACT[self.dtype]}")


@dataclass(frozen=True)
class _Source:
    """Where a tensor that a step reads is found: in a place of the key, or by itself."""

    place: int | None
    itself: Tensor | None

    @staticmethod
    def of(tensor: Tensor, key: Key) -> _Source:
        place = next((place for place, known in enumerate(key.tensors) if known is tensor), None)
        return _Source(place, tensor if place is None else None)

    def tensor(self, key: Key) -> Tensor:
        if self.place is not None:
            return key.tensors[self.place]
        assert self.itself is not None
        return self.itself


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

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Within, one is made."""
        start = time.perf_counter()
        yield
        self.at = time.perf_counter()
        self.seconds = self.at - start


def _bits(x: Tensor) -> Tensor:
    """A tensor that equals another's where they are the same to the bit, NaN included."""
    return x.detach().contiguous().view(torch.uint8) if x.ndim else x.detach().reshape(1).view(torch.uint8)


@cache
def _draw() -> int | None:
    """Where the noise kernel's function is."""
    kernel = native.library()
    assert kernel is not None
    return ctypes.cast(kernel.torchsrk_fill_tile, ctypes.c_void_p).value


def _numbers(values: Sequence[float], kind: Any) -> Any:
    """Numbers for C to read, rounded to its kind of them."""
    return (kind * max(1, len(values)))(*values)


def _as_numbers(value: Any, dtype: torch.dtype) -> Tensor:
    if isinstance(value, Tensor) and value.dtype == dtype and value.is_contiguous():
        return value
    return torch.as_tensor(value).to(dtype).contiguous()


def _pointers(tensors: Sequence[Tensor]) -> Any:
    return (ctypes.c_void_p * max(1, len(tensors)))(*(tensor.data_ptr() for tensor in tensors))


class BoundSteps:
    """Compiled steps with their parameters and seed; ``alive`` holds what ``run`` points to.

    Attributes:
        spans: steps from one to another as those that are made one after another.
        ready: called with a span before it is made; what they return is kept until then.
    """

    def __init__(self, library: ctypes.CDLL, run: _Run, width: int, members: int, threads: int, alive: Any) -> None:
        self._library, self.run, self._threads, self._alive = library, run, threads, alive
        self._width, self._members = width, members
        self._first_particle = int(run.first_particle)
        self.spans: Callable[[int, int], Iterator[tuple[int, int]]] = _all_at_once
        self.ready: list[Callable[[int, int], Any]] = []

    def advance(self, source: Tensor, out: Tensor, first: int, last: int, row: int = 0) -> None:
        """Write to ``out`` the contiguous states ``source`` of step ``first``, taken to step ``last``.

        ``row`` is the number of the first of them in the batch.
        """
        run = self.run
        run.first_particle = self._first_particle + row * self._members
        run.source, run.out, run.particles = source.data_ptr(), out.data_ptr(), source.numel() // self._width
        for start, stop in self.spans(first, last):
            run.steps, run.first_step = stop - start, start
            alive = [make(start, stop) for make in self.ready]
            if self._library.torchsrk_run(ctypes.addressof(run), self._threads, team()):
                raise MemoryError("no memory for the workspace of a compiled step")
            del alive
            run.source = run.out

    def advance_rows(self, x: Tensor, row: int, *, first: int, last: int) -> Tensor:
        """The same for rows from ``row`` on, as a new tensor."""
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        self.advance(x.contiguous(), out, first, last, row)
        return out


def _all_at_once(first: int, last: int) -> Iterator[tuple[int, int]]:
    yield first, last
