"""States that became infinite or NaN: seen, traced back to their step, and told."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..transforms import below_transforms

Advance = Callable[[Tensor, Tensor, int, int], object]  # from states, into states, from step, to step


class NonFiniteStateError(RuntimeError):
    """The state became infinite or NaN.

    Attributes:
        step: the first step at which it was seen.
        count: how many particles.
        last_finite: the last state known to be finite, and ``last_finite_step`` its step; ``sample(state=...)`` takes
            it.
    """

    def __init__(self, step: int, state: Tensor, last_finite: Tensor, last_finite_step: int) -> None:
        self.step = step
        state, last_finite = below_transforms(state), below_transforms(last_finite)
        self.count = int((~state.isfinite()).any(-1).sum())
        self.last_finite, self.last_finite_step = last_finite, last_finite_step
        particles = math.prod(state.shape[:-1])
        self._seen = (
            f"{self.count} of {particles} particles are not finite at step {step}; step {last_finite_step} was still "
            "finite (its state is this error's last_finite)."
        )
        super().__init__()
        self.explain("Usually the step size is too large for this SDE: take a smaller one.")

    def explain(self, cause: str) -> None:
        """Tell this cause, in the place of any other."""
        self.args = (f"{self._seen} {cause}",)


def locate_failure(advance: Advance, previous: Tensor, state: Tensor, first: int, last: int) -> NonFiniteStateError:
    """The error for a state that was finite at step ``first`` and is not at ``last``.

    The steps between are made again one by one: the noise is the same, so the failure is too.
    """
    good = previous
    for step in range(first, last):
        bad = torch.empty_like(good)
        advance(good, bad, step, step + 1)
        if not is_finite(bad):
            return NonFiniteStateError(step + 1, bad, good, step)
        good = bad
    return NonFiniteStateError(last, state, previous, first)  # a stochastic gradient need not fail twice


def is_finite(x: Tensor) -> bool:
    x = below_transforms(x)
    # One pass settles the usual case: a sum is finite only if every term is. A finite state may overflow its sum.
    return math.isfinite(x.sum().item()) or bool(x.isfinite().all())
