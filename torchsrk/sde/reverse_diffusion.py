"""Sampling a score model: the reverse of the diffusion that made noise of its data."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from ..brownian import Stream, fill_normal
from .base import BaseSDE, Time, check_output
from .noise_types import noise_type_named
from .schedules import Schedule

Network = Callable[[Tensor, Tensor], Tensor]


class ReverseDiffusion(BaseSDE):
    """dX̂ = ∇log p_τ(X̂) ds + dB_s, from noise at s = 0 to data at s = ``duration``.

    In the coordinates x̂ = x/α and the time s = τ_max - τ, τ the variance of the noise that was added to x₀, the reverse
    of every schedule has unit noise: schemes for additive noise keep their order, where in the model's own time they
    would meet a noise that depends on time. Steps must shrink as τ does: ::

        reverse = ReverseDiffusion(score, VariancePreserving())
        run = sample(reverse, reverse.prior(5000, 2, seed=1), integrator="shark",
                     step_sizes=reverse.step_sizes(50), seed=0)
        x = reverse.data(run.final)

    Args:
        score: (x, t) to ∇log p_t(x), all in the model's own coordinates and time: x (..., dim), t (...).
        schedule: VariancePreserving or VarianceExploding, or another.
        predicts: "score"; or "noise", of a network that gives ε, the noise within x = αx₀ + sε.
    """

    noise_varies = False

    def __init__(self, score: Network, schedule: Schedule, *, predicts: Literal["score", "noise"] = "score") -> None:
        super().__init__()
        if not callable(score):
            raise TypeError(f"score is a callable (x, t) -> (..., dim); got {type(score).__name__}")
        if not isinstance(schedule, Schedule):
            raise TypeError(f"schedule is a VariancePreserving, VarianceExploding or other Schedule; got {schedule!r}")
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
        if not isinstance(t, Tensor) and t > self.duration * (1.0 + 1e-9):
            raise ValueError(f"the data are reached at {self.duration:.9g}, and this step is at {float(t):.9g}")
        # In float64, as τ is a small difference of large numbers in the end.
        variance = (self._most - torch.as_tensor(t, dtype=torch.float64, device=x.device)).clamp_min(self._least)
        time, scale = self.schedule.time(variance).to(x.dtype), self.schedule.scale(variance).to(x.dtype)
        value = self.score(scale * x, time.expand(x.shape[:-1]))
        valid = isinstance(value, Tensor) and value.shape == x.shape
        check_output(value, x, valid=valid, what="score", expected="the shape of x")
        if self.predicts == "noise":  # ε = -s·∇log p_t, s = α√τ
            return -value / variance.sqrt().to(x.dtype)
        return scale * value

    def sigma(self, t: Time, x: Tensor) -> Tensor:
        return x.new_ones(())

    def prior(self, particles: int, dim: int, *, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Where to start, (particles, dim): the noise that data of unit variance have become, N(0, 1 + τ_max)."""
        drawn = fill_normal(torch.empty(particles, dim, dtype=dtype), seed=seed, stream=Stream.START)
        return drawn * math.sqrt(1.0 + self._most)

    def data(self, x: Tensor) -> Tensor:
        """Points of the model for states at the end of a run: x = αx̂, still with the noise of the schedule's first
        time."""
        return x * self.schedule.scale(torch.tensor(self._least, dtype=torch.float64)).to(x)

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
