"""Solves compiled to C: all steps forward, every state kept, and all steps back, with gradients of parameters."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ..brownian import native
from .adjoint import SLOTS, AdjointCode, StepBack, lower_adjoint
from .lowering import lower
from .steps import Checks, CompiledSteps, Problem, load, program_of, traced_and_lowered, warm_up
from .trace import CannotCompile

# Starting a second thread costs about as long as this many numbers of a state and their share of the steps.
_NUMBERS_PER_THREAD = 1 << 13
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
        wanted: the tensors whose gradients it gives.
        seconds: that it took to get here.
        checks: when it was last held against plain steps.
        seen: nothing that the steps read is hidden from their fingerprint.
    """

    forward: CompiledSteps
    back: CompiledSteps
    adjoint: AdjointCode
    wanted: tuple[Tensor, ...]
    seen: bool
    seconds: float = 0.0
    checks: Checks = field(default_factory=Checks)

    def is_current(self) -> bool:
        """Whether the numbers that steps read out of tensors are still what they were."""
        return self.forward.is_current() and self.back.is_current()

    def advance(self, states: Tensor, times: Tensor, seed: int, first_step: int) -> None:
        """Fill states (steps + 1, particles, width) from the first of them on."""
        self._run(self.forward, states, times, seed, first_step)

    def step_back(
        self, states: Tensor, slope: Tensor, slopes: Tensor, reports: Tensor, times: Tensor, seed: int, first_step: int
    ) -> Tensor:
        """Take the slope of the last state, (particles, width), to that of the first, and return sums over all steps.

        Args:
            slopes: (reported, particles, width), added to the slope where ``reports`` says: of each step, the number of
                the slope of the state after it, or -1.
        """
        totals = torch.zeros(SLOTS, max(1, self.adjoint.totals), dtype=torch.float64)
        more = {"slope": slope, "slopes": slopes, "reports": reports, "totals": totals}
        self._run(self.back, states, times, seed, first_step, **more)
        return totals

    def gradients(self, totals: Tensor, dtype: torch.dtype) -> list[Tensor]:
        """Of the wanted tensors, from what ``step_back`` returned."""
        return self.adjoint.gradients_of(self.back.traced, totals, dtype)

    def _run(
        self, program: CompiledSteps, states: Tensor, times: Tensor, seed: int, first_step: int, **more: Tensor
    ) -> None:
        bound = program.bind(states, seed, 0, 1)
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
        threads = min(torch.get_num_threads(), 1 + states.numel() // _NUMBERS_PER_THREAD)
        if program.library.torchsrk_run(ctypes.addressof(run), threads):
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
        key = _key(problem)
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
        _COMPILED.setdefault(problem.owner, _Kept())[_key(problem)] = reason


def _key(problem: Problem) -> Hashable:
    return problem.key()[0]


def _remembered(problem: Problem, kept: _Kept) -> tuple[Hashable, CompiledSolve]:
    start = time.perf_counter()
    key, seen = problem.key()
    try:
        _check(problem)
        warm_up(problem)
        key, seen = problem.key()
        solve = _compile(problem, seen)
        if _key(problem) != key:
            raise CannotCompile("a step changes the SDE, or what its functions read")
    except CannotCompile as reason:
        kept[key] = str(reason)
        raise
    solve.seconds = time.perf_counter() - start
    kept[key] = solve
    while len(kept) > _MOST_KEPT:
        del kept[next(iter(kept))]  # the oldest
    return key, solve


def _check(problem: Problem) -> None:
    if problem.state.device.type != "cpu":
        raise CannotCompile(f"compiled steps run on the CPU and the state is on {problem.state.device}")
    if problem.state.ndim != 2:
        raise CannotCompile(f"the state has shape {tuple(problem.state.shape)}, and not (particles, dim)")
    if native.library() is None:
        raise CannotCompile("the noise kernel was not built, for want of a C compiler")


def _compile(problem: Problem, seen: bool) -> CompiledSolve:
    width = problem.width
    traced, code = traced_and_lowered(problem, problem.step, width, lambda graph: lower(graph, one_by_one=False))
    wanted = _needing_gradients(traced.constants)
    back_step = StepBack(problem.step, width, wanted)
    with ThreadPoolExecutor(1) as pool:  # the C compiler is at work while the step back is traced
        library = pool.submit(load, program_of(code, problem, "solve.c", side_by_side=True))
        traced_back, adjoint = traced_and_lowered(problem, back_step, 2 * width, lower_adjoint)
        program = program_of(adjoint.code, problem, "solve.c", side_by_side=True, **adjoint.definitions())
        back = CompiledSteps(adjoint.code, load(program), traced_back, problem, seen)
        forward = CompiledSteps(code, library.result(), traced, problem, seen)
    return CompiledSolve(forward, back, adjoint, tuple(wanted[k] for k in back_step.reached), seen)


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
