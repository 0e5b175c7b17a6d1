"""Rows that go from rank to rank."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..dtensors import is_sharded
from .layout import Layout, local_of
from .together import Ranks


def fetched(ranks: Ranks, local: Tensor, have: Sequence[range], want: Sequence[range], what: str) -> Tensor:
    """The rows that this rank wants, of the rows (first dimension) that each has; all ranks know all of both.

    What a rank has already is not moved, and not copied where it wants no more than that.
    """
    mine = have[ranks.rank]
    if any(not _within(want[rank], have[rank]) for rank in range(ranks.size)):
        sent = [_cut(local, mine, range(0) if rank == ranks.rank else want[rank]) for rank in range(ranks.size)]
        counts = [0 if rank == ranks.rank else len(_common(have[rank], want[ranks.rank])) for rank in range(ranks.size)]
        came = ranks.exchanged(sent, counts, what)
        came[ranks.rank] = _cut(local, mine, want[ranks.rank])
        found = [part for part in came if len(part)]
        if not _within(want[ranks.rank], mine):
            return torch.cat(found)
    return _cut(local, mine, want[ranks.rank])


def _common(a: range, b: range) -> range:
    start = max(a.start, b.start)
    return range(start, max(start, min(a.stop, b.stop)))


def _within(inner: range, outer: range) -> bool:
    return len(inner) == 0 or (outer.start <= inner.start and inner.stop <= outer.stop)


def _cut(local: Tensor, have: range, want: range) -> Tensor:
    rows = _common(have, want)
    return local[rows.start - have.start : rows.stop - have.start] if len(rows) else local[:0]


def gather(x: Tensor, to: int | None = None) -> Tensor | None:
    """All rows of a sharded tensor, on every rank or on one: None on the others.

    Args:
        x: (rows, ...), a DTensor sharded by its rows.
        to: the rank that gets them; None gives them to all.
    """
    layout = Layout.of(x)
    if not is_sharded(x):
        return x
    assert layout.mesh is not None
    if to is not None and not 0 <= to < layout.mesh.size():
        raise ValueError(f"to is the number of a rank, 0 to {layout.mesh.size() - 1}, or None for all; got {to!r}")
    want = [range(layout.rows) if to in (None, rank) else range(0) for rank in range(len(layout.ranges))]
    with layout.together("gather") as ranks:
        local = local_of(x).movedim(layout.dim, 0)
        found = fetched(ranks, local, layout.ranges, want, "the rows of a gathered tensor")
    return None if to not in (None, layout.rank) else found.movedim(0, layout.dim).contiguous()
