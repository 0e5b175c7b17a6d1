"""Whether a diffusion has the structure that its noise type claims: schemes stand on it, and can't see it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from .base import BaseSDE

_TIMES = (0.0, 0.5)
_SPREAD = 4  # rows between the first and the last that are looked at, too
_NAMED = 64  # dimensions in which the coordinate at fault is looked for
_USES: WeakKeyDictionary[BaseSDE, int] = WeakKeyDictionary()

Field = Callable[[Tensor], Tensor]


def check_structure(sde: BaseSDE, x0: Tensor) -> None:
    """Raise if additive noise depends on x, or an entry of diagonal noise on a coordinate that is not its own.

    A spot check: σ is evaluated at a few points, without a graph. That is done at an SDE's first use, its second,
    fourth, eighth and so on: a network may begin with zeros, and a training loop must not pay every time. The other
    noise types claim nothing but a shape.
    """
    _USES[sde] = _USES.get(sde, 0) + 1
    fault = _fault(sde, x0)
    if fault is not None:
        raise ValueError(fault)


def check_reached(sde: BaseSDE, x: Tensor) -> None:
    """The same at the states x that this use has led to, where σ may show what it doesn't where particles begin."""
    fault = _fault(sde, x)
    if fault is not None:
        raise ValueError(f"{fault}. It is seen where particles have come to: what this run gave has another law")


def _fault(sde: BaseSDE, x: Tensor) -> str | None:
    """What is seen to be wrong, if this use is one of those that are looked at."""
    uses = _USES.get(sde, 0)
    if sde.noise.name not in ("additive", "diagonal") or uses & (uses - 1):
        return None
    try:
        with torch.inference_mode(False), torch.no_grad():
            return next(_faults(sde, x.detach()), None)
    except Exception:  # a diffusion that can't be called so, or not at these points: the run itself has the word
        return None


def _faults(sde: BaseSDE, x0: Tensor) -> Iterator[str]:
    for t in _TIMES:
        for here, there in _pairs(x0):

            def field(x: Tensor, t: float = t) -> Tensor:
                return sde.sigma(t, x)

            if not _same(field(here), field(here)).all():  # a random one, such as a network with dropout
                return
            yield from (
                _additive_faults(field, here, there) if sde.noise.constant else _diagonal_faults(field, here, there)
            )


def _pairs(x0: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """States beside others: the first and the last, the nearest to 0 and the farthest, some between, and the first and
    the farthest with a point beside each. All have a leading dimension of 1."""
    rows = x0 if x0.ndim > 1 else x0.unsqueeze(0)

    def row(number: int) -> Tensor:
        return rows[number : number + 1].clone()  # x0 may be an inference tensor

    first, last = 0, len(rows) - 1
    yield row(first), row(last)
    yield row(first), _beside(row(first))
    sizes = torch.linalg.vector_norm(rows.flatten(1), dim=1)
    nearest, farthest = int(sizes.argmin()), int(sizes.argmax())
    if {nearest, farthest} != {first, last}:
        yield row(nearest), row(farthest)
    if farthest != first:
        yield row(farthest), _beside(row(farthest))
    between = sorted({last * k // (_SPREAD + 1) for k in range(1, _SPREAD + 1)} - {first, last})
    for one, other in zip(between[::2], between[1::2], strict=False):
        yield row(one), row(other)


def _beside(point: Tensor) -> Tensor:
    """A point a little off, in every coordinate by another share."""
    steps = torch.linspace(0.05, 0.1, point.shape[-1], dtype=point.dtype, device=point.device)
    return point + steps * (1.0 + point.abs())


def _additive_faults(field: Field, here: Tensor, there: Tensor) -> Iterator[str]:
    if not _same(field(here), field(there)).all():
        yield (
            "additive noise is a σ that does not depend on x, and this diffusion does: take noise_type='diagonal', "
            "'isotropic' or 'general', and return σ in the form that it wants"
        )


def _diagonal_faults(field: Field, here: Tensor, there: Tensor) -> Iterator[str]:
    """Move half the coordinates: an entry whose own stays may not change, and one whose own moves knows no other.

    The halves are the binary digits of a coordinate's number, so that any two coordinates are told apart by one.
    """
    dim = here.shape[-1]
    number = torch.arange(dim, device=here.device)
    at_here, at_there = field(here), field(there)
    for digit in range(math.ceil(math.log2(dim)) if dim > 1 else 0):
        moved = (number >> digit) % 2 == 1
        expected = torch.where(moved, at_there, at_here)
        wrong = ~_same(field(torch.where(moved, there, here)), expected)
        if wrong.any():
            entry = int(wrong.reshape(-1, dim).any(0).nonzero()[0])
            yield (
                f"diagonal noise wants entry i of σ to be a function of x_i alone, and entry {entry} of this diffusion "
                f"depends on {_coordinate(field, here, there, entry)}: take noise_type='general', and return the "
                "matrix (torch.diag_embed)"
            )


def _coordinate(field: Field, here: Tensor, there: Tensor, entry: int) -> str:
    """One that the entry depends on, by name where there are few."""
    number = torch.arange(here.shape[-1], device=here.device)
    for base, other in ((here, there), (there, here)) if len(number) <= _NAMED else ():
        for j in range(len(number)):
            changed = ~_same(field(torch.where(number == j, other, base)), field(base))
            if j != entry and changed[..., entry].any():
                return f"x_{j}"
    return "other coordinates"


def _same(a: Tensor, b: Tensor) -> Tensor:
    """Equal up to rounding, and to what a sum of terms that cancel leaves of it."""
    tolerance = math.sqrt(torch.finfo(a.dtype).eps)
    size = float(b.nan_to_num(0.0, 0.0, 0.0).abs().max())
    return torch.isclose(a, b, rtol=tolerance, atol=tolerance * size, equal_nan=True)
