"""How the ranks of one attempt find each other in a store that may hold what an earlier attempt has left.

torchrun keeps one store for all its attempts. A rank that reads there what a dead one has written (an address, an
error, a count) waits for nobody, or fails for nothing. So every attempt has a name of its own, under which all that it
writes is kept. torchrun counts restarts, but each node for itself.
"""

from __future__ import annotations

import json
import secrets
import time
from datetime import timedelta

import torch.distributed as dist

from .together import RankError

_HELLO, _SESSION, _PAUSE = "torchsrk/hello", "torchsrk/session", 0.02


def met(store: dist.Store, rank: int, size: int, timeout: float) -> dist.Store:
    """The part of a store that belongs to the ranks which are there now.

    Every rank leaves a token that is new. The first names a session after those that it sees, until each of the others
    has found its own among them: those of dead ranks are replaced as the living come.
    """
    mine, deadline = secrets.token_hex(8), time.monotonic() + timeout
    name = _led(store, size, mine, deadline) if rank == 0 else _followed(store, rank, mine, deadline)
    return dist.PrefixStore(f"torchsrk/{name}", store)


def _led(store: dist.Store, size: int, name: str, deadline: float) -> str:
    seen: dict[str, str] = {}
    while True:
        found = {str(r): store.get(f"{_HELLO}/{r}").decode() for r in range(1, size) if store.check([f"{_HELLO}/{r}"])}
        if found != seen or not seen:
            seen = found
            store.set(_SESSION, json.dumps({"name": name, "ranks": seen}))
        # An answer is to one token, so that none is a dead rank's.
        missing = [r for r in range(1, size) if not _has_answered(store, name, seen.get(str(r)))]
        if not missing:
            return name
        _check_time(deadline, f"rank 0 waits for rank {', '.join(map(str, missing))} to start")


def _has_answered(store: dist.Store, name: str, token: str | None) -> bool:
    return token is not None and store.check([f"torchsrk/answer/{name}/{token}"])


def _followed(store: dist.Store, rank: int, mine: str, deadline: float) -> str:
    store.set(f"{_HELLO}/{rank}", mine)
    while True:
        if store.check([_SESSION]):
            session = json.loads(store.get(_SESSION).decode())
            if session["ranks"].get(str(rank)) == mine:
                store.set(f"torchsrk/answer/{session['name']}/{mine}", "here")
                return session["name"]
        _check_time(deadline, f"rank {rank} waits for rank 0 to start")


def _check_time(deadline: float, waiting: str) -> None:
    if time.monotonic() > deadline:
        raise RankError(f"{waiting}, and it did not come in time")
    time.sleep(_PAUSE)


def store_of_torchrun(timeout: float) -> tuple[dist.Store, int, int]:
    """The store that torchrun's ranks share, the number of this one, and how many there are."""
    store, rank, size = next(dist.rendezvous("env://", timeout=timedelta(seconds=timeout)))
    return store, rank, size
