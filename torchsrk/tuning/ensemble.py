"""Particles with their energies and gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..blocks import Blocks
from ..brownian import Stream
from ..brownian.noise import draw_uniform
from ..potentials import Potential
from ..potentials.base import row_by_row, value_and_gradient_of_sum

HALVES = (slice(0, None, 2), slice(1, None, 2))


@dataclass
class Ensemble:
    """Positions (particles, dim), energies (particles,), infinite where the density is 0 or NaN, and gradients.

    ``is_nan`` is whether it was NaN at all of them.
    """

    x: Tensor
    energy: Tensor
    gradient: Tensor
    is_nan: bool = False

    @staticmethod
    def found(x: Tensor, energy: Tensor, gradient: Tensor) -> Ensemble:
        """What was found at x, with the density taken for 0 where it, or its gradient, is not finite."""
        bad = ~(energy.isfinite() & gradient.isfinite().all(-1))
        is_nan = bool(energy.isnan().all())
        return Ensemble(x, energy.masked_fill(bad, math.inf), gradient.masked_fill(bad.unsqueeze(-1), 0.0), is_nan)

    def __len__(self) -> int:
        return len(self.x)

    @property
    def finite(self) -> Tensor:
        return self.energy.isfinite()

    def halves(self) -> list[Ensemble]:
        """Every other particle, and those between."""
        return [Ensemble(self.x[half], self.energy[half], self.gradient[half]) for half in HALVES]

    @staticmethod
    def pooled(ensembles: Sequence[Ensemble]) -> Ensemble:
        """The particles of all, as if they were more of them."""
        if len(ensembles) == 1:
            return ensembles[0]
        parts = [(part.x, part.energy, part.gradient) for part in ensembles]
        x, energy, gradient = map(torch.cat, zip(*parts, strict=True))
        return Ensemble(x, energy, gradient)

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


def energies_and_gradients(potential: Potential, x: Tensor, block_size: int | None = None) -> tuple[Tensor, Tensor]:
    """Of x (particles, ..., dim), in blocks of particles, which give the same bits on any number of threads."""

    def both(rows: Tensor) -> Tensor:
        with torch.no_grad():  # a thread of the pool has a grad mode of its own
            if type(potential).grad is Potential.grad:
                energy, gradient = value_and_gradient_of_sum(potential, rows)
            else:
                energy, gradient = potential(rows), potential.grad(rows)
        # Energies of data in float64 may be so, too, for points that are not.
        return torch.cat((energy.unsqueeze(-1).to(gradient.dtype), gradient), -1)

    blocks = Blocks(x, block_size, divisible=True)
    with blocks.threads():
        found = blocks.map(lambda rows, _: row_by_row(both, rows, 1 + x.shape[-1]), x)
    return found[..., 0], found[..., 1:]
