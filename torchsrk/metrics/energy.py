"""The energy distance."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..dtensors import is_sharded
from .clouds import centred, check_clouds, squared_distance_factors, tiles, total_of_tiles


def energy_distance_squared(x: Tensor, y: Tensor) -> Tensor:
    """2 E‖X - Y‖ - E‖X - X'‖ - E‖Y - Y'‖ over all pairs of the clouds, a point with itself included.

    The paper's V-statistic (its eq. energy_distance); zero for equal clouds and never negative but for rounding. Memory
    is bounded by a few tiles whatever the number of points; sums run in float64. Differentiable once, in tiles too.

    Args:
        x, y: (points, dim), of any two sizes. Of clouds that are sharded over processes each makes some of the tiles.
    """
    if is_sharded(x) or is_sharded(y):
        from ..distributed.distances import over_shards

        return over_shards(energy_distance_squared, x, y)
    check_clouds(x=x, y=y)
    x, y = centred(x, y)
    between = _MeanDistance.apply(x, y)
    within_x, within_y = _MeanDistance.apply(x, x), _MeanDistance.apply(y, y)
    return (2.0 * between - within_x - within_y).to(x.dtype)


class _MeanDistance(torch.autograd.Function):
    """The mean distance between the points of two clouds, as a float64 number."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        symmetric = _is_same(x, y)
        left, right = squared_distance_factors(x, y)

        def tile(rows: slice, columns: slice, count: int) -> Tensor:
            distance = _distances(left[rows], right[:, columns], on_diagonal=symmetric and count == 1)
            return distance.sum(-1).sum(dtype=torch.float64)

        blocks = list(tiles(len(x), len(y), symmetric=symmetric))
        return total_of_tiles(blocks, tile, x) / (len(x) * len(y))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        left, right = squared_distance_factors(x, y)
        towards_x, towards_y = torch.zeros_like(x), torch.zeros_like(y)
        same = _is_same(x, y)
        for rows, columns, _ in tiles(len(x), len(y), symmetric=False):
            inverse = _distances(left[rows], right[:, columns], on_diagonal=same and rows == columns)
            inverse = torch.where(inverse > 0, inverse.reciprocal(), 0.0)  # a point pulls itself nowhere
            towards_x[rows] += x[rows] * inverse.sum(1, keepdim=True) - inverse @ y[columns]
            towards_y[columns] += y[columns] * inverse.sum(0).unsqueeze(-1) - inverse.mT @ x[rows]
        scale = (grad / (len(x) * len(y))).to(x.dtype)
        return towards_x * scale, towards_y * scale


def _is_same(x: Tensor, y: Tensor) -> bool:
    return x.data_ptr() == y.data_ptr() and x.shape == y.shape


def _distances(left: Tensor, right: Tensor, *, on_diagonal: bool) -> Tensor:
    distance = (left @ right).clamp_(min=0.0).sqrt_()
    return distance.fill_diagonal_(0.0) if on_diagonal else distance
