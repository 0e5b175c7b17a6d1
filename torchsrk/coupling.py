"""One scheme at several step sizes on one path: what differs between them is the step's doing, not the noise's."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .blocks import Blocks
from .brownian import FreshNoise, Increment, start_normals
from .brownian.noise import check_range
from .integrators import Integrator
from .sde import BaseSDE


def coupled_positions(
    sde: BaseSDE,
    x0: Tensor,
    *,
    integrator: Integrator,
    step_size: float,
    levels: int,
    periods: int,
    seed: int,
    first_step: int = 0,
) -> Tensor:
    """Positions (periods, levels, *particles, dim) of chains with steps h, 2h, 4h and so on, from x0 (*particles, dim).

    All start with the same velocities, and the increments of long steps are composed of those of short ones. A period
    is the longest step; positions are those at its end. One that needs the noise of the step after it (as
    Leimkuhler-Matthews' does) has it from the same path.
    """
    longest = 2 ** (levels - 1)
    check_range(seed, first_step, (periods + 1) * longest, 0, math.prod(x0.shape[:-1]))
    blocks = Blocks(x0, None, divisible=True)

    def run(x: Tensor, row: int) -> Tensor:
        with torch.no_grad():
            chains = _Chains(sde, integrator, step_size, levels, x, seed, row, first_step)
            kept = chains.positions(periods)
        return kept.movedim(2, 0)

    with blocks.threads():
        return blocks.map(run, x0.detach()).movedim(0, 2)


class _Chains:
    """A block of particles at every level."""

    def __init__(
        self,
        sde: BaseSDE,
        scheme: Integrator,
        step_size: float,
        levels: int,
        x: Tensor,
        seed: int,
        row: int,
        first_step: int,
    ) -> None:
        self.sde, self.scheme, self.step_size, self.first_step = sde, scheme, step_size, first_step
        shape = (*x.shape[:-1], sde.brownian_dim(x))
        particle = row * math.prod(x.shape[1:-1])
        self.noise = FreshNoise(seed, shape, dtype=x.dtype, device=x.device, first_particle=particle)
        self.states = [
            scheme.init(sde, 0.0, x, step_size * 2**level, start_normals(seed, first_step, particle))
            for level in range(levels)
        ]
        self.waiting: list[Increment | None] = [None] * levels
        self.kept: list[list[Tensor]] = [[] for _ in range(levels)]

    def positions(self, periods: int) -> Tensor:
        """(periods, levels, rows, dim)."""
        needs = self.scheme.required(self.sde) | self.scheme.position_needs
        longest = 2 ** (len(self.states) - 1)
        # A position of the last period may ask for the noise of one step more.
        for step in range((periods + 1) * longest if self.scheme.position_needs else periods * longest):
            increment = self.noise.increment(self.first_step + step, step * self.step_size, self.step_size, needs)
            self._advance(0, step, increment, longest)
        if not self.scheme.position_needs:
            for level in range(len(self.states)):
                self._keep(level, periods * longest, None)
        return torch.stack([torch.stack(kept[1 : periods + 1]) for kept in self.kept], 1)

    def _advance(self, level: int, step: int, increment: Increment, longest: int) -> None:
        """A step of this level that ends with fine step ``step``, and of the next if it has both its halves."""
        before = step + 1 - 2**level
        if before % longest == 0:
            self._keep(level, before, increment if self.scheme.position_needs else None)
        t = before * self.step_size
        self.states[level] = self.scheme.step(self.sde, t, self.states[level], increment)
        if level + 1 == len(self.states):
            return
        first, self.waiting[level] = self.waiting[level], increment
        if first is not None:
            self.waiting[level] = None
            self._advance(level + 1, step, self.scheme.compose(self.sde, first, increment), longest)

    def _keep(self, level: int, step: int, increment: Increment | None) -> None:
        t = step * self.step_size
        self.kept[level].append(self.scheme.position(self.sde, t, self.states[level], increment))


def periods_of(time: float, step_size: float, levels: int) -> int:
    """How many periods of the longest step make up a time, at least."""
    return math.ceil(time / (step_size * 2 ** (levels - 1)))
