"""A process that runs contenders when told to, and sleeps in between."""

from __future__ import annotations

import os
import time
import warnings
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from cases import Case, Run

_CALIBRATIONS = 5


def serve(connection: Connection, environment: dict[str, str]) -> None:
    """Answer requests (method, arguments) with (True, result) or (False, reason) until the other end closes."""
    os.environ.update(environment)  # before any library is imported and reads it
    warnings.simplefilter("ignore", FutureWarning)  # the libraries' worries about one another's next versions
    bench = _Bench()
    while True:
        try:
            method, arguments = connection.recv()
        except EOFError:
            return
        try:
            connection.send((True, getattr(bench, method)(*arguments)))
        except Exception as error:  # whatever a library raises is a row of the table
            lines = str(error).strip().splitlines() or [""]
            connection.send((False, f"{type(error).__name__}: {lines[0]}"))


def whole_draws(steps: float) -> int:
    """Steps in multiples of 16, where that is but a little off: contenders that take several at once waste none."""
    return max(1, int(steps)) if steps < 32 else round(steps / 16) * 16


class _Bench:
    """The contenders prepared in this process, by label."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}

    def clear(self) -> None:
        """Forget all that was prepared."""
        self._runs.clear()

    def call(self, module: str, function: str, *arguments: Any) -> Any:
        """A function of a module that is imported here alone."""
        return getattr(import_module(module), function)(*arguments)

    def prepare(self, label: str, contender: str, case: Case, steps: int) -> float:
        """Build a contender; the seconds of its first call, compilation included."""
        from contenders import builder

        self._runs[label] = builder(contender)(case)
        return self.time(label, steps)

    def calibrate(self, label: str, steps: int, seconds: float) -> int:
        """Steps for a run of about these seconds.

        In several rounds: the cost of a call, which short runs are mostly made of, makes steps look dear at first.
        """
        for more in reversed(range(_CALIBRATIONS)):
            # The better of two: the first run with a number of steps may compile for it, and any may be disturbed.
            elapsed = min(self.time(label, steps) for _ in range(2))
            if elapsed > 0.6 * seconds or not more:
                break
            steps = whole_draws(steps * seconds / elapsed)
        return steps

    def time(self, label: str, steps: int) -> float:
        """Seconds of a run."""
        run = self._runs[label]
        start = time.perf_counter()
        run(steps)
        return time.perf_counter() - start

    def processor_seconds(self, label: str, steps: int) -> float:
        """Seconds of the processor, of all threads, that a run takes."""
        run = self._runs[label]
        start = time.process_time()
        run(steps)
        return time.process_time() - start

    def state(self, label: str, steps: int, seed: int, start: np.ndarray | None) -> np.ndarray:
        """The state after a run."""
        return np.asarray(self._runs[label](steps, seed=seed, start=start))

    def square_norm(self, label: str, steps: int) -> tuple[float, float]:
        """E‖x‖² over the particles after a run, and its standard error."""
        values = np.square(self.state(label, steps, 0, None).astype(float)).sum(-1)
        return float(values.mean()), float(values.std() / np.sqrt(len(values)))
