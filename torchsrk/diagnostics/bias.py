"""The bias of a run's step size: as its tuning measured it, or by chains that start from its draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from ..integrators import Integrator
from ..sde import BaseSDE
from ..tuning import StepBias, step_size_bias
from .known import Known

_STARTS = 1000  # of chains that measure it
_LEAST_STEPS, _MOST_STEPS = 16, 2000  # of those
_FORGOTTEN = 20  # times that they forget where they were
# Their steps, as parts of the run's own: chains with four times a step may well be unstable where those with the step
# are not, and a quarter of it looks at none that is longer.
_SHORTER = (1, 2, 4)


def tuned_bias(known: Known, count: int) -> StepBias | None:
    """What tuning measured of the first so many parameters, brought by the law's order to the step that it took."""
    if known.tuning is None or known.tuning.report.bias is None or not known.as_tuned:
        return None
    return _at(columns_of(known.tuning.report.bias, lambda column: column[:count]), known.tuning.step_size)


def measured_bias(
    known: Known,
    sde: BaseSDE,
    scheme: Integrator,
    step_size: float,
    *,
    starts: Tensor,
    steps: int,
    seed: int,
) -> StepBias:
    """The bias, from starts of the run's law, in the SDE's coordinates, by chains of so many steps."""
    tries: list[StepBias] = []
    for shorter in _SHORTER:
        bias = step_size_bias(
            sde,
            starts,
            integrator=scheme,
            step_size=step_size / shorter,
            time=steps * step_size,
            parameters=known.read,
            seed=seed,
        )
        tries.append(_at(bias, step_size))
        if plausible(tries[-1]) <= known.tolerance:
            break
    return min(tries, key=plausible)


def plausible(bias: StepBias) -> float:
    """The largest bias with its error: one, and not the three of a bound, as noise alone is no trouble."""
    off, errors = torch.cat((bias.mean, bias.sd)), torch.cat((bias.mean_error, bias.sd_error))
    return float((off.abs() + errors).nan_to_num(math.inf, posinf=math.inf).max())


def starts_from(positions: Tensor) -> Tensor:
    """Positions for chains to start from, evenly from the second half of (draws, particles, dim)."""
    late = positions[len(positions) // 2 :].flatten(0, 1)
    return late[:: max(1, len(late) // _STARTS)][:_STARTS].contiguous()


def steps_to_measure(steps: int, draws_of_each: float) -> int:
    """Steps in which a particle forgets many times, if its run of so many is worth so many draws; at most its own."""
    wanted = min(steps, math.ceil(_FORGOTTEN * steps / max(1.0, draws_of_each)))
    return min(_MOST_STEPS, max(_LEAST_STEPS, wanted))


def columns_of(bias: StepBias, function: Callable[[Tensor], Tensor]) -> StepBias:
    """The same bias with a function of every column."""
    return replace(
        bias,
        mean=function(bias.mean),
        mean_error=function(bias.mean_error),
        sd=function(bias.sd),
        sd_error=function(bias.sd_error),
    )


def _at(bias: StepBias, step_size: float) -> StepBias:
    """A bias as it is at another step size, by the law's order."""
    by = (step_size / bias.step_size) ** bias.law_order
    return columns_of(replace(bias, step_size=step_size), lambda column: by * column.cpu().double())
