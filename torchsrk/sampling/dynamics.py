"""A scheme on an SDE with its noise: what a run advances."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor

from ..blocks import Blocks
from ..brownian import BrownianPath, FreshNoise, Increment, LevyArea, Needs, start_normals
from ..integrators import Integrator
from ..integrators.first_step import checked_rows, first_step
from ..potentials.base import is_stateful
from ..potentials.minibatches import Minibatches, draws_kept
from ..sde import BaseSDE
from .failures import is_finite
from .plans import Pace


@dataclass(frozen=True)
class Dynamics:
    """A scheme on an SDE with its noise: advances any rows of the state through any steps.

    Attributes:
        begins: the number of a run's first step, which is looked at; the others are trusted, as looking takes time.
    """

    sde: BaseSDE
    scheme: Integrator
    pace: Pace
    seed: int
    first_particle: int
    levy_area: LevyArea | None
    brownian_dim: int
    begins: int | None = None
    minibatches: Minibatches | None = None  # by the numbers of steps; None for those that come next

    @cached_property
    def is_stateful(self) -> bool:
        """Whether a gradient changes a potential."""
        return is_stateful(self.sde)

    def start(self, blocks: Blocks, x0: Tensor, first_step: int) -> Tensor:
        """The state of particles at x0, a new tensor."""

        def begin(x: Tensor, row: int) -> Tensor:
            normals = start_normals(self.seed, first_step * self.scheme.substeps, self._particle(x, row))
            start, length = self.pace.start(first_step), self.pace.length(first_step)
            with torch.no_grad():
                return checked_rows(self.scheme, "init", self.scheme.init(self.sde, start, x, length, normals), x)

        return self._begun(blocks.map(begin, x0.detach()))

    def restarted(self, x: Tensor, rows: Tensor, step: int) -> Tensor:
        """The states of particles that begin before the step of that number, in ``rows`` of all of a batch x.

        Their normals are those that rows of this number would have in a batch that begins there as a whole.
        """
        drawn = start_normals(self.seed, step * self.scheme.substeps, self.first_particle)

        def normals(like: Tensor) -> Tensor:
            return drawn(like.new_empty(len(x), *like.shape[1:]))[rows]

        t, length = self.pace.start(step), self.pace.length(step)
        with torch.no_grad(), draws_kept(self.sde):  # the others' minibatches are not to be others by this
            return self._begun(self.scheme.init(self.sde, t, x[rows], length, normals))

    def _begun(self, state: Tensor) -> Tensor:
        if not is_finite(state):
            bad = int((~state.isfinite()).any(-1).sum())
            raise ValueError(
                f"{self.scheme} can't start from x0: an energy or a gradient of {bad} of its particles is infinite or "
                "NaN. Start them where the density is finite"
            )
        return state

    def given(self, state: Tensor, x0: Tensor) -> Tensor:
        """A copy of the state of an earlier run, if this scheme can go on from it."""
        if not isinstance(state, Tensor) or state.dtype != x0.dtype or state.shape[:-1] != x0.shape[:-1]:
            given = f"{state.dtype} {tuple(state.shape)}" if isinstance(state, Tensor) else type(state).__name__
            raise ValueError(
                f"state is that of an earlier run, {x0.dtype} {(*x0.shape[:-1], 'width')} for this x0; got {given}"
            )
        if not self.is_stateful:  # its gradients are counted: none may be made to look
            row = x0.detach()[:1] if x0.ndim > 1 else x0.detach()
            width = self.scheme.init(self.sde, 0.0, row, self.pace.step_size, torch.zeros_like).shape[-1]
            if state.shape[-1] != width:
                raise ValueError(
                    f"{self.scheme} has states of width {width} here; got one of shape {tuple(state.shape)}: go on "
                    "with the scheme it is from, or from its positions, x0 alone"
                )
        if not is_finite(state):
            raise ValueError(f"state has {int((~state.isfinite()).sum())} entries that are infinite or NaN")
        return state.detach().clone(memory_format=torch.contiguous_format)

    def positions(self, blocks: Blocks, state: Tensor, step: int) -> Tensor:
        """What is reported of a state: itself, if there is no more to it."""
        needs, t = self.scheme.position_needs, self.pace.start(step)

        def position(x: Tensor, row: int) -> Tensor:
            with torch.no_grad():
                increment = self._increment(self._noise(x, row), step, needs) if needs else None
                return checked_rows(self.scheme, "position", self.scheme.position(self.sde, t, x, increment), x)

        if not needs and self.scheme.position(self.sde, t, state, None) is state:
            return state
        return blocks.map(position, state)

    def tallies(self, state: Tensor, average: Callable[[Tensor], float]) -> dict[str, float]:
        """What the scheme has counted up to a state, averaged over particles."""
        return {name: average(count) for name, count in self.scheme.tallies(state).items()}

    def advance(self, x: Tensor, row: int, *, first: int, last: int) -> Tensor:
        """Rows of the state from ``row`` on, from step ``first`` to step ``last``."""
        noise = self._noise(x, row, overwrite=True)
        needs, looked_at = self.scheme.required(self.sde), partial(first_step, self.scheme)
        with torch.no_grad(), self._drawing_from(first):  # a thread of the pool has a grad mode of its own
            for step in range(first, last):
                increment = self._increment(noise, step, needs)
                make = looked_at if step == self.begins else self.scheme.step
                x = noise.apart(make(self.sde, self.pace.start(step), x, increment))
        return x

    def advance_blocks(self, blocks: Blocks, source: Tensor, out: Tensor, first: int, last: int) -> None:
        """Write to ``out`` the states ``source`` of step ``first``, taken to step ``last``."""
        blocks.run(partial(self.advance, first=first, last=last), source, out)

    def advance_copies(self, x: Tensor, spans: Sequence[range], *, first: int, last: int) -> Tensor:
        """Copies (copies, rows, dim) of the rows in ``spans``, each with the noise of its row."""
        needs, copies, rows = self.scheme.required(self.sde), len(x), x.flatten(0, 1)
        noises = [self._noise(rows[: len(span)], span.start) for span in spans]
        with torch.no_grad(), self._drawing_from(first):
            for step in range(first, last):
                increments = [self._increment(noise, step, needs) for noise in noises]
                joined = Increment.joined(increments, copies)
                rows = self.scheme.step(self.sde, self.pace.start(step), rows, joined)
        return rows.view(x.shape)

    def _drawing_from(self, step: int) -> AbstractContextManager[None]:
        return nullcontext() if self.minibatches is None else self.minibatches.from_step(step)

    def _increment(self, noise: FreshNoise, step: int, needs: Needs) -> Increment:
        return increment_of(noise, self.scheme, step, self.pace.start(step), self.pace.length(step), needs)

    def _noise(self, x: Tensor, row: int, overwrite: bool = False) -> FreshNoise:
        return FreshNoise(
            self.seed,
            (*x.shape[:-1], self.brownian_dim),
            dtype=x.dtype,
            device=x.device,
            first_particle=self._particle(x, row),
            levy_area=self.levy_area,
            overwrite=overwrite and self.scheme.substeps == 1,
        )

    def _particle(self, x: Tensor, row: int) -> int:
        """The number of the first particle of rows x from ``row`` on."""
        return self.first_particle + row * math.prod(x.shape[1:-1])


def increment_of(
    noise: FreshNoise | BrownianPath, scheme: Integrator, number: int, t: float, dt: float, needs: Needs
) -> Increment:
    """What a scheme reads of the noise for its step of that number."""
    if scheme.substeps == 1:
        return noise.increment(number, t, dt, needs)
    count, short = scheme.substeps, dt / scheme.substeps
    return Increment.beside(
        [noise.increment(number * count + part, t + part * short, short, needs) for part in range(count)]
    )
