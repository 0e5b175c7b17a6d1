"""One scheme at several step sizes on one path: what differs between them is the step's doing, not the noise's."""

from __future__ import annotations

import math
from typing import Literal

from torch import Tensor

from .integrators import Integrator
from .integrators.composed import Composed
from .sampling import NonFiniteStateError, sample
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
    block_size: int | None = None,
    compile: bool | Literal["auto"] = False,
) -> Tensor:
    """Positions (periods, levels, *particles, dim) of chains with steps h, 2h, 4h and so on, from x0 (*particles, dim).

    All start with the same velocities, and the increments of long steps are composed of those of short ones. A period
    is the longest step; positions are those at its end. The finest level is an ordinary run. A level whose chains leave
    every bound is NaN.
    """
    longest = 2 ** (levels - 1)
    kept = x0.new_full((periods, levels, *x0.shape), math.nan)
    for level in range(levels):
        substeps = 2**level
        each = longest // substeps
        try:
            run = sample(
                sde,
                x0,
                integrator=Composed(integrator, substeps) if substeps > 1 else integrator,
                step_size=step_size * substeps,
                num_steps=periods * each,
                thin=each,
                seed=seed,
                block_size=block_size,
                compile=compile,
            )
        except NonFiniteStateError:
            continue
        assert run.trajectory is not None
        kept[:, level] = run.trajectory
    return kept


def periods_of(time: float, step_size: float, levels: int) -> int:
    """How many periods of the longest step make up a time, at least."""
    return math.ceil(time / (step_size * 2 ** (levels - 1)))
