"""Blocks of particles: what makes a run the same to the last bit for any number of threads.

Matrix products round differently when a library splits them between threads. So particles are cut into blocks of a size
that depends on the dimension alone, each block runs its steps on one thread, and threads share out the blocks. Noise
is a function of particle and step, so blocks never wait for one another within a segment of steps; and a block that
fits the cache keeps its state there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeVar

import torch
from torch import Tensor

# Entries of a block's state: half a megabyte in float32. Much smaller blocks drown in the interpreter's overhead.
_BLOCK_ELEMENTS = 1 << 17

Advance = Callable[[Tensor, int], Tensor]
T = TypeVar("T")


def default_block_size(x0: Tensor) -> int:
    """Rows of x0 in a block, from the size of a row alone."""
    rows = max(1, _BLOCK_ELEMENTS // max(1, math.prod(x0.shape[1:])))
    return rows if rows < 16 else rows - rows % 16  # whole cache lines


class Blocks:
    """Runs ``advance(rows of the state, index of the first)`` over all blocks of a state (..., dim).

    Args:
        x0: the state to be cut along its first dimension.
        block_size: rows a block; None for the default, under which every block runs on one thread. A given size that
            leaves a single block leaves the threads to torch.
        divisible: whether rows can be advanced apart; if not there is one block.
    """

    def __init__(self, x0: Tensor, block_size: int | None, divisible: bool) -> None:
        rows = len(x0) if x0.ndim > 1 else 1
        on_cpu = x0.device.type == "cpu"
        size = rows
        if x0.ndim > 1 and divisible and (on_cpu or block_size is not None):
            size = min(rows, default_block_size(x0) if block_size is None else block_size)
        self.starts = range(0, rows, size)
        self.spans = [range(start, min(rows, start + size)) for start in self.starts]
        self.size = size
        self._flat = x0.ndim == 1
        self._one_thread_each = on_cpu and (block_size is None or len(self.starts) > 1)
        self._pool: ThreadPoolExecutor | None = None

    @contextmanager
    def threads(self) -> Iterator[None]:
        """Within: torch runs each operation on one thread, and a pool of as many threads as torch had is at hand."""
        workers = min(torch.get_num_threads(), len(self.starts)) if self._one_thread_each else 1
        pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) if workers > 1 else None
        with one_torch_thread() if self._one_thread_each else nullcontext(), pool or nullcontext():
            self._pool = pool
            yield

    def run(self, advance: Advance, source: Tensor, out: Tensor) -> None:
        """Write advance(source) to ``out``, block by block."""

        def one(start: int) -> None:
            rows = slice(None) if self._flat else slice(start, start + self.size)
            out[rows] = advance(source[rows], start)

        self._apply(one)

    def map(self, function: Advance, source: Tensor) -> Tensor:
        """function(source) as a new tensor, block by block; it may have another last dimension."""

        def one(start: int) -> Tensor:
            return function(source if self._flat else source[start : start + self.size], start)

        pieces = self._apply(one)
        return pieces[0].clone(memory_format=torch.contiguous_format) if len(pieces) == 1 else torch.cat(pieces)

    def _apply(self, one: Callable[[int], T]) -> list[T]:
        return list((map if self._pool is None else self._pool.map)(one, self.starts))  # a block's exception rises here


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Within: torch runs each operation on so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def one_torch_thread() -> AbstractContextManager[None]:
    """Within: torch runs each operation on one thread."""
    return torch_threads(1)
