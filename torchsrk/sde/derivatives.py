"""What schemes ask of a potential beside its gradient: energies with it, second and third derivatives."""

from __future__ import annotations

import torch
from torch import Tensor

from ..potentials.base import Potential, check_energy, gradient_of_sum, is_stateful, value_and_gradient
from .langevin import check_gradient


def energy_and_gradient(potential: Potential, x: Tensor) -> tuple[Tensor, Tensor]:
    """f (...) and ∇f (..., dim) at x, checked."""
    _check_exact(potential)
    energy, gradient = value_and_gradient(potential, x)
    check_gradient(gradient, x)
    return check_energy(energy, x), gradient


def hessian(potential: Potential, x: Tensor) -> Tensor:
    """∇²f at x (..., dim), (..., dim, dim).

    Autograd on dim copies of the points, in one batch: the time, and the memory, of dim Hessian products.
    """
    basis = _basis(x)
    return hessian_product(potential, x.expand(len(basis), *x.shape), basis).movedim(0, -2)


def hessian_product(potential: Potential, x: Tensor, v: Tensor) -> Tensor:
    """∇²f(x)v, (..., dim), for v that broadcasts with x: the energy is differentiated twice."""
    _check_exact(potential)
    if not torch.compiler.is_compiling() and v.is_inference():  # can't be part of what is differentiated
        with torch.inference_mode(False):
            v = v.clone()
    # The energy and not the potential's own gradient: one that autograd can't see through would count as constant.
    return gradient_of_sum(lambda y: (Potential.grad(potential, y) * v).sum(-1), x)


def gradient_of_laplacian(potential: Potential, x: Tensor) -> Tensor:
    """∇Δf at x, (..., dim): the trace of the Hessian, differentiated once more."""
    basis = _basis(x)

    def laplacian(y: Tensor) -> Tensor:
        return (hessian_product(potential, y.expand(len(basis), *y.shape), basis) * basis).sum((0, -1))

    return gradient_of_sum(laplacian, x)


def _basis(x: Tensor) -> Tensor:
    """The unit vectors along a first dimension, (dim, ..., dim) with ones between."""
    dim = x.shape[-1]
    with torch.inference_mode(False):
        return torch.eye(dim, dtype=x.dtype, device=x.device).view(dim, *(1,) * (x.ndim - 1), dim)


def _check_exact(potential: Potential) -> None:
    if is_stateful(potential):
        raise ValueError(
            f"{type(potential).__name__} estimates its gradient, and this scheme needs energies and derivatives that "
            "belong together: take one that asks for gradients alone, such as 'em'"
        )
