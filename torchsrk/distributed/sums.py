"""Sums over particles that are the same bits for any number of ranks.

Rows are cut into blocks of a fixed size, each of which is summed up by one rank on one thread, and the sums of blocks
are added up along a binary tree over the blocks' numbers. A rank with blocks a to b can add up all nodes of the tree
that lie within: about 2 log₂(blocks) of them are left to be sent, whatever the number of particles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from ..blocks import one_torch_thread
from .exchange import fetched
from .together import Ranks

BLOCK_ROWS = 4096

Node = tuple[int, int]  # level and number: it covers the blocks number·2^level to (number + 1)·2^level


def sum_over_rows(
    ranks: Ranks,
    local: Tensor,
    have: Sequence[range],
    part: Callable[[Tensor], Tensor],
    what: str,
    block_rows: int = BLOCK_ROWS,
) -> Tensor:
    """Σ part(rows of a block) over all blocks of all ranks, on every rank.

    Args:
        local: this rank's rows, along the first dimension.
        have: the rows of every rank.
        part: a float64 tensor of one shape for every block, which depends on the block alone.
    """
    want = [_begun_blocks(rows, have[-1].stop, block_rows) for rows in have]
    rows = fetched(ranks, local, have, want, f"rows for {what}")
    blocks = [range(-(-r.start // block_rows), -(-r.stop // block_rows)) for r in want]
    with one_torch_thread(), torch.no_grad():
        # One thread, and memory of its own: a sum may round by how many share it, and by where it begins.
        starts = range(0, len(rows), block_rows)
        cut = (rows[i : i + block_rows].clone(memory_format=torch.contiguous_format) for i in starts)
        added = _added_up(map(part, cut), blocks[ranks.rank].start)
        return _joined(ranks, added, blocks, what)


def _begun_blocks(rows: range, total: int, size: int) -> range:
    """The rows of all blocks whose first row is among these."""
    return range(min(total, -(-rows.start // size) * size), min(total, -(-rows.stop // size) * size))


def _added_up(parts: Iterable[Tensor], first: int) -> list[tuple[Node, Tensor]]:
    """The sums of consecutive blocks' parts, with as few nodes of the tree as there can be."""
    found: list[tuple[Node, Tensor]] = []
    for number, part in enumerate(parts, start=first):
        _push(found, (0, number), part)
    return found


def _push(found: list[tuple[Node, Tensor]], node: Node, value: Tensor) -> None:
    """Add a node on the right, and join it with its sibling as long as that is there."""
    while found and node[1] % 2 and found[-1][0] == (node[0], node[1] - 1):
        value = found.pop()[1] + value
        node = (node[0] + 1, node[1] // 2)
    found.append((node, value))


def _nodes(blocks: range) -> list[Node]:
    """The nodes that ``_added_up`` leaves of these blocks."""
    found: list[Node] = []
    start = blocks.start
    while start < blocks.stop:
        level = min((start & -start).bit_length() - 1 if start else 63, (blocks.stop - start).bit_length() - 1)
        found.append((level, start >> level))
        start += 1 << level
    return found


def _joined(ranks: Ranks, added: list[tuple[Node, Tensor]], blocks: Sequence[range], what: str) -> Tensor:
    nodes = [_nodes(part) for part in blocks]
    shape, device = _shape(ranks, added, what)
    most = max(map(len, nodes))
    mine = torch.zeros(most, *shape, dtype=torch.float64, device=device)
    for place, (_, value) in enumerate(added):
        mine[place] = value
    found: list[tuple[Node, Tensor]] = []
    for theirs, values in zip(nodes, ranks.gathered(mine, what), strict=True):
        for node, value in zip(theirs, values, strict=False):
            _push(found, node, value)
    total = found.pop()[1]
    while found:  # the tree is not full: what is left on its right is small
        total = found.pop()[1] + total
    return total


def _shape(ranks: Ranks, added: list[tuple[Node, Tensor]], what: str) -> tuple[tuple[int, ...], torch.device]:
    """Of a part; a rank without blocks has seen none."""
    mine = torch.full((8,), -1)
    device = torch.device("cpu")
    if added:
        shape, device = added[0][1].shape, added[0][1].device
        mine[: len(shape)] = torch.tensor(shape, dtype=torch.int64)
        mine[-1] = len(shape)
    found = next(theirs for theirs in ranks.gathered(mine, what) if theirs[-1] >= 0)
    return tuple(found[: int(found[-1])].tolist()), device
