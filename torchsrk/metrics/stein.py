"""The kernel Stein discrepancy."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..dtensors import is_sharded
from .clouds import centred, check_clouds, squared_distance_factors, tiles, total_of_tiles


def kernel_stein_discrepancy(
    x: Tensor,
    score: Tensor | Callable[[Tensor], Tensor],
    *,
    beta: float = -0.5,
    c: float = 1.0,
    statistic: str = "V",
    squared: bool = False,
    progress: bool = False,
) -> Tensor:
    """How far particles are from the density whose score ∇log p is given; no sample of it is needed.

    The kernel is the inverse multiquadric k(x, y) = (c² + ‖x - y‖²)^β, with the paper's β = -½ and c = 1 by default,
    and the discrepancy is the root of the mean over pairs of the Stein kernel

        s(x)·s(y) k + s(x)·∇_y k + s(y)·∇_x k + tr ∇_x ∇_y k.

    Args:
        x: (points, dim).
        score: ∇log p as a function of x, or its values there, (points, dim). For a Potential: ``lambda x: -f.grad(x)``.
        beta, c: of the kernel, beta < 0 < c.
        statistic: "V" averages over all pairs, a point with itself included; "U" leaves those out, is unbiased and may
            be negative, so it comes squared only.
        squared: give the squared discrepancy.
        progress: show a progress bar.

    Memory is bounded by a few tiles whatever the number of points. Of points that are sharded over processes each makes
    some of the tiles, and the scores of its own.
    """
    if is_sharded(x):
        from ..distributed.distances import over_shards, scores_of_shards

        options = {"beta": beta, "c": c, "statistic": statistic, "squared": squared, "progress": progress}
        return over_shards(kernel_stein_discrepancy, x, scores_of_shards(x, score), **options)
    if statistic not in ("V", "U"):
        raise ValueError(f"statistic is 'V' or 'U'; got {statistic!r}")
    if statistic == "U" and not squared:
        raise ValueError("the U-statistic may be negative and has no root: ask for squared=True")
    if not (beta < 0.0 < c):
        raise ValueError(f"the inverse multiquadric needs beta < 0 < c; got beta={beta!r} and c={c!r}")
    check_clouds(x=x)
    values = score(x) if callable(score) else score
    check_clouds(x=x, score=values)
    if values.shape != x.shape:
        raise ValueError(f"score is {tuple(x.shape)}, one vector a point; got {tuple(values.shape)}")
    if statistic == "U" and len(x) < 2:
        raise ValueError("the U-statistic needs two points or more")
    with torch.no_grad():
        kernel = SteinKernel(x, values, beta=beta, c=c)
        total = kernel.total(progress=progress)
        n = len(x)
        mean = (
            total / n**2 if statistic == "V" else (total - kernel.diagonal().sum(dtype=torch.float64)) / (n * (n - 1))
        )
        return (mean if squared else mean.sqrt()).to(x.dtype)


class SteinKernel:
    """The matrix of the Stein kernel between points, made tile by tile.

    With q = c² + ‖x - y‖² an entry is q^β [s_x·s_y + (2β((s_y - s_x)·(x - y) - dim) - 4β(β - 1)(1 - c²/q))/q], so a
    tile is three matrix products and a handful of passes over it.
    """

    def __init__(self, x: Tensor, score: Tensor, *, beta: float, c: float) -> None:
        (x,) = centred(x)
        self.points, self.dim = x.shape
        self.beta, self.c = beta, c
        self.score = score
        self._distance = squared_distance_factors(x, x)
        along = (score * x).sum(-1, keepdim=True)
        ones = torch.ones_like(along)
        # (s_y - s_x)·(x - y) and all that is constant beside it, times 2β, in one product.
        constant = -2.0 * beta * self.dim - 4.0 * beta * (beta - 1.0)
        left = torch.cat((2.0 * beta * x, 2.0 * beta * score, constant - 2.0 * beta * along, ones), dim=1)
        right = torch.cat((score, x, ones, -2.0 * beta * along), dim=1)
        self._drift = left, right.mT

    def tile(self, rows: slice, columns: slice) -> Tensor:
        """The entries of some rows and columns."""
        q = (self._distance[0][rows] @ self._distance[1][:, columns]).clamp_(min=0.0).add_(self.c**2)
        inverse = q.reciprocal()
        tile = self._drift[0][rows] @ self._drift[1][:, columns]
        tile.add_(inverse, alpha=4.0 * self.beta * (self.beta - 1.0) * self.c**2).mul_(inverse)
        tile.addmm_(self.score[rows], self.score[columns].mT)
        return tile.mul_(q.rsqrt_() if self.beta == -0.5 else q.pow_(self.beta))

    def diagonal(self) -> Tensor:
        """The entries of points with themselves, in closed form."""
        squared_scores = self.score.square().sum(-1)
        return self.c ** (2.0 * self.beta) * (squared_scores - 2.0 * self.beta * self.dim / self.c**2)

    def total(self, *, progress: bool = False) -> Tensor:
        """The sum of all entries, in float64."""
        from tqdm import tqdm

        blocks = list(tiles(self.points, self.points, symmetric=True))
        with tqdm(total=len(blocks), desc="kernel Stein discrepancy", unit="tile", disable=not progress) as bar:

            def tile(rows: slice, columns: slice, count: int) -> Tensor:
                bar.update(1)
                return self.tile(rows, columns).sum(-1).sum(dtype=torch.float64)

            return total_of_tiles(blocks, tile, self.score)
