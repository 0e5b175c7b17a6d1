"""The Fisher metric of an ensemble that is spread over ranks: what ``tune`` finds of one that is not."""

from __future__ import annotations

import torch
from torch import Tensor

from ..tuning.metric import Coordinates, bounded_weights, common_scale, dense_coordinates, spread_places
from .layout import Layout, local_of
from .radix import order_statistics
from .sums import sum_over_rows


def fisher_metric(x: Tensor, gradient: Tensor) -> Coordinates:
    """Coordinates z, x = loc + S z, in which particles and their gradients have one scale in all directions.

    SSᵀ is the solution Σ of Σ C_g Σ = C_x, with covariances of the positions x (particles, dim) and of the energy's
    gradients there, in which a few huge gradients count for little. Sharded or not, it is the same bits on every rank
    and for any number of them; ``AffinePotential(potential, found.loc, found.scale)`` is the target in z. Of all
    particles some sums, counts and one matrix a rank are moved.

    Args:
        x: positions (particles, dim), sharded over ranks or not.
        gradient: the gradients of the energy there, (particles, dim).
    """
    layout, other = Layout.of(x), Layout.of(gradient, "gradient")
    dim, rows = x.shape[-1], layout.rows
    if x.ndim != 2 or gradient.shape != x.shape or layout != other:
        raise ValueError(
            "x and gradient are (particles, dim), spread over ranks alike; "
            f"got {tuple(x.shape)} and {tuple(gradient.shape)}"
        )
    if rows < dim + 2:
        raise ValueError(f"a metric in {dim} dimensions takes at least {dim + 2} particles; got {rows}")
    both = torch.cat((local_of(x).detach(), local_of(gradient).detach()), -1).double()
    with layout.together("a metric") as ranks:
        low, high = order_statistics(ranks, both, spread_places(rows))
        spread_x, spread_g = (0.5 * (high - low)).split(dim)
        scale = common_scale(spread_x, spread_g)
        both = both * torch.cat((1.0 / scale, scale))
        length = both[:, dim:].norm(dim=-1, keepdim=True)
        (median,) = order_statistics(ranks, length, [(rows - 1) // 2])
        weighted = torch.cat((bounded_weights(length, median), both), -1)

        def first(block: Tensor) -> Tensor:
            return torch.cat((block[:, :1].sum(0), (block[:, :1] * block[:, 1:]).sum(0)))

        total, *_ = sums = sum_over_rows(ranks, weighted, layout.ranges, first, "the means of a metric")
        mean = sums[1:] / total

        def second(block: Tensor) -> Tensor:
            off = block[:, :1].sqrt() * (block[:, 1:] - mean)
            positions, gradients = off[:, :dim], off[:, dim:]
            return torch.stack((positions.mT @ positions, gradients.mT @ gradients))

        cov_x, cov_g = sum_over_rows(ranks, weighted, layout.ranges, second, "the covariances of a metric") / total
    return dense_coordinates(scale, mean[:dim], cov_x, mean[dim:], cov_g)
