"""Whether a gradient is the slope of its energy: schemes follow the one, and users mean the other."""

from __future__ import annotations

import warnings
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ..transforms import is_transformed
from .base import Potential, is_stateful, value_and_gradient
from .precision import error_of_dtypes

_ROWS = 4
_LENGTHS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)  # of a move, beside 1 + |x|
_SHARE = 0.1  # of a change that a slope may miss
_USES: WeakKeyDictionary[Potential, dict[torch.dtype, int]] = WeakKeyDictionary()


def check_gradient(potential: Potential, x0: Tensor) -> None:
    """Raise if the energy changes where its gradient is 0, and warn if it changes by anything else than that says.

    An energy that is computed outside autograd, in numpy or from a detached tensor, has a gradient of 0, and particles
    would do nothing but diffuse. One such term among others is as wrong, and harder to see. A few moves of a few points
    are compared with Simpson's rule over the gradient, in one batch, at a potential's first use, its second, fourth,
    eighth and so on, in each dtype; what can't be told so is passed over. An energy that can't be evaluated in that of
    x0, for the dtype of its data, is refused here.
    """
    counts = _USES.setdefault(potential, {})
    uses = counts[x0.dtype] = counts.get(x0.dtype, 0) + 1
    if uses & (uses - 1) or is_stateful(potential) or _is_of_batches(potential) or is_transformed():
        return
    try:
        with torch.inference_mode(False), torch.no_grad(), torch.random.fork_rng(devices=[]):
            found = _slopes(potential, _points(x0.detach()))
    except Exception as error:  # an energy that can't be evaluated there: the run itself has the word
        refused = error_of_dtypes(potential, x0, error)
        if refused is None:
            return
        del counts[x0.dtype]
        raise refused from error
    if found is None:
        return
    change, slope = found
    if slope == 0.0:
        raise ValueError(
            f"the energy changes with x (by {change:.3g} over a short move), but its gradient is 0: it is not computed "
            "from x by torch alone. Keep numpy, .item(), .detach(), torch.no_grad() and integer types out of it, or "
            "write a Potential with a grad of its own. (A density that is flat but for its edges: add 0 * x.sum(-1).)"
        )
    message = (
        f"the energy's gradient is not its slope: over a short move the energy changes by {change:.3g}, and by "
        f"{slope:.3g} if its gradient were right. A term of it may be detached from x, or the potential's own grad may "
        "not be that of its energy: the particles follow the gradient"
    )
    warnings.warn(message, RuntimeWarning, stacklevel=5)


def _is_of_batches(potential: nn.Module) -> bool:
    """Whether a point's energy depends on the others, and a call changes the module: batch statistics do both."""
    return any(isinstance(part, nn.modules.batchnorm._NormBase) and part.training for part in potential.modules())


def _points(x0: Tensor) -> Tensor:
    """A few states, each a little off where it is: a start is often the one point where an energy has a kink."""
    rows = x0 if x0.ndim > 1 else x0.unsqueeze(0)
    some = rows[torch.linspace(0, len(rows) - 1, _ROWS, device=x0.device).long()]
    return some + 0.1 * (1.0 + some.abs()) * _directions(some)


def _directions(x: Tensor) -> Tensor:
    """Of no symmetry, and always the same."""
    number = torch.arange(x.numel(), dtype=x.dtype, device=x.device).view(x.shape)
    return torch.sin(12.9898 * number + 1.0)


def _slopes(potential: Potential, x: Tensor) -> tuple[float, float] | None:
    """The change of the energy over a move, and what its gradient says of it, if these differ at every point."""
    move, count = (1.0 + x.abs()) * _directions(x), len(_LENGTHS)
    lengths = torch.tensor(_LENGTHS, dtype=x.dtype, device=x.device)
    steps = torch.cat([-lengths, lengths, lengths.new_zeros(1)])
    moved = x + steps.view(-1, *[1] * x.ndim) * move
    points = moved.flatten(0, 1)
    values, gradient = value_and_gradient(potential, points)
    part = len(points) // 2  # of which a random energy, or one that mixes or numbers its points, has other values
    if not torch.allclose(potential(points[part:]), values[part:], rtol=1e-4, atol=0.0, equal_nan=True):
        return None
    energy = values.view(len(steps), len(x), -1).sum(-1)
    slope = (gradient.view(moved.shape) * move).flatten(2).sum(-1)
    change = energy[count:-1] - energy[:count]
    said = lengths.unsqueeze(-1) / 3.0 * (slope[:count] + 4.0 * slope[-1] + slope[count:-1])  # Simpson's rule
    rounding = 1e3 * torch.finfo(x.dtype).eps * energy.abs().amax(0)
    if bool(said.any()):  # what a sum of large terms leaves shows where the energy is all but linear
        bend = energy[count - 1] + energy[-2] - 2.0 * energy[-1]
        rounding = torch.maximum(rounding, 30.0 * bend.abs().nan_to_num(0.0, 0.0).amax())
    larger = torch.maximum(change.abs(), said.abs())
    can_tell = larger.isfinite() & (larger > rounding)
    differs = (change - said).abs() > _SHARE * larger
    wrong = can_tell.any(0) & (differs | ~can_tell).all(0)
    if not wrong.all():
        return None
    row = int(can_tell.sum(0).argmax())
    length = int(can_tell[:, row].nonzero()[0])
    return float(change[length, row]), float(said[length, row])
