"""Why a state became infinite or NaN: looked for in the SDE, at the last state that was finite."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ..potentials.base import is_stateful
from ..potentials.minibatches import draws_kept, draws_minibatches_alone
from ..sde import BaseSDE
from ..transforms import below_transforms
from .failures import NonFiniteStateError

_FAR = 1e3

Mapped = Callable[[Callable[[Tensor, int], Tensor], Tensor], Tensor]  # a function of rows, over all of them


def tell_cause(
    failure: NonFiniteStateError,
    sde: BaseSDE,
    x0: Tensor,
    t: float,
    *,
    first_step: int,
    first_particle: int,
    mapped: Mapped = lambda function, rows: function(rows, 0),
) -> None:
    """Say so in the error, if drift or diffusion are infinite or NaN at its last finite state, of time t.

    Args:
        x0: where the run began, with step ``first_step``.
        mapped: gives a function of all rows, some at a time.
    """
    if is_stateful(sde) and not draws_minibatches_alone(sde):
        return
    try:
        with torch.no_grad(), draws_kept(sde):
            row = x0.detach()[(slice(0, 1),) * (x0.ndim - 1)]
            width = sde.start(row, torch.zeros_like).shape[-1]  # of a state, the SDE's own entries are the first
            found = next(_not_finite(sde, t, failure.last_finite, width, mapped), None)
    except Exception:  # user's code, after a failure of which there is enough to tell
        return
    if found is None:
        return
    what, bad = found
    if failure.last_finite_step == first_step:
        where = "that is where the run began, and no step size would help. Look at its weights and at its value there"
    elif _width(failure.last_finite[..., :width]) > _FAR * (1.0 + _width(x0)):
        return  # particles that have gone so far that a power of x overflows: steps are too long, as the error says
    else:
        where = "either it has no value where they came to, or steps too long for this SDE took them there"
    failure.explain(
        f"The {what} is infinite or NaN there already, for {int(bad.sum())} of {len(bad)} particles, the first of them "
        f"number {first_particle + int(bad.nonzero()[0])} (0/0, the log or root of 0, weights that are NaN?): {where}."
    )


def _not_finite(sde: BaseSDE, t: float, state: Tensor, width: int, mapped: Mapped) -> Iterator[tuple[str, Tensor]]:
    """What is not finite and, of each particle, whether it is not."""

    def drift(rows: Tensor, _: int) -> Tensor:
        return sde.drift(t, rows[..., :width])

    def noise(rows: Tensor, _: int) -> Tensor:
        own = rows[..., :width]
        sigma = sde.sigma(t, own)
        return sde.noise.product(sigma, own.new_zeros(*own.shape[:-1], sde.noise.brownian_dim(sigma, own)))

    for what, function in (("drift", drift), ("diffusion", noise)):
        bad = ~mapped(function, state).isfinite().all(-1)
        if bad.any():
            yield what, bad.reshape(math.prod(state.shape[:-1]))


def _width(x: Tensor) -> float:
    return float(below_transforms(x.detach()).abs().max())
