"""The draws of a run in one shape, (draws, particles, parameters), with a name for every parameter."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from ..potentials import Potential
from ..potentials.unconstrained import Constrained
from ..sampling import Run
from ..tuning import Tuning

Parameters = Callable[[Tensor], Tensor]

# What has no draws in itself, and the call that gives a Run of it.
_WAYS_OUT = {
    "Chain": "chain.advance(1000, thin=100) gives the Run of its next steps",
    "Tuning": "tuning.sample(10) gives one, of ten draws of every particle",
    "DiffusionDistribution": (
        "posterior.tuning.sample(10) gives one, to be read with parameters=posterior.constrain; where step_size and "
        "num_steps were given, to_arviz takes draws (draws, chains, parameters)"
    ),
}


def kept_positions(run: Run) -> Tensor:
    """What a run kept, (draws, particles, dim); its last positions alone if it kept nothing."""
    if not isinstance(run, Run):
        way_out = next(
            (f": {_WAYS_OUT[kind.__name__]}" for kind in type(run).__mro__ if kind.__name__ in _WAYS_OUT), ""
        )
        raise TypeError(f"run is what torchsrk.sample or Tuning.sample gives; got {type(run).__name__}{way_out}")
    kept = run.final.unsqueeze(0) if run.trajectory is None or not len(run.trajectory) else run.trajectory
    if kept.ndim < 2 or 0 in kept.shape:
        raise ValueError(f"there are no draws to look at in a trajectory of shape {tuple(kept.shape)}")
    if run.plan is not None and kept.ndim > 3:
        raise ValueError(
            f"this run is of a batch of targets {tuple(kept.shape[2:-1])}, and one target is looked at at a time: "
            "to_arviz takes the draws of one, posterior.constrain(run.trajectory)[:, :, k]"
        )
    kept = kept.detach().reshape(len(kept), -1, kept.shape[-1])
    _check_finite(kept, "the trajectory")
    return kept


def read(positions: Tensor, parameters: Parameters | None) -> Tensor:
    """What a user reads of positions (draws, particles, dim), (draws, particles, parameters) in float64 on the CPU."""
    if parameters is None:
        return positions.cpu().double()
    with torch.no_grad():
        points = parameters(positions.flatten(0, 1))
    count = positions.shape[0] * positions.shape[1]
    if not isinstance(points, Tensor) or points.ndim < 1 or len(points) != count or not points.numel():
        given = tuple(points.shape) if isinstance(points, Tensor) else type(points).__name__
        raise ValueError(
            f"parameters takes positions (..., dim) to (..., parameters): of {count} positions it gave {given}"
        )
    theta = points.detach().reshape(*positions.shape[:2], -1).cpu().double()
    _check_finite(theta, "what parameters makes of the positions")
    return theta


def parameters_of(potential: Potential | None) -> Parameters | None:
    """What a potential says that a user reads: the point in the support, for one on an unconstrained space."""
    return potential.constrain if isinstance(potential, Constrained) else None


def parameters_for(run: Run | Tensor, tuning: Tuning | None) -> Parameters | None:
    """What a run or its plan says that a user reads, if the plan is the one that drew it."""
    own = run if isinstance(run, Run) else None
    if tuning is None:
        return None if own is None else own.constrain
    if own is not None and own.plan not in (None, tuning.mark):
        raise ValueError(
            "this run was drawn by another plan than the tuning given: give the one whose sample() made it"
        )
    return tuning.constrain


def named(names: Sequence[str] | Mapping[str, Sequence[int]] | None, count: int) -> tuple[str, ...]:
    """A name for each of so many parameters: those given, or entries of arrays of the shapes given, or x[0], x[1] …"""
    if names is None:
        return tuple(f"x[{k}]" for k in range(count))
    return tuple(entry for name, shape in shapes_of(names, count).items() for entry in _entries(name, shape))


def shapes_of(names: Sequence[str] | Mapping[str, Sequence[int]] | None, count: int) -> dict[str, tuple[int, ...]]:
    """Names with their shapes, in the order of the parameters, of which there are so many."""
    if names is None:
        return {"x": (count,)}
    if isinstance(names, str) or not isinstance(names, (Mapping, Sequence)):
        raise TypeError(f"names is a list of names, or a dict from names to shapes; got {names!r}")
    given = names if isinstance(names, Mapping) else dict.fromkeys(names, ())
    shapes = {str(name): tuple(shape) for name, shape in given.items()}
    if len(shapes) != len(names):
        raise ValueError("there are names that come twice")
    told = sum(math.prod(shape) for shape in shapes.values())
    if told != count:
        raise ValueError(f"names are for {told} parameters, and there are {count}")
    return shapes


def _entries(name: str, shape: tuple[int, ...]) -> list[str]:
    if not shape:
        return [name]
    places = torch.cartesian_prod(*(torch.arange(size) for size in shape)).reshape(-1, len(shape)).tolist()
    return [f"{name}[{', '.join(map(str, place))}]" for place in places]


def _check_finite(values: Tensor, what: str) -> None:
    bad = ~values.isfinite()
    if not bool(bad.any()):
        return
    draw = int(bad.flatten(1).any(1).nonzero()[0])
    particles = int(bad.any(0).any(-1).sum())
    raise ValueError(
        f"{what} has {int(bad.sum())} entries that are infinite or NaN, of {particles} of {values.shape[1]} particles, "
        f"from kept draw {draw} on: there is nothing to be told of such a run"
    )
