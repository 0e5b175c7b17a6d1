"""Sampling a score model: the reverse of the diffusion that made noise of its data."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from ..brownian import Stream, fill_normal
from .base import BaseSDE, Time, check_output
from .noise_types import noise_type_named
from .schedules import Schedule
from .score_checks import doubt_of_pull, doubt_of_start, is_sound, pull_at

Network = Callable[[Tensor, Tensor], Tensor]

_LATER = 1e-6  # of the duration, by which step sizes that are rounded to float32 may go beyond it
# So much more noise than the schedule leaves in the data is what rounding of step sizes in float32 may leave.
_MORE_NOISE = 1.5


@runtime_checkable
class _Ended(Protocol):
    """A run: where its particles are, and at what time."""

    final: Tensor
    time: float | None


class ReverseDiffusion(BaseSDE):
    """dX̂ = ∇log p_τ(X̂) ds + dB_s, from noise at s = 0 to data at s = ``duration``.

    In the coordinates x̂ = x/α and the time s = τ_max - τ, τ the variance of the noise that was added to x₀, the reverse
    of every schedule has unit noise: schemes for additive noise keep their order, where in the model's own time they
    would meet a noise that depends on time. Steps must shrink as τ does: ::

        reverse = ReverseDiffusion(score, VariancePreserving())
        run = sample(reverse, reverse.prior(5000, 2, seed=1), integrator="shark",
                     step_sizes=reverse.step_sizes(50), seed=0)
        x = reverse.data(run)

    Lengths of steps are in variance time, not in the model's, and add up to ``duration``. A model that does not pull
    points back at the last time as a score does, and a run that ends before the data, are told with a warning.

    Args:
        score: (x, t) to ∇log p_t(x), all in the model's own coordinates and time: x (..., dim), and t (...), which goes
            from the schedule's ``last`` down to its ``first``: not τ, a noise level or the number of a step.
        schedule: VariancePreserving or VarianceExploding, or another.
        predicts: "score"; or "noise", of a network that gives ε, the noise within x = αx₀ + sε, s = α√τ: its score is
            -ε/s.
    """

    noise_varies = False
    needs_exact_time = True

    def __init__(self, score: Network, schedule: Schedule, *, predicts: Literal["score", "noise"] = "score") -> None:
        super().__init__()
        if not callable(score):
            raise TypeError(f"score is a callable (x, t) -> (..., dim); got {type(score).__name__}")
        if not isinstance(schedule, Schedule):
            hint = f": write {schedule.__name__}()" if isinstance(schedule, type) else ""
            raise TypeError(
                f"schedule is a VariancePreserving, VarianceExploding or other Schedule; got {schedule!r}{hint}"
            )
        schedule.check()
        if predicts not in ("score", "noise"):
            raise ValueError(f'predicts is "score" or "noise"; got {predicts!r}')
        self.predicts = predicts
        self.noise, self.score, self.schedule = noise_type_named("additive"), score, schedule
        self._least, self._most = schedule.variances

    @property
    def duration(self) -> float:
        """Of a whole run: τ_max - τ_min."""
        return self._most - self._least

    def drift(self, t: Time, x: Tensor) -> Tensor:
        if not isinstance(t, Tensor):
            self.check_end(t)
        # In float64, as τ is a small difference of large numbers in the end.
        variance = (self._most - torch.as_tensor(t, dtype=torch.float64, device=x.device)).clamp_min(self._least)
        return self._pull(variance, x, self.predicts)

    def _pull(self, variance: Tensor, x: Tensor, predicts: str) -> Tensor:
        """∇log p_τ(x̂), by a model that predicts one or the other."""
        time, scale = self.schedule.time(variance).to(x.dtype), self.schedule.scale(variance).to(x.dtype)
        value = self._value(scale * x, time.expand(x.shape[:-1]))
        if predicts == "noise":  # ε = -s·∇log p_t, s = α√τ
            return -value / variance.sqrt().to(x.dtype)
        return scale * value

    def _value(self, x: Tensor, time: Tensor) -> Tensor:
        """What the model gives, which has x's form."""
        try:
            value = self.score(x, time)
            valid = isinstance(value, Tensor) and value.shape == x.shape
            check_output(value, x, valid=valid, what="score", expected="the shape of x")
        except Exception as error:
            if hasattr(error, "add_note"):  # from Python 3.11 on
                error.add_note(
                    f"score is called as score(x, t), in this order: x {tuple(x.shape)} is (..., dim), and t "
                    f"{tuple(time.shape)} the model's own time of every particle, {self.schedule.last:g} at first and "
                    f"{self.schedule.first:g} in the end; t.unsqueeze(-1) can be joined to x"
                )
            raise
        return value

    def doubt_at_start(self, x: Tensor) -> str | None:
        """Of the start, and of the model at a few points of the prior, where any score is close to that of a normal."""
        narrow = doubt_of_start(x, math.sqrt(self._most))
        if narrow is not None:
            return narrow

        def pull(predicts: str) -> float:
            variance = torch.tensor(self._most, dtype=torch.float64, device=x.device)
            return pull_at(lambda points: self._pull(variance, points, predicts), 1.0 + self._most, x)

        try:
            found = pull(self.predicts)
            if is_sound(found):
                return None
            other = pull("score" if self.predicts == "noise" else "noise")
        except Exception:  # of a model that can't be called so, or with so many points: the run itself has the word
            return None
        return doubt_of_pull(found, self.schedule, self.predicts, math.sqrt(self._most), other)

    def check_end(self, t: float) -> None:
        if t > self.duration * (1.0 + _LATER):
            raise ValueError(
                f"the data are reached at {self.duration:.9g}, and this step is at {float(t):.9g}: steps are in "
                "variance time and add up to reverse.duration, as step_sizes=reverse.step_sizes(count) do, and "
                "step_size=reverse.duration / count"
            )

    def doubt_at_end(self, t: float) -> str | None:
        left = self._most - t
        if left <= _MORE_NOISE * self._least:
            return None
        return (
            f"this run ends at {t:.9g}, and the data are reached at {self.duration:.9g} (reverse.duration): noise of "
            f"deviation {math.sqrt(left):.3g} is left, and not of {math.sqrt(self._least):.3g}. Take all of "
            "step_sizes=reverse.step_sizes(count), or go on from here with the others: first_step=run.step"
        )

    def sigma(self, t: Time, x: Tensor) -> Tensor:
        return x.new_ones(())

    def prior(self, particles: int, dim: int, *, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Where to start, (particles, dim): the noise that data of unit variance have become, N(0, 1 + τ_max)."""
        for name, value in (("particles", particles), ("dim", dim)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is a positive integer; got {value!r}")
        drawn = fill_normal(torch.empty(particles, dim, dtype=dtype), seed=seed, stream=Stream.START)
        return drawn * math.sqrt(1.0 + self._most)

    def data(self, x: Tensor | _Ended) -> Tensor:
        """Points of the model for the states at the end of a run, or for the run: x = αx̂, still with the noise of the
        schedule's first time. Of a run it is known where it ended: one that stopped before the data is refused."""
        if isinstance(x, Tensor):
            return x * self.schedule.scale(torch.tensor(self._least, dtype=torch.float64)).to(x)
        if not isinstance(x, _Ended):
            raise TypeError(f"data takes a run of this diffusion, or its run.final; got {type(x).__name__}")
        doubt = None if x.time is None else self.doubt_at_end(x.time)
        if doubt is not None:
            raise ValueError(f"{doubt}; data(run.final) scales states of any time as if they were the last")
        return self.data(x.final)

    def step_sizes(self, count: int, *, rho: float = 7.0) -> list[float]:
        """Lengths of steps that shrink with the noise: its levels √τ are evenly spaced in the power 1/rho, as many
        samplers of such models have them; a large rho is a geometric sequence.
        """
        if isinstance(count, bool) or not isinstance(count, int) or count < 1 or not rho >= 1.0:
            raise ValueError(f"count is a positive integer, and rho at least 1; got {count!r} and {rho!r}")
        high, low = (level ** (0.5 / rho) for level in (self._most, self._least))
        levels = [(high + (low - high) * k / count) ** (2.0 * rho) for k in range(count + 1)]
        levels[0], levels[-1] = self._most, self._least
        return [a - b for a, b in pairwise(levels)]
