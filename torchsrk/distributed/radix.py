"""Order statistics by counting: counts are whole numbers, which add up to the same in any order."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .together import Ranks

_BITS = 11  # looked at in a round: 2048 bins, three rounds for float32 and six for float64
_ROWS = 1 << 16  # counted at a time


def order_statistics(ranks: Ranks, local: Tensor, places: Sequence[int]) -> Tensor:
    """The numbers at these places of every column, sorted: (places, columns), of rows (rows, columns) of all ranks."""
    columns, width = local.shape[1], 8 * local.element_size()
    left = torch.tensor(places, device=local.device).unsqueeze(-1).repeat(1, columns)  # the place within the bin
    prefix = torch.zeros_like(left)  # the bits that are known
    known = 0
    while known < width:
        bits = min(_BITS, width - known)
        mine = torch.zeros(len(places), columns, 1 << bits, dtype=torch.int64, device=local.device)
        for start in range(0, len(local), _ROWS):
            _count(mine, _ordered(local[start : start + _ROWS]), prefix, known, bits, width)
        upto = ranks.summed(mine, "the counts of quantiles").cumsum(-1)
        digit = (upto <= left.unsqueeze(-1)).sum(-1)
        before = torch.where(digit > 0, upto.gather(-1, (digit - 1).clamp_min(0).unsqueeze(-1)).squeeze(-1), 0)
        left, prefix, known = left - before, (prefix << bits) | digit, known + bits
    return _number(prefix, local.dtype)


def _count(counts: Tensor, keys: Tensor, prefix: Tensor, known: int, bits: int, width: int) -> None:
    """Add the next bits of those keys (rows, columns) whose known bits are the prefix (places, columns)."""
    mask = (1 << known) - 1
    head = (keys >> (width - known)) & mask if known else torch.zeros_like(keys)
    digit = (keys >> (width - known - bits)) & ((1 << bits) - 1)
    column = torch.arange(keys.shape[1], device=keys.device) << bits
    for place in range(len(prefix)):
        inside = head == prefix[place]
        found = torch.bincount((digit + column)[inside], minlength=keys.shape[1] << bits)
        counts[place] += found.view(keys.shape[1], -1)


def _ordered(x: Tensor) -> Tensor:
    """Integers whose bits, read from the left as those of an unsigned number, are ordered as the numbers are."""
    kind, sign = (torch.int32, 31) if x.dtype == torch.float32 else (torch.int64, 63)
    raw = (x + 0.0).contiguous().view(kind).long()  # -0 is 0
    flipped = torch.where(raw < 0, ~raw, raw ^ (-(1 << 63) if sign == 63 else 1 << 31))
    return flipped if sign == 63 else flipped & 0xFFFFFFFF


def _number(keys: Tensor, dtype: torch.dtype) -> Tensor:
    """What the integers of ``_ordered`` stand for."""
    if dtype == torch.float32:
        raw = torch.where(keys >= 1 << 31, keys ^ (1 << 31), ~keys)
        return (raw & 0xFFFFFFFF).to(torch.int64).sub((raw & (1 << 31)) << 1).to(torch.int32).view(dtype)
    raw = torch.where(keys < 0, keys ^ -(1 << 63), ~keys)
    return raw.view(dtype)
