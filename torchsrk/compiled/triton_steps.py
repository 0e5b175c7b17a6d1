"""Steps as one Triton kernel, for CUDA devices."""

from __future__ import annotations

import hashlib
import importlib.util
import math
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..brownian import triton_fill
from ..derived import Ledger
from .build import CannotBuild, cache_folder
from .evaluation import evaluate
from .literals import Literals, Reading, read_with_literals
from .problem import Key, Problem
from .steps import Program
from .trace import CannotCompile, TracedStep, reason_of, trace_step
from .triton_code import TritonCode, lower_to_triton

# Counts of particles in a trace: each has numbers of its own there, so a few are enough to tell when they mix. One is
# taken that is the size of no other dimension, as far as can be seen.
_TRACED = (5, 7, 11, 13, 17)
_MOST_OPERATIONS, _MOST_NORMALS = 1_000, 1 << 10
_BLOCK = 128  # particles of a program: as many as it has threads
_MOST_INTERPRETED = 1 << 15  # a block is an array there, and a program costs the same for any size of it


def check_place(state: Tensor) -> None:
    """Raise unless Triton's kernels run where a state is."""
    if importlib.util.find_spec("triton") is None:
        raise CannotCompile("Triton is not installed: pip install torchsrk[triton]")
    if state.device.type != "cuda" and not (state.device.type == "cpu" and triton_fill.is_interpreted()):
        raise CannotCompile(
            f"Triton's kernels run on CUDA devices and the state is on {state.device}; TRITON_INTERPRET=1 in the "
            "environment has them interpreted there, slowly"
        )
    if state.device.type == "cuda" and not triton_fill.serves(state.device):
        raise CannotCompile("Triton does not give this library's noise here")


def compile(problem: Problem, key: Key, operations: int) -> Program:
    """The problem's program.

    Raises:
        CannotCompile: the message says why.
    """
    if operations > _MOST_OPERATIONS:
        raise CannotCompile(f"a step makes {operations} operations, more than the {_MOST_OPERATIONS} of one kernel")
    first, literals = read_with_literals(partial(_read, problem), problem.step_size)
    code = first.made
    reads = (*first.traced.reads, *((tensor, tensor.detach().clone()) for tensor in code.places))
    return TritonSteps(code, replace(first.traced, reads=reads), literals, problem, key)


def _read(problem: Problem, step_size: float, after: Reading | None = None) -> Reading:
    """The step with a few particles; with another number of them than was taken before, if that is given."""
    members = math.prod(problem.members)
    normals = [problem.substeps * members * draw.components for draw in problem.noise]
    if sum(normals) > _MOST_NORMALS:
        raise CannotCompile(
            f"a step draws {sum(normals)} normals a particle, more than the {_MOST_NORMALS} of a kernel"
        )
    state, sizes = problem.state, {problem.width, *problem.state.shape[1:], *normals}
    for number in range(0 if after is None else after.number + 1, len(_TRACED)):
        ledger = Ledger()
        step = partial(problem.flat_step, ledger.step_size(step_size))
        if _TRACED[number] in sizes:
            continue
        traced = trace_step(step, normals, problem.width, state.dtype, _TRACED[number], device=state.device)
        if not any(_TRACED[number] in tensor.shape for tensor in traced.constants):
            return Reading(traced, _lowered(traced, problem, members), ledger, step_size, number)
    raise CannotCompile("a step has dimensions of too many sizes")


def _lowered(traced: TracedStep, problem: Problem, members: int) -> TritonCode:
    try:
        return lower_to_triton(traced, problem.noise, problem.substeps, members)
    except CannotCompile:
        raise
    except Exception as error:  # a graph that this compiler was not made for must not cost the user the run
        reason = f"{type(error).__name__}: {reason_of(error)}"
        raise CannotCompile(f"a step has an unexpected form ({reason})") from error


class TritonSteps(Program):
    """Steps as one kernel."""

    def __init__(self, code: TritonCode, traced: TracedStep, literals: Literals, problem: Problem, key: Key) -> None:
        super().__init__(code, traced, literals, problem, key)
        self._module = _loaded(code.source)

    @property
    def path(self) -> str:
        return str(self._module.__file__)

    def bind(self, problem: Problem, key: Key, seed: int, first_particle: int, threads: int) -> BoundKernel:
        like = problem.state
        values = evaluate(self.traced, (*self.code.uniforms, *self.code.checks), self.constants(key))
        uniforms = [torch.as_tensor(value) for value in values[: len(self.code.uniforms)]]
        numbers = [problem.step_size, *(source.scale for source in problem.noise)]
        tensors = (
            torch.tensor(self.literals.at(problem.step_size) or [0.0], dtype=torch.float64).to(like.dtype),
            torch.cat([value.to(like.device, like.dtype).flatten() for value in uniforms] or [like.new_zeros(1)]),
            torch.tensor(numbers, dtype=torch.float64),
        )
        arguments = tuple(tensor.to(like.device) for tensor in tensors)
        return BoundKernel(self._module.run, arguments, seed, first_particle, self._width, self._members)


@dataclass(frozen=True)
class BoundKernel:
    """A kernel with the tensors that it reads, and the seed."""

    kernel: Any
    arguments: Sequence[Tensor]
    seed: int
    first_particle: int
    width: int
    members: int

    def advance(self, source: Tensor, out: Tensor, first: int, last: int, row: int = 0) -> None:
        """Write to ``out`` the contiguous states ``source`` of step ``first``, taken to step ``last``."""
        from ..brownian.triton_philox import LAUNCH

        particles, block = source.numel() // self.width, _BLOCK
        if source.device.type == "cpu":
            block = min(_MOST_INTERPRETED, 1 << max(0, particles - 1).bit_length())
        where = (
            triton_fill.signed(self.seed),
            self.first_particle + row * self.members,
            first,
            last - first,
            particles,
        )
        # Of the interpreter: as on a GPU, what is no number is none. And Triton launches on the device of the moment.
        with np.errstate(all="ignore"), torch.cuda.device_of(source):
            grid = (-(-particles // block),)
            self.kernel[grid](source, out, *self.arguments, *where, BLOCK=block, **LAUNCH)

    def advance_rows(self, x: Tensor, row: int, *, first: int, last: int) -> Tensor:
        """The same for rows from ``row`` on, as a new tensor."""
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        self.advance(x.contiguous(), out, first, last, row)
        return out


@cache
def _loaded(source: str) -> ModuleType:
    """A kernel's module: Triton reads the text of a kernel from its file, so it is kept beside compiled C."""
    name = f"torchsrk_{hashlib.sha256(source.encode()).hexdigest()[:32]}"
    path = cache_folder() / f"{name}.py"
    try:
        if not _holds(path, source):
            with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
                file.write(source)
            os.replace(file.name, path)
    except OSError as error:
        raise CannotBuild(f"the compiled step can't be kept in {path.parent} ({error}): set TORCHSRK_CACHE") from error
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _holds(path: Path, source: str) -> bool:
    try:
        return path.read_text(encoding="utf-8") == source
    except OSError:
        return False
