"""Densities on data of another dtype than the points that they are given."""

from __future__ import annotations

import re
from contextlib import nullcontext

import torch
from torch import Tensor

from .base import Potential

PRECISIONS = (torch.float32, torch.float64)  # that particles come in
_OF_DTYPES = re.compile(r"dtype|scalar type|type \(")  # in the words of torch's own errors


def error_of_dtypes(potential: Potential, x: Tensor, error: Exception) -> TypeError | None:
    """What to raise for ``error``, which the potential raised at points like x, if dtypes are its reason."""
    if not isinstance(error, RuntimeError) or not _OF_DTYPES.search(str(error)) or takes(potential, x):
        return None
    others = [dtype for dtype in PRECISIONS if dtype != x.dtype and takes(potential, x.to(dtype))]
    if others:
        way_out = f"It takes those in {others[0]}: give such points, or convert its data with .to({x.dtype})"
    else:
        way_out = (
            "Nor can it be at points in another precision: convert all its data, integers and half precision too, with "
            f".to({x.dtype})"
        )
    return TypeError(f"this density can't be evaluated at points in {x.dtype} ({_first_line(error)}). {way_out}")


def takes(potential: Potential, x: Tensor) -> bool:
    """Whether there are energies and gradients of points like x."""
    device, few = x.device.type, (x if x.ndim == 1 else x[:1]).detach().clone()
    can_cast = torch.amp.is_autocast_available(device)
    with torch.no_grad(), torch.autocast(device, enabled=False) if can_cast else nullcontext():
        try:
            potential(few)
            potential.grad(few)
        except Exception:  # of dtypes, or the user's own
            return False
    return True


def check_precision(like: Tensor) -> Tensor:
    """The tensor of a target, whose dtype particles are to have, or one clear error."""
    if like.dtype not in PRECISIONS:
        raise TypeError(
            f"the target's tensors are {like.dtype}, and particles come in float32 or float64: convert it with "
            ".to(torch.float32). A network that is to run in a lower precision opens an autocast region of its own"
        )
    return like


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:150]
