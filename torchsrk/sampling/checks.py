"""What can be wrong before the first step, each with one error that says the way out."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..integrators import Integrator, integrator_named
from ..potentials import Potential
from ..potentials.probe import check_gradient
from ..sde import BaseSDE
from ..sde.probe import check_structure
from ..transforms import below_transforms
from .failures import is_finite


def check_step_size(step_size: object) -> None:
    """One clear error for what can't be a step size."""
    if isinstance(step_size, bool) or not isinstance(step_size, (int, float)) or not 0.0 < step_size < math.inf:
        raise ValueError(f"step_size is a positive number; got {step_size!r}")


def check_integer(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} is an integer, at least {least}; got {value!r}")


def check_problem(sde: BaseSDE, x0: Tensor, integrator: Integrator | str, step_size: float) -> Integrator:
    """Everything that can be wrong before the first step, each with one error that says the way out."""
    scheme = integrator_named(integrator)
    scheme.check(sde)
    if not isinstance(x0, Tensor) or x0.dtype not in (torch.float32, torch.float64):
        given = x0.dtype if isinstance(x0, Tensor) else type(x0).__name__
        raise TypeError(f"x0 is a float32 or float64 tensor (..., dim); got {given}")
    if x0.ndim < 1 or x0.numel() == 0:
        raise ValueError(f"x0 is (..., dim) with at least one particle; got shape {tuple(x0.shape)}")
    if sde.dim is not None and x0.shape[-1] != sde.dim:
        raise ValueError(f"the SDE has dimension {sde.dim}; x0 has shape {tuple(x0.shape)}: expected (..., {sde.dim})")
    if not is_finite(x0):
        raise ValueError(f"x0 has {int((~below_transforms(x0).isfinite()).sum())} entries that are infinite or NaN")
    check_step_size(step_size)
    for name, tensor in (*sde.named_parameters(), *sde.named_buffers()):
        if tensor.is_floating_point() and (tensor.dtype != x0.dtype or tensor.device != x0.device):
            raise TypeError(
                f"x0 is {x0.dtype} on {x0.device}, but the SDE's {name} is {tensor.dtype} on {tensor.device}: call "
                f"sde.to(x0.device, x0.dtype), or x0.to the other way"
            )
    check_structure(sde, x0)
    for potential in sde.children():
        if isinstance(potential, Potential):
            check_gradient(potential, x0)
    return scheme
