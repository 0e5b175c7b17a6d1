"""What a potential is: an energy f(x) = -log density, up to a constant, and its gradient."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..transforms import is_transformed


class Potential(nn.Module, ABC):
    """The energy of a target density exp(-f).

    A subclass writes ``forward``; ``grad`` differentiates it, unless the subclass knows its gradient in closed form.

    Attributes:
        dim: the dimension of x, or None if any will do.
        strong_convexity: m > 0 with ∇²f ≥ m·I, or None where there is none or it is not known.
        stateful: a gradient changes the potential (it draws a minibatch, say), so that calls can't be shared out.
        smoothness: the Lipschitz constant of ∇f, or None where it is not known.
        hessian_lipschitz, third_derivative_lipschitz: those of ∇²f and ∇³f in operator norms, or bounds on them.
    """

    dim: int | None = None
    strong_convexity: float | None = None
    smoothness: float | None = None
    hessian_lipschitz: float | None = None
    third_derivative_lipschitz: float | None = None
    stateful: bool = False

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Energies (...) of points x (..., dim)."""

    def grad(self, x: Tensor) -> Tensor:
        """∇f, (..., dim), by autograd; differentiable in x and in the parameters when grad mode is on."""
        return gradient_of_sum(lambda y: check_energy(self(y), y), x)


def is_stateful(module: nn.Module) -> bool:
    """Whether the module holds a potential that a gradient changes."""
    return any(isinstance(part, Potential) and part.stateful for part in module.modules())


def value_and_gradient(potential: Potential, x: Tensor) -> tuple[Tensor, Tensor]:
    """f (...) and ∇f (..., dim) at x: from one forward pass, unless the potential has a gradient of its own; what that
    potential gives is not looked at."""
    if getattr(potential.grad, "__func__", None) is Potential.grad:
        return value_and_gradient_of_sum(lambda y: check_energy(potential(y), y), x)
    return potential(x), potential.grad(x)


def gradient_of_sum(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The gradient of Σ function(x), each point on its own; it carries a graph when the caller's grad mode is on."""
    return value_and_gradient_of_sum(function, x)[1]


def row_by_row(function: Callable[[Tensor], Tensor], x: Tensor, width: int) -> Tensor:
    """function(x), (..., width), with NaN for the rows of x alone that it can't be evaluated at.

    A Cholesky factor of a matrix that is not definite raises for all rows at once: they are halved until it is found.
    """
    try:
        return function(x)
    except torch.linalg.LinAlgError:
        if x.ndim == 1 or len(x) == 1:
            return x.new_full((*x.shape[:-1], width), math.nan)
        half = len(x) // 2
        return torch.cat([row_by_row(function, part, width) for part in (x[:half], x[half:])])


def value_and_gradient_of_sum(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """function(x) and the gradient of its sum, from one evaluation; with graphs when the caller's grad mode is on."""
    # torch.compile has no autograd.grad, and this one would break its graph; a transformation's tensors hide theirs.
    if torch.compiler.is_compiling() or is_transformed():

        def total(y: Tensor) -> tuple[Tensor, Tensor]:
            value = function(y)
            return value.sum(), value

        gradient, value = torch.func.grad(total, has_aux=True)(x)
        return value, gradient
    if torch.is_inference_mode_enabled() or x.is_inference():  # nothing is differentiable: gradients would be 0
        with torch.inference_mode(False), torch.no_grad():
            return value_and_gradient_of_sum(function, x.clone())
    keep_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        point = x if x.requires_grad else x.detach().requires_grad_()
        value = function(point)
        if not value.requires_grad:  # a function that does not depend on x
            return value, torch.zeros_like(x)
        (gradient,) = torch.autograd.grad(
            value.sum(), point, create_graph=keep_graph, allow_unused=True, materialize_grads=True
        )
    return (value if keep_graph else value.detach()), gradient


def check_energy(energy: Tensor, x: Tensor) -> Tensor:
    """The energy, or one clear error if it is not one number a point."""
    if not isinstance(energy, Tensor):
        raise TypeError(f"an energy must be a tensor; the function returned {type(energy).__name__}")
    if energy.shape != x.shape[:-1]:
        raise ValueError(
            f"an energy is one number a point: for x of shape {tuple(x.shape)} expected {tuple(x.shape[:-1])}, got "
            f"{tuple(energy.shape)}. Sum over the last dimension, or squeeze the network's output."
        )
    return energy


def check_dim(x: Tensor, dim: int, name: str) -> None:
    """One clear error for points of the wrong dimension."""
    if x.ndim < 1 or x.shape[-1] != dim:
        raise ValueError(f"{name} lives in dimension {dim}: expected x of shape (..., {dim}), got {tuple(x.shape)}")
