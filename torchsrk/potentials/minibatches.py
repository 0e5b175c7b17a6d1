"""The minibatches of a run, by the numbers of its steps: for steps that are made from what was drawn before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from .affine import AffinePotential
from .base import Potential
from .minibatch import MinibatchPotential


class Minibatches:
    """What the potentials of an SDE draw in a run whose steps all draw as many.

    Steps draw from where the potentials' counters are when the run begins. Where something else draws in between, as a
    callback may, the next steps go on from there, as plain ones would.

    Attributes:
        potentials: those that a step draws from.
        per_step: how many minibatches it draws from each.
    """

    def __init__(self, potentials: Sequence[MinibatchPotential], per_step: Sequence[int], first_step: int) -> None:
        drawing = [(potential, count) for potential, count in zip(potentials, per_step, strict=True) if count]
        self.potentials = [potential for potential, _ in drawing]
        self.per_step = [count for _, count in drawing]
        self._first_step, self._left = first_step, self._draws()
        self._first = self._left

    @classmethod
    def of(cls, module: nn.Module, step: Callable[[], object], first_step: int) -> Minibatches:
        """Those that ``step()`` draws, if that and every other step from ``first_step`` on draws as many."""
        with draws_kept(module) as potentials:
            before = [potential.draws for potential in potentials]
            step()
            drawn = [potential.draws - count for potential, count in zip(potentials, before, strict=True)]
        return cls(potentials, drawn, first_step)

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Of the indices that a step takes from each potential, (per_step, batch_size)."""
        return [(count, part.batch_size) for count, part in zip(self.per_step, self.potentials, strict=True)]

    def go_to(self, step: int) -> None:
        """Count as drawn what steps before this one draw."""
        self._go_on_from(step)
        self._left = self._at(step)
        _set(self.potentials, self._left)

    @contextmanager
    def from_step(self, step: int) -> Iterator[None]:
        """Within: plain steps from this one on draw for themselves."""
        self.go_to(step)
        try:
            yield
        finally:
            self._left = self._draws()

    def indices(self, number: int, first: int, last: int) -> Tensor:
        """What steps from ``first`` to ``last`` take from a potential, (steps, per_step, batch_size).

        They are not counted as drawn: ``go_to(last)`` does that.
        """
        self._go_on_from(first)
        potential, count = self.potentials[number], self.per_step[number]
        drawn = potential.indices(self._at(first)[number], (last - first) * count)
        return drawn.view(last - first, count, -1)

    @contextmanager
    def given(self, indices: Sequence[Tensor]) -> Iterator[None]:
        """Within: a step takes these, (per_step, batch_size) for each potential."""
        with ExitStack() as stack:
            for potential, own in zip(self.potentials, indices, strict=True):
                stack.enter_context(potential.given(own.unbind()))
            yield

    def _go_on_from(self, step: int) -> None:
        """Where something else has drawn, this step and the next ones draw what follows."""
        if self._draws() != self._left:
            self._first_step, self._first = step, self._draws()
            self._left = self._first

    def _at(self, step: int) -> list[int]:
        steps = step - self._first_step
        return [first + steps * count for first, count in zip(self._first, self.per_step, strict=True)]

    def _draws(self) -> list[int]:
        return [potential.draws for potential in self.potentials]


@contextmanager
def draws_kept(module: nn.Module) -> Iterator[list[MinibatchPotential]]:
    """Within: the module's potentials, given here, may draw; afterwards that is not counted."""
    potentials = [part for part in module.modules() if isinstance(part, MinibatchPotential)]
    before = [potential.draws for potential in potentials]
    try:
        yield potentials
    finally:
        _set(potentials, before)


def draws_minibatches_alone(module: nn.Module) -> bool:
    """Whether minibatches are all that a gradient changes in the module's potentials."""
    stateful = [part for part in module.modules() if isinstance(part, Potential) and part.stateful]
    return all(type(part) in (MinibatchPotential, AffinePotential) for part in stateful)


def _set(potentials: Sequence[MinibatchPotential], draws: Sequence[int]) -> None:
    for potential, count in zip(potentials, draws, strict=True):
        potential.set_extra_state(torch.tensor(count))
