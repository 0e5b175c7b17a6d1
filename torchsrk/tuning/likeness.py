"""Whether a density is the one that a plan was made for, by its gradients at a few of the plan's states.

Gradients and not energies: in whitened coordinates they are of size one however much data there is, while energies of
much data in single precision hide differences of several units, and hang on a constant.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..potentials import Potential
from .ensemble import energies_and_gradients

_LOOKED_AT = 16


def gradients_seen(whitened: Potential, z: Tensor) -> Tensor:
    """Gradients at the first of the states z (particles, *batch_shape, dim), by which the density is known again."""
    return energies_and_gradients(whitened, z[:_LOOKED_AT])[1].clone()


def how_other(now: Tensor, seen: Tensor) -> float:
    """How far gradients are from those seen, in what rounding may do to them: beyond 1 it is another density.

    The fourth root of the precision is far beyond rounding, and moves no mean by more than 1/50 of a standard deviation
    in single precision: less than a plan's step size may.
    """
    if now.shape != seen.shape:
        return float("inf")
    seen = seen.to(now)
    allowed = torch.finfo(now.dtype).eps ** 0.25 * (1.0 + seen.abs())
    return float(((now - seen).abs() / allowed).nan_to_num(float("inf")).max())
