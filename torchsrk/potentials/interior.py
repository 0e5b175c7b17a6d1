"""Points that rounding put on the border of a support, or past it, moved back inside."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.distributions import constraints


def interior(points: Tensor, support: Any) -> Tensor:
    """The points, those on the border or beyond moved to floats next to it.

    A bijection is onto the inside of its support, but 1 + exp(-40) is 1, and the float32 nearest to π is more than π.
    """
    while isinstance(support, constraints.independent) or type(support).__name__ == "MixtureSameFamilyConstraint":
        support = support.base_constraint
    if support is constraints.lower_cholesky:
        return _with_positive_diagonal(points)
    if support is constraints.corr_cholesky:
        return _with_positive_diagonal(points / points.norm(dim=-1, keepdim=True))
    if support is constraints.positive_definite:
        return _positive_definite(points)
    for name, inwards in (("lower_bound", 1.0), ("upper_bound", -1.0)):
        bound = getattr(support, name, None)
        if bound is not None:
            points = _within(points, bound, inwards)
    return points


def _within(points: Tensor, bound: Tensor | float, inwards: float) -> Tensor:
    """Inside by a unit of the last place, or by the least float that is no denormal where the bound is 0."""
    border = torch.as_tensor(bound, dtype=points.dtype, device=points.device).detach()
    next_to = border.nextafter(torch.full_like(border, inwards * math.inf))
    by_tiny = border + inwards * torch.finfo(points.dtype).tiny
    if inwards > 0.0:
        return points.maximum(torch.maximum(next_to, by_tiny))
    return points.minimum(torch.minimum(next_to, by_tiny))


def _with_positive_diagonal(matrices: Tensor) -> Tensor:
    raised = matrices.diagonal(dim1=-2, dim2=-1).clamp_min(torch.finfo(matrices.dtype).tiny)
    return matrices.diagonal_scatter(raised, dim1=-2, dim2=-1)


def _positive_definite(matrices: Tensor) -> Tensor:
    """Where a matrix is singular to rounding, its diagonal a few roundings larger."""
    positive = torch.linalg.cholesky_ex(matrices.detach()).info == 0
    diagonal = matrices.diagonal(dim1=-2, dim2=-1)
    by = 8.0 * matrices.shape[-1] * torch.finfo(matrices.dtype).eps * diagonal
    return torch.where(positive[..., None, None], matrices, matrices + torch.diag_embed(by))
