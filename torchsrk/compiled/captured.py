"""Steps captured once as a CUDA graph and replayed: for what is no single kernel, without a launch from Python for
every operation of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from .check import EagerSteps, check_whole
from .problem import Problem
from .trace import CannotCompile, reason_of
from .with_torch import normals_of

_MOST_GRAPHS = 4  # lengths that are captured as such; others are made of single steps
_LONGEST_SUM = (
    1 << 12
)  # that is allowed for: on a GPU sums are added up in another order for other numbers of particles

Replay = Callable[[], None]


class CapturedSteps:
    """The steps of a run, all particles at once, in buffers that never move.

    State and step number are tensors on the device. So what is captured reads nothing back, and goes on from whatever
    they hold when it is replayed.

    Args:
        capture: makes of a function what runs the same again; by default a CUDA graph.
    """

    def __init__(
        self, problem: Problem, seed: int, first_particle: int, capture: Callable[[Replay], Replay] | None = None
    ) -> None:
        self._problem, self._seed, self._first_particle = problem, seed, first_particle
        self._state = problem.state.detach().clone(memory_format=torch.contiguous_format)
        self._step = torch.zeros((), dtype=torch.int64, device=self._state.device)
        self._capture = partial(captured, device=self._state.device) if capture is None else capture
        self._replays: dict[int, Replay] = {}

    def advance(self, source: Tensor, out: Tensor, first: int, last: int) -> None:
        """Write to ``out`` the states ``source`` of step ``first``, taken to step ``last``."""
        replays = self._lengths(last - first)  # captured before the buffers are filled: to capture is to run
        self._state.copy_(source)
        self._step.fill_(first)
        for replay in replays:
            replay()
        out.copy_(self._state)

    def _lengths(self, count: int) -> list[Replay]:
        """What makes so many steps."""
        if count not in self._replays and len(self._replays) >= _MOST_GRAPHS:
            return self._lengths(1) * count
        if count not in self._replays:
            if 1 not in self._replays:  # is always there, for lengths that come later
                self._replays[1] = self._capture(partial(self._steps, 1))
            if count > 1:
                self._replays[count] = self._capture(partial(self._steps, count))
        return [self._replays[count]]

    def _steps(self, count: int) -> None:
        problem = self._problem
        with torch.no_grad():
            for _ in range(count):
                normals = normals_of(problem, self._seed, self._first_particle, self._step)
                t = self._step.to(torch.float64) * problem.step_size
                self._state.copy_(problem.step(problem.step_size, self._state, *normals, t))
                self._step += 1


def captured(body: Replay, device: torch.device) -> Replay:
    """A function as a CUDA graph: run once on a stream of its own, as graphs ask for, and then captured."""
    with torch.cuda.device(device):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            body()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            body()
    return graph.replay


def captured_steps(
    problem: Problem,
    eager: EagerSteps,
    *,
    seed: int,
    first_particle: int,
    first_step: int,
    capture: Callable[[Replay], Replay] | None = None,
) -> CapturedSteps:
    """The problem's steps captured, held against an eager one before a run takes them.

    Raises:
        CannotCompile: they can't be captured, or what is replayed differs.
    """
    if capture is None and problem.state.device.type != "cuda":
        raise CannotCompile(f"CUDA graphs are of CUDA devices, and the state is on {problem.state.device}")
    steps, out = CapturedSteps(problem, seed, first_particle, capture), torch.empty_like(problem.state)
    try:
        steps.advance(problem.state, out, first_step, first_step + 1)
    except Exception as error:  # as of a step that waits for the device
        raise CannotCompile(f"a step can't be captured in a CUDA graph: {reason_of(error)}") from error
    difference = check_whole(eager, out, problem.state, first_step, _LONGEST_SUM)
    if difference is not None:
        raise CannotCompile(f"the step that was captured differs from the eager one: {difference}")
    return steps
