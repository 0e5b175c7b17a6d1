"""How particles are shared out between threads while a density is tuned."""

from __future__ import annotations

from contextlib import suppress

import torch
from torch import Tensor

from ..compiled import OperationCounter
from ..potentials import Potential

_LEAST_NUMBERS = 1 << 21  # computed by a gradient of a block: fewer would wait for the interpreter
_MOST_BLOCKS = 8


def block_size(potential: Potential, x: Tensor) -> int | None:
    """Rows of x (particles, ..., dim) to evaluate together; None for as many as would be by default.

    Fewer where a gradient computes much beside its particle's few coordinates, as one of a regression on data does. The
    size depends on the density alone and not on how many threads there are, and so do the results.
    """
    rows = x[:2].detach()
    counter = OperationCounter()
    with suppress(Exception), torch.no_grad(), counter:  # what is wrong with it, the first evaluation tells
        potential.grad(rows)
    enough = counter.numbers * len(x) // (len(rows) * _LEAST_NUMBERS)
    blocks = min(_MOST_BLOCKS, 1 << max(0, enough.bit_length() - 1))  # a power of two, for as many threads
    return -(-len(x) // blocks) if blocks > 1 else None
