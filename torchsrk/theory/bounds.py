"""What every bound here looks like, and the plan it gives."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from .numbers import check_count, check_from_zero, check_positive

_FRACTIONS = 400  # step sizes that a plan chooses from
_LEAST_FRACTION = 1e-3  # of the largest step whose bias is below ε: smaller ones only cost


def decay_of(lost: float) -> float:
    """-log(1 - lost), also where ``lost`` is far below the precision of 1; infinite where nothing is left."""
    return -math.log1p(-lost) if lost < 1.0 else math.inf


class Plan(NamedTuple):
    """A step size and a number of steps after which a bound is at most ε.

    Attributes:
        step_size: h.
        steps: how many.
        gradients: of a particle in all of them.
    """

    step_size: float
    steps: int
    gradients: int


@dataclass(frozen=True)
class Bound:
    """W2 after n steps of h is at most factor·e^(-n·decay(h))·start + bias(h), for h up to ``largest_step``.

    Attributes:
        name: of the bound.
        scheme: the integrator's name, and ``gradients_per_step`` what a step of it takes.
        source: whose bound it is, and in which of its forms.
        start: W2 between the start and the target.
        largest_step: the largest h that it is proven for.
        decay: minus the logarithm of a step's contraction: a factor of 1 - 10⁻²⁰ would be 1 in doubles.
        bias: W2 between the target and what the scheme converges to, at most, by h.
    """

    name: str
    scheme: str
    gradients_per_step: int
    source: str
    start: float
    largest_step: float
    decay: Callable[[float], float]
    bias: Callable[[float], float]
    factor: float = 1.0

    def __post_init__(self) -> None:
        check_from_zero(start=self.start)
        check_positive(largest_step=self.largest_step, factor=self.factor)
        check_count(gradients_per_step=self.gradients_per_step)

    def after(self, steps: int, *, step_size: float) -> float:
        """The bound on W2 after so many steps."""
        self._check(step_size)
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
            raise ValueError(f"steps is a whole number from 0 on; got {steps!r}")
        return self.factor * math.exp(-steps * self.decay(step_size)) * self.start + self.bias(step_size)

    def steps_for(self, epsilon: float, *, step_size: float) -> int | None:
        """The steps after which the bound is at most ε; None if it stays above."""
        _check_epsilon(epsilon)
        self._check(step_size)
        room, decay = epsilon - self.bias(step_size), self.decay(step_size)
        if room <= 0.0 or decay <= 0.0:
            return None
        return max(0, math.ceil(math.log(self.factor * self.start / room) / decay)) if self.start > 0.0 else 0

    def plan(self, epsilon: float) -> Plan | None:
        """The fewest steps for W2 ≤ ε over step sizes; None if no step size gives it."""
        _check_epsilon(epsilon)
        top = self._largest_useful_step(epsilon)
        if top is None:
            return None
        shrink = _LEAST_FRACTION ** (1.0 / _FRACTIONS)
        best: Plan | None = None
        for k in range(_FRACTIONS + 1):
            h = top * shrink**k
            steps = self.steps_for(epsilon, step_size=h)
            if steps is not None and (best is None or steps < best.steps):
                best = Plan(h, steps, steps * self.gradients_per_step)
        return best

    def _largest_useful_step(self, epsilon: float) -> float | None:
        """The largest step of a bias below ε, by bisection of its logarithm: a bias grows with the step."""
        high = self.largest_step
        if self.bias(high) < epsilon:
            return high
        low = high
        while self.bias(low) >= epsilon:
            low /= 16.0
            if low < 1e-200:
                return None
        for _ in range(60):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if self.bias(middle) < epsilon else (low, middle)
        return low

    def _check(self, step_size: float) -> None:
        check_positive(step_size=step_size)
        if step_size > self.largest_step:
            raise ValueError(
                f"{self.name} is proven for step sizes up to {self.largest_step:.4g}; got {step_size:g}: nothing is "
                "known beyond"
            )


def _check_epsilon(epsilon: float) -> None:
    if isinstance(epsilon, bool) or not isinstance(epsilon, (int, float)) or not 0.0 < epsilon < math.inf:
        raise ValueError(f"epsilon is a positive number, the W2 to be reached; got {epsilon!r}")
