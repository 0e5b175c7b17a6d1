"""Which rows of a batch are where."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..blocks import default_block_size
from ..dtensors import is_sharded
from .together import Alone, Together

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

_TILE = 16  # particles that any compiled tile is a multiple or a divisor of


@dataclass(frozen=True)
class Layout:
    """Rows of all ranks, as ``torch.chunk`` cuts them; the rows of a tensor are those of one of its dimensions.

    Attributes:
        mesh: None for a tensor that is whole, in this process alone.
        dim: the dimension that is cut.
        ranges: the rows of every rank.
    """

    mesh: DeviceMesh | None
    dim: int
    ranges: tuple[range, ...]
    rank: int

    @staticmethod
    def of(x: Tensor, name: str = "x") -> Layout:
        """How particles are spread, if that is over the ranks of a mesh of one dimension; or the whole of a tensor."""
        if not is_sharded(x):
            return Layout(None, max(0, x.ndim - 2), (range(x.shape[max(0, x.ndim - 2)]),), 0)
        mesh, placement = x.device_mesh, x.placements[0]
        if mesh.ndim != 1 or not placement.is_shard():
            raise ValueError(
                f"{name} is a DTensor sharded over the one dimension of a mesh, [Shard(0)]; got {x.placements} over a "
                f"mesh of shape {tuple(mesh.shape)}. redistribute(placements=[Shard(0)]) cuts it by its rows"
            )
        dim = placement.dim  # type: ignore[attr-defined]
        layout = Layout(mesh, dim, even_ranges(x.shape[dim], mesh.size()), mesh.get_local_rank())
        if x.to_local().shape[dim] != len(layout.own):
            raise ValueError(
                f"{name} has {x.to_local().shape[dim]} rows on rank {layout.rank}; a DTensor of {x.shape[dim]} rows "
                f"on {mesh.size()} ranks has {len(layout.own)} there"
            )
        return layout

    @property
    def own(self) -> range:
        """The rows of this rank."""
        return self.ranges[self.rank]

    @property
    def rows(self) -> int:
        return self.ranges[-1].stop

    def together(self, task: str) -> AbstractContextManager[Any]:
        """The ranks, for a piece of work."""
        return Alone() if self.mesh is None else Together(self.mesh.get_group(), task)

    def sharded(self, local: Tensor, dim: int | None = None) -> Tensor:
        """The tensor that these are this rank's rows of."""
        if self.mesh is None:
            return local
        from torch.distributed.tensor import DTensor, Shard

        at = self.dim if dim is None else dim
        shape = torch.Size((*local.shape[:at], self.rows, *local.shape[at + 1 :]))
        stride = torch.empty(shape, device="meta").stride()
        local = local.contiguous()
        return DTensor.from_local(local, self.mesh, [Shard(at)], run_check=False, shape=shape, stride=stride)


def local_of(x: Tensor) -> Tensor:
    """What this process holds of a tensor."""
    return x.to_local() if is_sharded(x) else x


def even_ranges(rows: int, ranks: int) -> tuple[range, ...]:
    """As torch.chunk and DTensors cut rows: the last ranks may have fewer, or none."""
    size = -(-rows // ranks)
    return tuple(range(min(rows, rank * size), min(rows, (rank + 1) * size)) for rank in range(ranks))


def aligned_ranges(rows: int, ranks: int, size: int) -> tuple[range, ...]:
    """Rows of every rank in whole blocks of a size, as even as that allows; the last block may be short."""
    blocks = -(-rows // size)
    cuts = [min(rows, blocks * rank // ranks * size) for rank in range(ranks + 1)]
    return tuple(range(start, stop) for start, stop in pairwise(cuts))


def own_rows(
    shape: Sequence[int],
    *,
    block_size: int | None = None,
    compile: bool = False,
    group: dist.ProcessGroup | None = None,
) -> range:
    """This rank's rows of a batch of positions of that shape, (rows, ..., dim), for ``sample`` of them alone.

    ``sample(x0[rows.start : rows.stop], first_particle=rows.start)`` then gives the bits of the whole batch: a rank has
    whole blocks (see ``sample``'s ``block_size``), or, for compiled steps, whole tiles of particles. Uneven where there
    is no other way; a rank may have no rows.

    Args:
        shape: of the whole batch.
        block_size: as for ``sample``.
        compile: whether ``sample`` is to run compiled steps.
        group: the processes that share the rows; by default all.
    """
    if len(shape) < 2 or min(shape) < 1:
        raise ValueError(f"shape is (rows, ..., dim) of a batch with at least one row; got {tuple(shape)}")
    size = _TILE if compile else block_size or default_block_size(torch.empty(tuple(shape), device="meta"))
    ranges = aligned_ranges(shape[0], dist.get_world_size(group), size)
    return ranges[dist.get_rank(group)]


def whole_blocks(rows: range, total: int, size: int) -> range:
    """The rows of all blocks that hold some of these: the last block, of a rank that has none."""
    start, stop = (rows.start, rows.stop) if len(rows) else (total - 1, total)
    return range(start // size * size, min(total, -(-stop // size) * size))


def at_least(rows: range, total: int, count: int) -> range:
    """These rows, and as many of their neighbours as make up a number, if there are so many."""
    count = max(count, len(rows))
    start = max(0, min(rows.start, total - count))
    return range(start, min(total, start + count))
