"""Estimates of a potential's constants from its derivatives at particles: never more than the truth, and no proof."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..brownian.noise import Stream, fill_normal
from ..potentials import Potential
from .smoothness import Smoothness

_ITERATIONS = 30


def estimated(potential: Potential, particles: Tensor, *, seed: int, iterations: int = _ITERATIONS) -> Smoothness:
    """Lipschitz constants of the first three derivatives as the particles (particles, dim) show them.

    By power iteration on products of ∇²f, ∇³f and ∇⁴f with vectors, from one random direction a particle. A supremum
    over all of space is at least what is seen at some points, so that smoothness and the like come out too small and
    strong convexity too large: a bound made of estimates is an estimate. Not for a gradient that draws minibatches.

    Args:
        potential: f.
        particles: where to look, such as draws.
        seed: of the directions.
        iterations: of the power iteration.
    """
    _check(potential, particles, iterations)
    x = particles.detach()
    start = torch.empty_like(x)
    fill_normal(start, seed=seed, stream=Stream.EXACT_DRAW)
    smooth, third, fourth = (float(_norms(potential, x, start, order, iterations).max()) for order in (1, 2, 3))
    least = smooth - float(_norms_of(lambda u: smooth * u - _product(potential, x, u, 1), start, iterations).max())
    if least <= 0.0:
        raise ValueError(
            f"at one of the particles the least curvature is about {least:.3g}: the potential is not strongly convex "
            "there, and bounds for strongly convex ones do not apply"
        )
    return Smoothness(x.shape[-1], min(least, smooth), smooth, third, fourth)


def _check(potential: Potential, particles: Tensor, iterations: int) -> None:
    if potential.stateful:
        raise ValueError("a gradient that draws minibatches has no derivative to estimate: give the full potential")
    if particles.ndim != 2 or 0 in particles.shape or not particles.is_floating_point():
        raise ValueError(f"particles are (particles, dim) floats; got {tuple(particles.shape)}, {particles.dtype}")
    if not bool(particles.isfinite().all()):
        raise ValueError("particles are finite; some of these are not")
    if isinstance(iterations, bool) or not isinstance(iterations, int) or iterations < 1:
        raise ValueError(f"iterations is a positive integer; got {iterations!r}")


def _norms(potential: Potential, x: Tensor, start: Tensor, order: int, iterations: int) -> Tensor:
    return _norms_of(lambda u: _product(potential, x, u, order), start, iterations)


def _norms_of(product: Callable[[Tensor], Tensor], start: Tensor, iterations: int) -> Tensor:
    """The largest ‖product(u)‖ that power iteration met at unit vectors u, one number a particle."""
    u = torch.nn.functional.normalize(start, dim=-1)
    seen = torch.zeros_like(u[..., 0])
    for _ in range(iterations):
        moved = product(u)
        seen = torch.maximum(seen, moved.norm(dim=-1))
        # Where the product is 0 the direction is kept: there is none to follow.
        u = torch.where(moved.norm(dim=-1, keepdim=True) > 0, torch.nn.functional.normalize(moved, dim=-1), u)
    return seen


def _product(potential: Potential, x: Tensor, u: Tensor, order: int) -> Tensor:
    """∇^(order + 1) f(x)[u, ..., u], a vector a particle: the gradient of f's derivative of that order along u.

    By backward passes alone: nested forward ones go through Python, operation by operation, forty times as slowly.
    """
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        value, gradient = potential(x).sum(), x
        for times in range(order + 1):
            if not value.requires_grad:  # a polynomial's derivative that is constant
                return torch.zeros_like(x)
            (gradient,) = torch.autograd.grad(value, x, create_graph=times < order, materialize_grads=True)
            value = (gradient * u).sum()
    return gradient
