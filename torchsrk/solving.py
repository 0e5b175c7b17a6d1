"""A solve by compiled steps, with gradients; and what must hold before its steps are taken."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .brownian import Stream, fill_normal
from .compiled import CannotCompile, Problem
from .transforms import is_transformed

if TYPE_CHECKING:
    from .compiled.solve import CompiledSolve

Steps = Callable[[Tensor, int, int], tuple[Tensor, ...]]  # the last of what it gives is the state after these steps
Locate = Callable[[Tensor, Tensor, int, int], Exception]

_CHECKED_STEPS, _ULPS = 3, 1 << 16
_SHARE = 0.01  # of the time since the last check that another one may take, where nothing is known to have changed
# A gradient that cancels is known to the rounding of its terms: those of the others tell how large they are.
_OF_LARGEST = 1e-3


@dataclass(frozen=True)
class Solve:
    """Compiled steps at given times.

    Attributes:
        times: of each step, float64.
        reports: of each step, the number of the reported state that it ends at, or -1.
    """

    steps: CompiledSolve
    times: Tensor
    reports: Tensor
    seed: int
    first_particle: int

    @classmethod
    def checked(
        cls,
        problem: Problem,
        plan: Sequence[tuple[float, float, bool]],
        advance: Steps,
        *,
        seed: int,
        first_particle: int,
    ) -> Solve:
        """The problem's solve by steps (t, dt, whether it is reported) that were held against those of ``advance``.

        Steps that are new, that others were used before, or whose fingerprint can't see all they read are checked at
        every call; any others as often as leaves the checks a small share of the time.

        Raises:
            CannotCompile: the message says why.
        """
        from .compiled.solve import compiled_solve, forget_solve  # all of the compiler, loaded when it is needed

        if is_transformed() or forward_ad._current_level >= 0:
            raise CannotCompile("torch.func and forward derivatives can't pass through it")
        steps, is_other = compiled_solve(problem)
        times = torch.tensor([t for t, _, _ in plan], dtype=torch.float64)
        ends = torch.tensor([is_reported for _, _, is_reported in plan])
        solve = cls(steps, times, torch.where(ends, ends.cumsum(0) - 1, -1), seed, first_particle)
        if is_other or not steps.seen or steps.checks.are_due(_SHARE):
            start = time.perf_counter()
            difference = solve._difference(problem.state.detach(), advance)
            if difference is not None:
                forget_solve(problem, difference)
                raise CannotCompile(difference)
            steps.checks.at = time.perf_counter()
            steps.checks.seconds = steps.checks.at - start
        return solve

    def __call__(self, x: Tensor, locate: Locate, segment: int) -> Tensor:
        """The reported states, (reported, particles, width), from x on. Within a segment every state is kept for the
        gradient; if there are more, the states at their starts, and the others are made again."""
        return _Solved.apply(self, locate, segment, x, *self.steps.wanted)

    def part(self, first: int, last: int) -> dict[str, Any]:
        """What says which steps are made."""
        where = {"first_step": first, "first_particle": self.first_particle}
        return {"times": self.times[first:last], "seed": self.seed, **where}

    def states(self, x: Tensor, first: int, last: int) -> Tensor:
        """All states from step ``first`` to step ``last``."""
        states = x.new_empty(last - first + 1, *x.shape)
        states[0] = x
        self.steps.advance(states, **self.part(first, last))
        return states

    def _difference(self, x: Tensor, advance: Steps) -> str | None:
        """In which way a few steps of all particles, forward and back, are not those of ``advance``."""
        last = min(len(self.times), _CHECKED_STEPS)
        wanted = self.steps.wanted
        slope = fill_normal(torch.empty_like(x), seed=0, stream=Stream.CHECK)
        with torch.enable_grad():
            start = x.clone().requires_grad_()
            end = advance(start, 0, last)[-1]
            options: dict[str, Any] = {"allow_unused": True, "materialize_grads": True, "retain_graph": True}
            expected = torch.autograd.grad(end, (start, *wanted), slope, **options)
        states = self.states(x, 0, last)
        if not _is_close(states[-1], end.detach(), float(end.detach().abs().max())):
            return "the compiled steps lead elsewhere than the plain ones"
        reports = torch.full((last,), -1)
        totals = self.steps.step_back(states, slope, slope, reports, **self.part(0, last))
        largest = max(float(value.abs().max()) for value in expected[1:]) if wanted else 0.0
        pairs = zip((slope, *self.steps.gradients(totals, x.dtype)), expected, strict=True)
        for number, (found, plain) in enumerate(pairs):
            scale = max(float(plain.abs().max()), _OF_LARGEST * largest if number else 0.0)
            if not _is_close(found, plain, scale):
                return f"the compiled gradient of a tensor of shape {tuple(plain.shape)} is not the plain one"
        return None


def _is_close(found: Tensor, plain: Tensor, scale: float) -> bool:
    finite = plain.isfinite()  # a failure is for the run to find
    eps = torch.finfo(plain.dtype).eps
    tolerance = min(eps**0.5, _ULPS * eps) * scale
    return bool(((found - plain).abs() <= tolerance).logical_or(~finite).all())


class _Solved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, solve: Solve, locate: Locate, segment: int, x: Tensor, *wanted: Tensor) -> Tensor:
        """``wanted`` are the tensors that the steps read; they find them by themselves."""
        ends = [*range(0, len(solve.times), segment), len(solve.times)]
        reports = solve.reports.tolist()
        reported = x.new_empty(1 + max(reports), *x.shape)
        kept, now = [], x.detach()
        for first, last in pairwise(ends):
            states = solve.states(now, first, last)
            if not states[-1].isfinite().all():
                bad = next(k for k in range(1, len(states)) if not states[k].isfinite().all())
                raise locate(states[bad - 1], states[bad], first + bad - 1, first + bad)
            for k in range(first, last):
                if reports[k] >= 0:
                    reported[reports[k]] = states[k - first + 1]
            kept.append(states if len(ends) == 2 else now)
            now = states[-1].clone() if len(ends) > 2 else states[-1]
        ctx.solve, ctx.ends, ctx.kept = solve, ends, kept
        # None of what steps back read may have changed by then: torch looks at these.
        ctx.save_for_backward(*solve.steps.read_back())
        return reported

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "what is compiled can be differentiated once: with create_graph=True, solve with compile=False"
            )
        _ = ctx.saved_tensors  # torch raises if one of them has changed
        solve: Solve = ctx.solve
        slopes = slopes.contiguous()
        slope, totals = torch.zeros_like(slopes[0]), torch.zeros(())
        for states, first, last in _from_the_last(solve, ctx.ends, ctx.kept):
            reports = solve.reports[first:last]
            totals = totals + solve.steps.step_back(states, slope, slopes, reports, **solve.part(first, last))
        return (None, None, None, slope, *solve.steps.gradients(totals, slope.dtype))


def _from_the_last(solve: Solve, ends: Sequence[int], kept: Sequence[Tensor]) -> Iterator[tuple[Tensor, int, int]]:
    """The states of every segment, made again where only their start was kept."""
    for (first, last), states in reversed(list(zip(pairwise(ends), kept, strict=True))):
        yield (states if len(ends) == 2 else solve.states(states, first, last)), first, last
