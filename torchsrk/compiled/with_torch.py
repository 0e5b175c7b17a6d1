"""Steps compiled by torch.compile: for other devices than the CPU, and for what has no C form. Noise is the same."""

from __future__ import annotations

import math
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import partial
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from ..brownian import fill_normal
from ..brownian.draws import Draw
from .check import Difference, EagerSteps, check_whole
from .fingerprint import number_of
from .problem import Problem
from .trace import CannotCompile, reason_of

_LONGEST_SUM = 1 << 12  # that is allowed for: what torch's compiler adds up, and in which order, is not known

# The least recently used first. torch's own guards see to what changes within an SDE, too.
_COMPILED: OrderedDict[Hashable, Callable[..., Tensor]] = OrderedDict()
_MOST_KEPT = 16


class TorchSteps:
    """The steps of a run, all particles at once, each step one call of what torch.compile made of it."""

    def __init__(self, problem: Problem, seed: int, first_particle: int) -> None:
        self._problem, self._seed, self._first_particle = problem, seed, first_particle
        self._step = _compiled(problem)

    def advance(self, source: Tensor, out: Tensor, first: int, last: int) -> None:
        """Write to ``out`` the states ``source`` of step ``first``, taken to step ``last``."""
        x, problem = source, self._problem
        for step in range(first, last):
            normals = normals_of(problem, self._seed, self._first_particle, step)
            t = torch.full((), step * problem.step_size, dtype=torch.float64, device=x.device)
            x = self._step(x, *normals, t)
        out.copy_(x)


def normals_of(problem: Problem, seed: int, first_particle: int, step: int | Tensor) -> list[Tensor]:
    """What a step reads of each of its draws, (particles, *members, substeps·components), times their scale.

    The step may be a tensor on the state's device.
    """
    state, substeps = problem.state, problem.substeps

    def normals(draw: Draw) -> Tensor:
        shape = (substeps, math.prod(state.shape[:-1]), draw.components)
        drawn = torch.empty(shape, dtype=state.dtype, device=state.device)
        where: dict[str, Any] = {"step": step * substeps, "first_particle": first_particle}
        fill_normal(drawn, seed=seed, stream=draw.stream, scale=draw.scale, **where)
        return drawn.movedim(0, -2).reshape(*state.shape[:-1], substeps * draw.components)

    return [normals(draw) for draw in problem.noise]


def torch_steps(problem: Problem, eager: EagerSteps, *, seed: int, first_particle: int, first_step: int) -> TorchSteps:
    """The problem's steps by torch.compile, held against an eager one before a run takes them.

    Raises:
        CannotCompile: torch could not, or what it made differs.
    """
    steps, out = TorchSteps(problem, seed, first_particle), torch.empty_like(problem.state)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch's own workings
            steps.advance(problem.state, out, first_step, first_step + 1)
    except Exception as error:  # of torch's compiler, or of the step: eagerly the run will raise it again
        raise CannotCompile(f"torch.compile failed: {reason_of(error)}") from error
    difference: Difference | None = check_whole(eager, out, problem.state, first_step, _LONGEST_SUM)
    if difference is not None:
        raise CannotCompile(f"the step that torch.compile made differs from the eager one: {difference}")
    return steps


def _compiled(problem: Problem) -> Callable[..., Tensor]:
    state = problem.state
    key = (number_of(problem.owner), problem.key().form, problem.step_size, state.shape, state.device)
    if key not in _COMPILED:
        step = _own(partial(problem.step, problem.step_size))
        _COMPILED[key] = torch.compile(step, fullgraph=True, dynamic=False)
    _COMPILED.move_to_end(key)
    while len(_COMPILED) > _MOST_KEPT:
        _COMPILED.popitem(last=False)
    return _COMPILED[key]


def _own(step: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The step as a function with code of its own: torch counts what it has compiled by code, and stops after a few."""

    def advance(state: Tensor, *arguments: Tensor) -> Tensor:
        with torch.no_grad():
            return step(state, *arguments)

    return FunctionType(advance.__code__.replace(), advance.__globals__, "advance", None, advance.__closure__)
