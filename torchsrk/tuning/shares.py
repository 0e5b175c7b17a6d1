"""How many particles are evaluated together while a density is tuned."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor

from ..compiled import OperationCounter
from ..potentials import Potential

_LEAST_NUMBERS = 1 << 20  # computed by a gradient of a block: fewer would wait for the interpreter, more for memory
_LEAST_SHARED = 4  # blocks that threads share: with fewer they spend more on waiting for the interpreter than they gain
_MOST_BLOCKS = 8


@dataclass(frozen=True)
class Shares:
    """Blocks that a density is evaluated in.

    Attributes:
        block_size: rows of a block; None for as many as would be by default.
        threaded: whether threads gain by sharing out the blocks.
    """

    block_size: int | None = None
    threaded: bool = True

    @staticmethod
    def of(potential: Potential, x: Tensor) -> Shares:
        """For rows of x (particles, ..., dim).

        Small blocks where a gradient computes much beside its particle's few coordinates, as one of a regression on
        data does: what it keeps on the way then stays in the cache, and its memory is not mapped anew at every call,
        which took up to half of the time. The size depends on the density alone and not on how many threads there are,
        and so do the results.
        """
        rows = x[:2].detach()
        counter = OperationCounter()
        with suppress(Exception), torch.no_grad(), counter:  # what is wrong with it, the first evaluation tells
            potential.grad(rows)
        enough = counter.numbers * len(x) // (len(rows) * _LEAST_NUMBERS)
        blocks = min(_MOST_BLOCKS, 1 << max(0, enough.bit_length() - 1))  # a power of two, for as many threads
        return Shares(-(-len(x) // blocks), blocks >= _LEAST_SHARED) if blocks > 1 else Shares()
