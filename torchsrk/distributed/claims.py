"""Work in pieces that ranks take one by one, as each is free."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

import torch.distributed as dist

from .meeting import store_of_torchrun
from .starting import start
from .together import Alone, Ranks, Together

_STORE_TIMEOUT = 60.0
_SAID_EVERY = 60.0  # seconds of waiting for others


def ranks_of_torchrun(task: str) -> AbstractContextManager[Together | Alone]:
    """The ranks that torchrun started, if there is more than one."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2 or "RANK" not in os.environ:
        return Alone()
    return Together(start().get_group(), task)


def is_begun(ranks: Ranks, work: str) -> bool:
    """Whether these ranks have begun a piece of work before: torchrun has started them again, as one was lost."""
    return isinstance(ranks, Together) and _store_of_all_attempts().check([f"torchsrk/begun/{work}"])


def note_begun(ranks: Ranks, work: str) -> None:
    """They have begun it now."""
    if isinstance(ranks, Together):
        _store_of_all_attempts().set(f"torchsrk/begun/{work}", "begun")


def _store_of_all_attempts() -> dist.Store:
    return store_of_torchrun(_STORE_TIMEOUT)[0]


def claimed(ranks: Ranks, pieces: Sequence[str], is_done: Callable[[str], bool]) -> Iterator[str]:
    """The pieces that this rank takes: no two take one, and what is done is taken by none."""
    for place in _places(ranks, len(pieces)):
        ranks.look()
        if not is_done(pieces[place]):
            yield pieces[place]


def _places(ranks: Ranks, count: int) -> Iterator[int]:
    if not isinstance(ranks, Together):
        yield from range(count)
        return
    while (place := ranks.count("claimed") - 1) < count:
        yield place


def wait_for(ranks: Ranks, pieces: Sequence[str], is_done: Callable[[str], bool]) -> None:
    """Until all are done. However long a piece takes: a rank that is lost ends the others, and what is waited for is
    said."""
    said = time.monotonic()
    while left := [piece for piece in pieces if not is_done(piece)]:
        ranks.look()
        if time.monotonic() - said > _SAID_EVERY:
            said = time.monotonic()
            print(f"rank {ranks.rank} waits for {len(left)} of {len(pieces)}: {', '.join(left[:3])}", file=sys.stderr)
        time.sleep(0.2)
