"""Work that all ranks do together: an error of one ends it for all, and who waits too long says for what."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

_POLL = 0.25  # seconds between looks at whether another rank has failed
_SAID_AFTER = 1.0  # seconds of waiting after which a rank tells the others where it is
_timeout = 1800.0
_entered: Counter[str] = Counter()  # how many pieces of work each group has begun: the same on all of its ranks
_broken: dict[str, str] = {}  # groups whose ranks no longer meet in the same collectives, and why


class RankError(RuntimeError):
    """Another rank failed, was lost, or did not come in time.

    Args:
        message: what happened, in words.

    Attributes:
        rank: which one, where that is known.
    """

    def __init__(self, message: str, rank: int | None = None) -> None:
        super().__init__(message)
        self.rank = rank


def set_timeout(seconds: float) -> None:
    """How long a rank waits for the others before it raises a RankError that says for what.

    Args:
        seconds: from now on, in this process.
    """
    global _timeout
    if not seconds > 0.0:
        raise ValueError(f"a timeout is a positive number of seconds; got {seconds!r}")
    _timeout = float(seconds)


class Ranks(Protocol):
    """Who shares the work: the ranks of a process group, or this process alone."""

    rank: int
    size: int

    def look(self) -> None:
        """Raise if another rank has failed; cheap enough to be called often."""

    def gathered(self, x: Tensor, what: str) -> list[Tensor]:
        """The tensors of all ranks, which have one shape."""

    def summed(self, x: Tensor, what: str) -> Tensor:
        """The sum over ranks of whole numbers, which is exact in any order."""

    def exchanged(self, pieces: Sequence[Tensor], counts: Sequence[int], what: str) -> list[Tensor]:
        """Rows for every rank go there, and ``counts`` rows of every rank come."""


def check_same(ranks: Ranks, given: Mapping[str, object]) -> None:
    """One clear error if ranks were given different things: each by itself would run on, to numbers that do not fit."""
    mine = [hashlib.sha256(f"{value!r}".encode()).digest() for value in given.values()]
    digests = torch.frombuffer(bytearray(b"".join(mine)), dtype=torch.uint8).view(len(mine), -1)
    for rank, theirs in enumerate(ranks.gathered(digests, "what the ranks were given")):
        other = (theirs != digests).any(-1).tolist()
        if any(other):
            names = ", ".join(name for name, is_other in zip(given, other, strict=True) if is_other)
            raise ValueError(f"all ranks are given the same; ranks {ranks.rank} and {rank} have different: {names}")


class Alone:
    """One process."""

    rank, size = 0, 1

    def __enter__(self) -> Alone:
        return self

    def __exit__(self, *error: object) -> None: ...

    def look(self) -> None: ...

    def gathered(self, x: Tensor, what: str) -> list[Tensor]:
        return [x]

    def summed(self, x: Tensor, what: str) -> Tensor:
        return x

    def exchanged(self, pieces: Sequence[Tensor], counts: Sequence[int], what: str) -> list[Tensor]:
        return list(pieces)


class Together:
    """Within: a piece of work that all ranks of a group do, and leave together or not at all.

    What one rank raises reaches the others as a RankError: through the store that the group met at, since a rank that
    failed does not come to the collectives that they wait in.

    Args:
        task: what it is, in words for an error.
    """

    def __init__(self, group: dist.ProcessGroup, task: str) -> None:
        self.rank, self.size, self.task = dist.get_rank(group), dist.get_world_size(group), task
        self._group, self._looked = group, time.monotonic()
        self._device = torch.device("cuda" if dist.get_backend(group) == "nccl" else "cpu")
        self._store = dist.distributed_c10d._get_default_store()

    def __enter__(self) -> Together:
        name = self._group.group_name
        if name in _broken:
            raise RankError(
                f"this process group is out of step since it failed ({_broken[name]}): end the process, as torchrun "
                "starts it anew with --max-restarts, or make another group on all ranks"
            )
        _entered[name] += 1
        self._prefix, self._waits = f"torchsrk/{name}/{_entered[name]}", 0
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.gathered(torch.zeros(1, dtype=torch.uint8), f"the end of {self.task}")
            return
        _broken[self._group.group_name] = str(error) or type(error).__name__
        if not isinstance(error, RankError) or error.rank is None:  # what others do not know
            with suppress(RankError):  # the store may be what failed
                self._tell("failed", f"{self.rank}\n{type(error).__name__}: {error}")

    def look(self) -> None:
        now = time.monotonic()
        if now - self._looked >= _POLL:
            self._looked = now
            self._raise_if_failed()

    def count(self, what: str) -> int:
        """How often ranks have asked for this count in this piece of work, this time included."""
        return self._store.add(f"{self._prefix}/count/{what}", 1)

    def gathered(self, x: Tensor, what: str) -> list[Tensor]:
        x = x.detach().contiguous()
        there = x.to(self._device)
        out = [torch.empty_like(there) for _ in range(self.size)]
        self._wait(lambda: dist.all_gather(out, there, group=self._group, async_op=True), what)
        return [part.to(x.device) for part in out]

    def summed(self, x: Tensor, what: str) -> Tensor:
        assert not x.is_floating_point()
        total = x.detach().clone(memory_format=torch.contiguous_format).to(self._device)
        self._wait(lambda: dist.all_reduce(total, group=self._group, async_op=True), what)
        return total.to(x.device)

    def exchanged(self, pieces: Sequence[Tensor], counts: Sequence[int], what: str) -> list[Tensor]:
        like = pieces[0]
        sent = torch.cat(list(pieces)).contiguous().to(self._device)
        came = torch.empty(sum(counts), *like.shape[1:], dtype=like.dtype, device=self._device)
        splits = list(counts), [len(piece) for piece in pieces]
        self._wait(lambda: dist.all_to_all_single(came, sent, *splits, group=self._group, async_op=True), what)
        return list(came.to(like.device).split(list(counts)))

    def _wait(self, begin: Callable[[], Any], what: str) -> None:
        """Until a collective is done."""
        start, pause, said = time.monotonic(), 1e-4, False
        self._waits += 1
        self._raise_if_failed()  # who comes late must not meet those that have given up
        with self.others_may_fail(what):
            work = begin()
            while not work.is_completed():
                waited = time.monotonic() - start
                if waited > _timeout:
                    raise RankError(self._nobody_came(waited, what))
                if waited > _SAID_AFTER and not said:
                    self._tell(f"{self._waits}/{self.rank}", "waits")
                    said = True
                self.look()
                time.sleep(pause)
                pause = min(2.0 * pause, 0.02)
            work.wait()

    @contextmanager
    def others_may_fail(self, what: str) -> Iterator[None]:
        """Around collectives: a rank that is lost is named as what it is."""
        try:
            yield
        except RankError:
            raise
        except RuntimeError as error:  # as gloo says it when a peer's connection ends
            self._raise_if_failed()
            reason = (str(error).splitlines() or [""])[0]
            raise RankError(f"rank {self.rank} lost another rank while it waited for {what}: {reason}") from error

    def _raise_if_failed(self) -> None:
        key = f"{self._prefix}/failed"
        found = self._asked(lambda: self._store.get(key) if self._store.check([key]) else b"")
        if found:
            rank, _, message = found.decode().partition("\n")
            raise RankError(f"rank {rank} failed in {self.task}: {message}", int(rank))

    def _tell(self, key: str, text: str) -> None:
        def told() -> bytes:
            self._store.set(f"{self._prefix}/{key}", text)
            return b""

        self._asked(told)

    def _asked(self, question: Callable[[], bytes]) -> bytes:
        """What the store answers. It never does where the link to it is cut: so another thread waits for it."""
        answer: list[bytes | Exception] = []

        def ask() -> None:
            try:
                answer.append(question())
            except Exception as error:
                answer.append(error)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(_timeout)
        if answer and isinstance(answer[0], bytes):
            return answer[0]
        reason = (str(answer[0]).splitlines() or [""])[0] if answer else f"no answer in {_timeout:.0f} s"
        raise RankError(f"rank {self.rank} lost the store of its process group in {self.task}: {reason}")

    def _nobody_came(self, waited: float, what: str) -> str:
        missing = ""
        others = [rank for rank in range(self.size) if rank != self.rank]

        def absent() -> bytes:
            keys = {rank: f"{self._prefix}/{self._waits}/{rank}" for rank in others}
            return ", ".join(str(rank) for rank, key in keys.items() if not self._store.check([key])).encode()

        with suppress(RankError):  # the store may be out of reach, too
            missing = self._asked(absent).decode()
        who = f"rank {missing} did not come" if missing else "who is missing is not known"
        return f"rank {self.rank} waited {waited:.0f} s for {what}, and {who}. set_timeout allows more"
