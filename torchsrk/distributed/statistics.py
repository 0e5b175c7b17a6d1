"""Statistics of particles, sharded or not: the same bits for any number of ranks, of which one is a number."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .layout import Layout, local_of
from .radix import order_statistics
from .sums import BLOCK_ROWS, sum_over_rows


def mean(x: Tensor) -> Tensor:
    """Over the particles of x (..., particles, dim), in float64: (..., dim)."""
    layout = Layout.of(x)
    with layout.together("mean") as ranks:
        rows = _rows(x, layout)
        total = sum_over_rows(ranks, rows, layout.ranges, _sum, "the sums of a mean")
    return total / layout.rows


def covariance(x: Tensor, correction: int = 1) -> Tensor:
    """Of the particles of x (particles, dim), in float64: (dim, dim).

    Args:
        x: sharded over ranks or not.
        correction: sums are divided by particles - correction, as by ``torch.cov``.
    """
    layout = Layout.of(x)
    if x.ndim != 2 or layout.rows <= correction:
        raise ValueError(f"x is (particles, dim) with more than {correction} particles; got {tuple(x.shape)}")
    centre = mean(x)

    def products(rows: Tensor) -> Tensor:
        off = rows.double() - centre
        return off.mT @ off

    with layout.together("covariance") as ranks:
        total = sum_over_rows(ranks, _rows(x, layout), layout.ranges, products, "the sums of a covariance")
    return total / (layout.rows - correction)


def variance(x: Tensor, correction: int = 1) -> Tensor:
    """Over the particles of x (..., particles, dim), in float64: (..., dim).

    Args:
        x: sharded over ranks or not.
        correction: sums are divided by particles - correction, as by ``torch.var``.
    """
    layout = Layout.of(x)
    if layout.rows <= correction:
        raise ValueError(f"x has more than {correction} particles; got {layout.rows}")
    centre = mean(x)

    def squares(rows: Tensor) -> Tensor:
        return _sum((rows.double() - centre).square())

    with layout.together("variance") as ranks:
        total = sum_over_rows(ranks, _rows(x, layout), layout.ranges, squares, "the sums of a variance")
    return total / (layout.rows - correction)


def quantiles(x: Tensor, q: float | Sequence[float]) -> Tensor:
    """Of the particles of x (particles, dim), at one or more q in [0, 1]: (*q, dim), interpolated as torch.quantile.

    Exact: numbers are counted by their leading bits, then by the next ones within the bin that holds the quantile. A
    sketch would move as many bytes, have an error, and depend on the order in which it is merged.
    """
    given = [q] if isinstance(q, (int, float)) else list(q)
    layout = Layout.of(x)
    if x.ndim != 2 or not given or not all(0.0 <= at <= 1.0 for at in given):
        raise ValueError(f"quantiles are of x (particles, dim), at q in [0, 1]; got {tuple(x.shape)} and {q!r}")
    places = [at * (layout.rows - 1) for at in given]
    below = [math.floor(place) for place in places]
    wanted = sorted({*below, *(min(place + 1, layout.rows - 1) for place in below)})
    with layout.together("quantiles") as ranks:
        found = dict(zip(wanted, order_statistics(ranks, local_of(x), wanted), strict=True))
    low = torch.stack([found[place] for place in below])
    high = torch.stack([found[min(place + 1, layout.rows - 1)] for place in below])
    share = torch.tensor([at - k for at, k in zip(places, below, strict=True)], dtype=torch.float64, device=low.device)
    result = torch.lerp(low.double(), high.double(), share.unsqueeze(-1)).to(x.dtype)
    return result[0] if isinstance(q, (int, float)) else result


def nested_rhat(theta: Tensor, superchains: int | None = None) -> Tensor:
    """R̂ of theta (draws, particles, parameters), (parameters,), as ``torchsrk.diagnostics`` has it.

    Args:
        superchains: how many groups of neighbours started at one point each; None if every particle has its own start.
    """
    layout = Layout.of(theta)
    if theta.ndim != 3 or layout.dim != 1:
        raise ValueError(f"theta is (draws, particles, parameters), sharded by particles; got {tuple(theta.shape)}")
    groups = layout.rows if superchains is None else superchains
    if not 1 < groups <= layout.rows or layout.rows % groups or (superchains is not None and groups == layout.rows):
        raise ValueError(
            f"superchains are two or more groups of one size, of the {layout.rows} particles; got {groups}"
        )
    rows, chains = _rows(theta, layout), layout.rows // groups
    with layout.together("R-hat") as ranks:

        def total(part: Callable[[Tensor], Tensor], size: int = BLOCK_ROWS) -> Tensor:
            """Of blocks (particles, draws, parameters)."""
            each = lambda block: part(block.double())  # noqa: E731
            return sum_over_rows(ranks, rows, layout.ranges, each, "the sums of R-hat", size)

        centre = total(lambda block: block.mean(1).sum(0)) / layout.rows
        across = inside = torch.zeros_like(centre)
        if chains > 1:  # a superchain is a block
            between = total(lambda block: (block.mean((0, 1)) - centre).square(), chains)
            across = total(lambda block: block.mean(1).var(0), chains) / groups
        else:
            between = total(lambda block: (block.mean(1) - centre).square().sum(0))
        if len(theta) > 1:
            inside = total(lambda block: block.var(1).sum(0)) / layout.rows
    return (1.0 + between / (groups - 1) / (across + inside)).sqrt()


def _rows(x: Tensor, layout: Layout) -> Tensor:
    """This process's particles, as the first dimension."""
    return local_of(x).detach().movedim(layout.dim, 0)


def _sum(rows: Tensor) -> Tensor:
    return rows.double().sum(0)
