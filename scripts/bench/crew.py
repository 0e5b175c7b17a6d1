"""The workers, and races between them: contenders take turns, so that what disturbs the machine disturbs them alike.

Every contender has a process of its own. Thread pools don't meet then, double precision is a setting of the whole
process in jax, and a crash costs one row.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cases import Case, Entry
from worker import serve

_LONGEST_ANSWER = 600.0
# Between turns: longer than an OpenMP thread spins in wait for more work before it sleeps, a few milliseconds.
_PAUSE = 0.02


class ContenderError(RuntimeError):
    """A contender could not do it; the message is the reason."""


class Worker:
    """The parent's end of a worker process."""

    def __init__(self, environment: dict[str, str]) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, environment))
        self._process.start()
        theirs.close()  # so that a death of the worker ends the wait for its answer

    def ask(self, method: str, *arguments: Any) -> Any:
        """The result of a method of the worker's."""
        try:
            self._connection.send((method, arguments))
            if not self._connection.poll(_LONGEST_ANSWER):
                self.close()
                raise ContenderError(f"no answer in {_LONGEST_ANSWER:.0f} s")
            succeeded, result = self._connection.recv()
        except (EOFError, OSError) as error:
            self._process.join(1.0)
            raise ContenderError(f"its process ended with code {self._process.exitcode}") from error
        if not succeeded:
            raise ContenderError(result)
        return result

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def close(self) -> None:
        """End the process: kindly, which leaves nothing behind, or else by force."""
        self._connection.close()
        self._process.join(5.0)
        self._process.kill()
        self._process.join()


@dataclass
class Outcome:
    """How a contender did in a race."""

    steps: int = 0
    first_call: float = 0.0
    seconds: list[float] = field(default_factory=list)  # of a step, round by round
    failed: str = ""
    same_law: float | None = None  # distance to the reference's second moment, in standard errors


class Crew:
    """Starts workers as they are needed; one generation at a time, for one precision and environment.

    Args:
        rounds: turns of every contender.
        run_seconds: how long a turn is made to take, by its number of steps.
        most_seconds: a race that would take longer a contender has fewer rounds, but at least three.
    """

    def __init__(self, rounds: int, run_seconds: float, most_seconds: float, environment: dict[str, str]) -> None:
        self.rounds, self.run_seconds, self.most_seconds = rounds, run_seconds, most_seconds
        self._environment = environment
        self._workers: dict[str, Worker] = {}
        self._dtype = ""

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self.dismiss()

    def dismiss(self) -> None:
        """End all workers."""
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()

    def worker(self, name: str, dtype: str) -> Worker:
        """The worker of this name, started if need be."""
        if dtype != self._dtype:
            self.dismiss()
            self._dtype = dtype
        if name not in self._workers or not self._workers[name].alive:
            x64 = {"JAX_ENABLE_X64": "1"} if dtype == "float64" else {}
            self._workers[name] = Worker({**self._environment, **x64})
        return self._workers[name]

    def hire(self, environment: dict[str, str]) -> Worker:
        """A worker of its own, for the caller to close, with some more of the environment set."""
        return Worker({**self._environment, **environment})

    def ask(self, entry: Entry, method: str, *arguments: Any) -> Any:
        """A request about an entry that was prepared."""
        return self.worker(entry.process_name, entry.case.dtype).ask(method, entry.label, *arguments)

    def race(self, entries: Sequence[Entry], check_law: bool = True) -> dict[str, Outcome]:
        """Prepare all, run them in turns, and compare their laws."""
        for name in {entry.process_name for entry in entries}:
            self._clear(name, entries[0].case.dtype)
        outcomes = {entry.label: self._prepared(entry) for entry in entries}

        def able() -> list[Entry]:
            return [entry for entry in entries if not outcomes[entry.label].failed]

        round_seconds = sum(self._warm_up(entry, outcomes[entry.label]) for entry in able())
        rounds = min(self.rounds, max(3, int(self.most_seconds * len(entries) / max(round_seconds, 1e-9))))
        for number in range(rounds):
            contenders = able()
            first = number % max(1, len(contenders))  # nobody always follows the same one
            for entry in contenders[first:] + contenders[:first]:
                self._turn(entry, outcomes[entry.label])
        if check_law:
            self._compare_laws(able(), outcomes)
        return outcomes

    def prepare(self, entry: Entry) -> float:
        """Build an entry's contender in its worker; the seconds of its first call."""
        return self.ask(entry, "prepare", entry.contender, entry.case, first_steps(entry.case))

    def _clear(self, name: str, dtype: str) -> None:
        try:
            self.worker(name, dtype).ask("clear")
        except ContenderError:
            self._workers.pop(name).close()  # the next request starts another

    def _prepared(self, entry: Entry) -> Outcome:
        try:
            first_call = self.prepare(entry)
            steps = self.ask(entry, "calibrate", first_steps(entry.case), self.run_seconds)
        except ContenderError as error:
            return Outcome(failed=str(error))
        return Outcome(steps, first_call)

    def _warm_up(self, entry: Entry, outcome: Outcome) -> float:
        """A turn that does not count; its seconds. Too short a one shows that the machine was busy when steps were
        chosen: they are chosen again, lest the cost of a call be taken for that of its steps."""
        time.sleep(_PAUSE)
        try:
            seconds = self.ask(entry, "time", outcome.steps)
            if seconds < 0.5 * self.run_seconds:
                outcome.steps = self.ask(entry, "calibrate", outcome.steps, self.run_seconds)
        except ContenderError as error:
            outcome.failed = str(error)
            return 0.0
        return max(seconds, self.run_seconds)

    def _turn(self, entry: Entry, outcome: Outcome) -> None:
        time.sleep(_PAUSE)
        try:
            outcome.seconds.append(self.ask(entry, "time", outcome.steps) / outcome.steps)
        except ContenderError as error:
            outcome.failed = str(error)

    def _compare_laws(self, entries: Sequence[Entry], outcomes: dict[str, Outcome]) -> None:
        """Schemes of one order start from one point with one step size: their second moments must agree at any time.

        The first entry of a scheme is the reference. At time 8, where that is affordable: the targets are stationary
        by then.
        """
        for scheme in {entry.case.scheme for entry in entries}:
            rivals = [entry for entry in entries if entry.case.scheme == scheme]
            slowest = max(min(outcomes[entry.label].seconds) for entry in rivals)
            enough = round(8.0 / rivals[0].case.step_size)
            steps = max(2, min(enough, int(5 * self.run_seconds / slowest)))
            reference: tuple[float, float] | None = None
            for entry in rivals:
                try:
                    mean, error = self.ask(entry, "square_norm", steps)
                except ContenderError as failure:
                    outcomes[entry.label].failed = str(failure)
                    continue
                reference = reference or (mean, error)
                outcomes[entry.label].same_law = (mean - reference[0]) / float(np.hypot(error, reference[1]))


def first_steps(case: Case) -> int:
    """Steps of the first call: those between two of torchsrk's checks, or one where a step is slow."""
    return 16 if case.particles * case.problem.size < 5e7 else 1
