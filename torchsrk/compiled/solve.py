"""Solves compiled to C: all steps forward, every state kept, and all steps back, with gradients of parameters."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from .adjoint import SLOTS, AdjointCode, StepBack, lower_adjoint
from .fingerprint import number_of
from .literals import Literals, Reading, read_twice
from .lowering import lower
from .problem import Key, Problem
from .programs import Way, by_either_way, check_place, load, program_of, warm_up
from .steps import Checks, CompiledSteps
from .team import team
from .trace import CannotCompile

# Numbers of a state whose share of the steps is about what it takes a thread to come.
_NUMBERS_A_THREAD = 1 << 12
# Solves kept for an SDE. More are seldom asked for in turns, unless the SDE changes with every call.
_MOST_KEPT = 16


class _Solve(ctypes.Structure):
    """The struct Solve of solve.c."""

    _fields_ = (
        ("states", ctypes.c_void_p),
        ("slope", ctypes.c_void_p),
        ("slopes", ctypes.c_void_p),
        ("reports", ctypes.c_void_p),
        ("totals", ctypes.c_void_p),
        ("times", ctypes.c_void_p),
        ("particles", ctypes.c_int64),
        ("steps", ctypes.c_int64),
        ("seed", ctypes.c_uint64),
        ("first_step", ctypes.c_uint64),
        ("first_particle", ctypes.c_uint32),
        ("scales", ctypes.c_void_p),
        ("literals", ctypes.c_void_p),
        ("uniforms", ctypes.c_void_p),
        ("tables", ctypes.c_void_p),
        ("draw", ctypes.c_void_p),
    )


@dataclass
class CompiledSolve:
    """Steps of a problem forward and back.

    Attributes:
        forward, back: the programs; ``adjoint`` says what the second one emits.
        setting: the problem, but for what it steps.
        key: the tensors that are read.
        wanted: those whose gradients it gives.
        seconds: that it took to get here.
        checks: when it was last held against plain steps.
    """

    forward: CompiledSteps
    back: CompiledSteps
    adjoint: AdjointCode
    setting: Problem
    key: Key
    wanted: tuple[Tensor, ...]
    seconds: float = 0.0
    checks: Checks = field(default_factory=Checks)

    @property
    def seen(self) -> bool:
        """Nothing that the steps read is hidden from their fingerprint."""
        return self.key.complete

    def is_current(self) -> bool:
        """Whether the numbers that steps read out of tensors are still what they were."""
        return self.forward.is_current(self.key) and self.back.is_current(self.key)

    def advance(self, states: Tensor, **where: Any) -> None:
        """Fill states (steps + 1, particles, width) from the first of them on."""
        self._run(self.forward, states, **where)

    def step_back(self, states: Tensor, slope: Tensor, slopes: Tensor, reports: Tensor, **where: Any) -> Tensor:
        """Take the slope of the last state, (particles, width), to that of the first, and return sums over all steps.

        Args:
            slopes: (reported, particles, width), added to the slope where ``reports`` says: of each step, the number of
                the slope of the state after it, or -1.
            where: the times of the steps, the seed, and the numbers of the first step and of the first particle.
        """
        totals = torch.zeros(SLOTS, max(1, self.adjoint.totals), dtype=torch.float64)
        more: dict[str, Any] = {"slope": slope, "slopes": slopes, "reports": reports, "totals": totals}
        self._run(self.back, states, **where, **more)
        return totals

    def gradients(self, totals: Tensor, dtype: torch.dtype) -> list[Tensor]:
        """Of the wanted tensors, from what ``step_back`` returned."""
        return self.adjoint.gradients_of(self.back.traced, self.back.constants(self.key), totals, dtype)

    def read_back(self) -> list[Tensor]:
        """The tensors that steps back read."""
        return self.back.constants(self.key)

    def _run(
        self,
        program: CompiledSteps,
        states: Tensor,
        *,
        times: Tensor,
        seed: int,
        first_step: int,
        first_particle: int,
        **more: Tensor,
    ) -> None:
        bound = program.bind(self.setting, self.key, seed, first_particle, 1)
        shared = ("scales", "literals", "uniforms", "tables", "draw", "seed", "first_particle")
        run = _Solve(
            states=states.data_ptr(),
            times=times.data_ptr(),
            particles=states.shape[1],
            steps=len(times),
            first_step=first_step,
            **{name: tensor.data_ptr() for name, tensor in more.items()},
            **{name: getattr(bound.run, name) for name in shared},
        )
        threads = torch.get_num_threads()
        threads = threads if states.numel() >= _NUMBERS_A_THREAD * threads else 1  # all or none, as in driver.c
        if program.library.torchsrk_run(ctypes.addressof(run), threads, team()):
            raise MemoryError("no memory for the workspace of a compiled step")


class _Kept(dict[Hashable, "CompiledSolve | str"]):
    """The solves of an SDE, or the reasons why there is none; and which was asked for last."""

    last: Hashable = None


_COMPILED: WeakKeyDictionary[Any, _Kept] = WeakKeyDictionary()
_LOCK = threading.RLock()


def compiled_solve(problem: Problem) -> tuple[CompiledSolve, bool]:
    """The problem's solve, compiled unless it was before; and whether it is another one than at the last call.

    Raises:
        CannotCompile: the message says why. It is remembered.
    """
    with _LOCK:
        kept = _COMPILED.setdefault(problem.owner, _Kept())
        key = _name(problem, problem.key())
        found = kept.get(key)
        if isinstance(found, str):
            raise CannotCompile(found)
        if found is None or not found.is_current():
            key, found = _remembered(problem, kept)
        is_other, kept.last = key != kept.last, key
        return found, is_other


def forget_solve(problem: Problem, reason: str) -> None:
    """Never use the problem's compiled solve again."""
    with _LOCK:
        _COMPILED.setdefault(problem.owner, _Kept())[_name(problem, problem.key())] = reason


def _name(problem: Problem, key: Key) -> Hashable:
    """What a solve is kept under: it is for the tensors that it was traced with, and for one step size."""
    return key.form, problem.step_size, tuple(map(number_of, key.tensors))


def _remembered(problem: Problem, kept: _Kept) -> tuple[Hashable, CompiledSolve]:
    start = time.perf_counter()
    key = problem.key()
    try:
        check_place(problem)
        if problem.state.ndim != 2:
            raise CannotCompile(f"the state has shape {tuple(problem.state.shape)}, and not (particles, dim)")
        work = warm_up(problem)
        key = problem.key()
        solve = by_either_way(work, partial(_compiled, problem, key))
        if problem.key().form != key.form:
            raise CannotCompile("a step changes the SDE, or what its functions read")
    except CannotCompile as reason:
        kept[_name(problem, key)] = str(reason)
        raise
    solve.seconds = time.perf_counter() - start
    kept[_name(problem, key)] = solve
    while len(kept) > _MOST_KEPT:
        del kept[next(iter(kept))]  # the oldest
    return _name(problem, key), solve


def _compiled(problem: Problem, key: Key, is_run: bool, most: int) -> CompiledSolve:
    width = problem.width
    way = Way(problem.step, width, partial(lower, one_by_one=False), is_run, most)
    read = read_twice(partial(way.read, problem), problem.step_size)
    wanted = _needing_gradients(read.traced.constants)
    back_step = StepBack(problem.step, width, wanted)
    with ThreadPoolExecutor(1) as pool:  # the C compiler is at work while the step back is traced
        library = pool.submit(load, _program(read, problem))
        way_back = Way(back_step, 2 * width, lower_adjoint, is_run, most)
        read_back = read_twice(partial(way_back.read, problem), problem.step_size)
        back = _steps(read_back, load(_program(read_back, problem, **read_back.made.definitions())), problem, key)
        forward = _steps(read, library.result(), problem, key)
    reached = tuple(wanted[k] for k in back_step.reached)
    # Nothing that is kept holds the SDE, which it is kept by.
    setting = replace(problem, step=_no_step, state=problem.state[:1].detach().clone(), parts=())
    return CompiledSolve(forward, back, read_back.made, setting, key, reached)


def _program(read: Reading, problem: Problem, **definitions: Any) -> str:
    return program_of(read.code, problem, "solve.c", **{"GROUPS": 1, **definitions})


def _steps(read: Reading, library: ctypes.CDLL, problem: Problem, key: Key) -> CompiledSteps:
    return CompiledSteps(read.code, library, read.traced, Literals.of_one_step_size(read), problem, key)


def _no_step(*arguments: Any) -> Tensor:
    raise AssertionError("a setting is not stepped")


def _needing_gradients(constants: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Those of the tensors, each once. Of one that is made from another, too, only a total derivative is to be had."""
    wanted = tuple({id(value): value for value in constants if value.requires_grad}.values())
    known = {id(value) if value.is_leaf else value.grad_fn for value in wanted}
    stack: list[Any] = [edge[0] for value in wanted if value.grad_fn for edge in value.grad_fn.next_functions]
    seen: set[Any] = {None}
    while len(wanted) > 1 and stack:
        node = stack.pop()
        if node in seen:
            continue
        if node in known or id(getattr(node, "variable", None)) in known:
            raise CannotCompile("a step reads a tensor and one that is made from it, and both need a gradient")
        seen.add(node)
        stack += [edge[0] for edge in node.next_functions]
    return wanted
