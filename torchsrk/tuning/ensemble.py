"""Particles with their energies and gradients."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor

from ..blocks import Blocks, torch_threads
from ..brownian import Stream
from ..brownian.noise import draw_uniform
from ..potentials import Potential
from ..potentials.base import value_and_gradient_of_sum


@dataclass
class Ensemble:
    """Positions (particles, dim), energies (particles,), infinite where the density is 0 or NaN, and gradients."""

    x: Tensor
    energy: Tensor
    gradient: Tensor

    def __len__(self) -> int:
        return len(self.x)

    @property
    def finite(self) -> Tensor:
        return self.energy.isfinite()

    def restarted(self, rows: Tensor, *, seed: int, step: int) -> Ensemble:
        """The particles of a mask put where others are, drawn at random."""
        if not bool(rows.any()) or bool(rows.all()):
            return self
        good = (~rows).nonzero().squeeze(-1)
        device, stream = self.x.device, Stream.SUBSAMPLE
        drawn = draw_uniform((int(rows.sum()), 1), seed=seed, stream=stream, step=step, device=device).squeeze(-1)
        places = good[(drawn * len(good)).long()]
        source = torch.arange(len(self), device=self.x.device)
        source[rows] = places
        return Ensemble(self.x[source], self.energy[source], self.gradient[source])


class Evaluator:
    """Energies and gradients of a potential, and how many were asked for.

    All else in tuning runs on one thread, so that its sums are the same bits on any machine; blocks of particles share
    out the threads that there were when this was made.
    """

    def __init__(self, potential: Potential, particles: int) -> None:
        self.potential, self.particles = potential, particles
        self._threads = torch.get_num_threads()
        self.gradients = 0.0  # a particle, on average
        self._has_own_gradient = type(potential).grad is not Potential.grad

    def __call__(self, x: Tensor) -> Ensemble:
        blocks = Blocks(x, None, divisible=True)
        with self.all_threads(), blocks.threads():
            both = blocks.map(lambda rows, _: self._both(rows), x)
        self.gradients += len(x) / self.particles
        energy, gradient = both[..., 0], both[..., 1:]
        bad = ~(energy.isfinite() & gradient.isfinite().all(-1))
        return Ensemble(x, energy.masked_fill(bad, math.inf), gradient.masked_fill(bad.unsqueeze(-1), 0.0))

    def all_threads(self) -> AbstractContextManager[None]:
        """Within: blocks of particles have all threads."""
        return torch_threads(self._threads)

    def _both(self, x: Tensor) -> Tensor:
        with torch.no_grad():  # a thread of the pool has a grad mode of its own
            if self._has_own_gradient:
                energy, gradient = self.potential(x), self.potential.grad(x)
            else:
                energy, gradient = value_and_gradient_of_sum(self.potential, x)
        return torch.cat((energy.unsqueeze(-1), gradient), -1)
