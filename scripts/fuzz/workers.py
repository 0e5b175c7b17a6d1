"""Programs in processes of their own: generated C may crash, or take for ever to compile."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from .programs import Program, draw_program

_PROGRAMS = 100  # of a process, which keeps every library that it loaded
_STARTING = 120.0


@dataclass(frozen=True)
class Result:
    """What became of a program: "compiled", "eager", "raises", "wrong", "crash" or "timeout"; ``detail`` says more."""

    seed: int
    kind: str
    detail: str = ""


Setup = Callable[[], None]
Draw = Callable[[int, str], Program]


def serve(connection: Connection, errors: str, dtype: str, setup: Setup | None, draw: Draw) -> None:
    """A worker: answers seeds with results until None comes."""
    os.setsid()  # so that a compiler which it started can be ended with it
    with open(errors, "w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 2)
    import torch
    from tqdm import tqdm

    torch.set_num_threads(1)
    tqdm.set_lock(threading.RLock())  # its own outlives a process that is killed
    if setup is not None:
        setup()
    connection.send(None)
    while (seed := connection.recv()) is not None:
        connection.send(examine(seed, dtype, draw))


def examine(seed: int, dtype: str, draw: Draw = draw_program) -> Result:
    """Draw a program, run it both ways and compare."""
    import torch

    from .compare import compare

    before = torch.get_default_dtype()
    try:
        namespace = draw(seed, dtype).build()
        verdict = compare(*(namespace[name] for name in ("sde", "x0", "options")))
    finally:
        torch.set_default_dtype(before)
    if verdict.wrong:
        return Result(seed, "wrong", verdict.wrong + (f" (eager, as {verdict.reason})" if verdict.reason else ""))
    if verdict.raises:
        return Result(seed, "raises")
    return Result(seed, "eager", verdict.reason) if verdict.reason else Result(seed, "compiled")


class Worker:
    """The parent's end of a worker process."""

    def __init__(self, dtype: str, setup: Setup | None, draw: Draw, folder: Path, timeout: float) -> None:
        self._timeout = timeout
        handle, self._errors = tempfile.mkstemp(dir=folder, suffix=".err")
        os.close(handle)
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, self._errors, dtype, setup, draw), daemon=True)
        self._process.start()
        theirs.close()  # so that its death ends the wait for its answer
        self.left = _PROGRAMS
        if not self._connection.poll(_STARTING):
            raise RuntimeError("a worker did not start")
        try:
            self._connection.recv()
        except EOFError as error:
            raise RuntimeError(f"a worker did not start: {self._last_words()}") from error

    def ask(self, seed: int) -> Result:
        self.left -= 1
        self._connection.send(seed)
        try:
            if self._connection.poll(self._timeout):
                return self._connection.recv()
            result = Result(seed, "timeout", f"no answer in {self._timeout:.0f} s")
        except (EOFError, OSError):
            self._process.join(5.0)
            result = Result(seed, "crash", f"code {self._process.exitcode}: {self._last_words()}")
        self.left = 0
        return result

    def close(self) -> None:
        """End the process and what it started."""
        try:
            self._connection.send(None)
            self._process.join(0.0 if self.left == 0 else 2.0)
        except OSError:
            pass
        pid = self._process.pid
        if pid is not None and self._process.is_alive():
            try:
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:
                self._process.kill()
        self._process.join()
        self._connection.close()

    def _last_words(self) -> str:
        """The lines of the standard error that say what happened, a sanitizer's first."""
        time.sleep(0.1)
        lines = Path(self._errors).read_text(encoding="utf-8", errors="replace").splitlines()
        told = [line for line in lines if "runtime error" in line or "ERROR: AddressSanitizer" in line]
        frames = [line.strip() for line in lines if line.lstrip().startswith(("#0", "#1", "#2"))]
        return " / ".join([*told, *frames[:3]] or lines[-3:])[:600]


def examine_all(
    seeds: Sequence[int],
    *,
    dtype: str,
    jobs: int,
    folder: Path,
    timeout: float,
    setup: Setup | None = None,
    draw: Draw = draw_program,
) -> Iterator[Result]:
    """The results of all seeds, as they come.

    Args:
        folder: for what workers write to their standard error.
        timeout: seconds a program.
        setup: what a worker does first.
        draw: makes the program of a seed.
    """
    waiting: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    results: queue.SimpleQueue[Result | BaseException] = queue.SimpleQueue()
    for seed in (*seeds, *[None] * jobs):
        waiting.put(seed)
    stop = threading.Event()

    def look_after_one() -> None:
        worker: Worker | None = None
        try:
            while not stop.is_set() and (seed := waiting.get()) is not None:
                worker = worker or Worker(dtype, setup, draw, folder, timeout)
                results.put(worker.ask(seed))
                if worker.left == 0:
                    worker.close()
                    worker = None
        except BaseException as error:
            results.put(error)
        finally:
            if worker is not None:
                worker.close()

    threads = [threading.Thread(target=look_after_one) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    try:
        for _ in seeds:
            result = results.get()
            if isinstance(result, BaseException):
                raise result
            yield result
    finally:
        stop.set()
        for thread in threads:
            thread.join()
