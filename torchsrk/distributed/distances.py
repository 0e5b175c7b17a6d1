"""Distances between sharded clouds: every rank has all of their points, and makes its share of the work on pairs.

Pairs are many more than points: a million points in 20 dimensions are 80 MB, and their tiles hours of work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..blocks import one_torch_thread
from ..dtensors import is_sharded
from ..metrics.clouds import sharing
from .exchange import gather
from .layout import Layout, local_of
from .together import Ranks


def over_shards(distance: Callable[..., Any], *clouds: Tensor, **options: Any) -> Any:
    """The distance between clouds of which some are sharded; the same bits as on one process, on every rank.

    Args:
        distance: one of ``torchsrk.metrics`` that makes its parts by ``parts_of``.
    """
    layout = next(Layout.of(cloud) for cloud in clouds if is_sharded(cloud))
    if any(cloud.requires_grad for cloud in clouds):
        raise ValueError("distances between sharded clouds have no gradients: detach them, or gather them first")
    whole = [gather(cloud.detach()) for cloud in clouds]
    with layout.together(distance.__name__) as ranks:
        options = {**options, "progress": options["progress"] and ranks.rank == 0} if "progress" in options else options
        # Sums round by how many threads share them.
        with one_torch_thread(), torch.no_grad(), sharing(lambda part, count: _shared(ranks, part, count)):
            return distance(*whole, **options)


def _shared(ranks: Ranks, part: Callable[[int], Tensor], count: int) -> Tensor:
    """Every rank makes every so many-th part, so that each has tiles of all kinds; and has all in the end."""
    mine = torch.zeros(-(-count // ranks.size), dtype=torch.float64)
    for place, number in enumerate(range(ranks.rank, count, ranks.size)):
        mine[place] = part(number)
        ranks.look()
    found = torch.stack(ranks.gathered(mine, "the shares of a distance"), 1).flatten()
    return found[:count]


def scores_of_shards(x: Tensor, score: Tensor | Callable[[Tensor], Tensor]) -> Tensor:
    """∇log p at all points, each found on the rank that has the point."""
    if not callable(score):
        return score
    return Layout.of(x).sharded(score(local_of(x)))
