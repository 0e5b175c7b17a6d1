"""What can be wrong before the first step, each with one error that says the way out."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from ..brownian import LevyArea
from ..integrators import Integrator, integrator_named
from ..potentials import Potential
from ..potentials.probe import check_gradient
from ..sde import BaseSDE
from ..sde.probe import check_structure
from ..transforms import below_transforms, is_transformed
from .failures import is_finite

Compile = bool | Literal["auto", "torch", "triton"]


def check_step_size(step_size: object) -> None:
    """One clear error for what can't be a step size."""
    if isinstance(step_size, bool) or not isinstance(step_size, (int, float)) or not 0.0 < step_size < math.inf:
        raise ValueError(f"step_size is a positive number; got {step_size!r}")


def check_integer(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} is an integer, at least {least}; got {value!r}")


def check_way(check_every: int | None, block_size: int | None, compile: Compile) -> None:
    """How steps are made."""
    for name, value in (("check_every", check_every), ("block_size", block_size)):
        if value is not None:
            check_integer(name, value, 1)
    if isinstance(compile, Tensor) or compile not in (True, False, "auto", "torch", "triton"):
        raise ValueError(f'compile is True, False, "auto", "torch" or "triton"; got {compile!r}')


def check_levy_area(levy_area: object) -> None:
    """How Lévy areas are drawn."""
    if levy_area is None or isinstance(levy_area, LevyArea):
        return
    known = ", ".join(f"{kind.__name__}()" for kind in LevyArea.__subclasses__())
    raise TypeError(
        f"levy_area is None, for the default, or an instance of a LevyArea: {known}; got {levy_area!r}. A scheme that "
        "asks for areas can't do without: to draw none take integrator='em', or a noise_type that needs none "
        "('additive', 'diagonal' or 'scalar', if the noise is of that kind)"
    )


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
    _check_tensors(sde, x0)
    check_structure(sde, x0)
    for potential in sde.children():
        if isinstance(potential, Potential):
            check_gradient(potential, x0)
    return scheme


def doubt_at_start(sde: BaseSDE, x0: Tensor) -> str | None:
    """What the SDE says of itself and of x0; nothing under a transformation, where numbers can't be looked at."""
    return None if is_transformed() else sde.doubt_at_start(x0.detach())


def _check_tensors(sde: BaseSDE, x0: Tensor) -> None:
    dtype, device = x0.dtype, x0.device
    for path, module in sde.named_modules():
        # As named_parameters and named_buffers would tell, of which each goes through all modules.
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is None or not tensor.is_floating_point() or (tensor.dtype == dtype and tensor.device == device):
                continue
            raise TypeError(
                f"x0 is {dtype} on {device}, but the SDE's {path}{'.' if path else ''}{name} is {tensor.dtype} on "
                f"{tensor.device}: call sde.to(x0.device, x0.dtype), or x0.to the other way"
            )
