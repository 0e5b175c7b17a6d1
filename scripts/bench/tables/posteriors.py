"""Posteriors, beside the samplers that a user would pick instead: from the call to draws that are right."""

from __future__ import annotations

from crew import ContenderError, Crew, Worker
from effective import smallest_ess
from models import FILES, model
from posteriors_text import SLOW, render
from reference import reference_of
from samplers import NAMES, NUMPYRO, PYRO, TORCHSRK, TORCHSRK_EAGER, environment
from trial import Reference

__all__ = ["TITLE", "measure", "plan", "render"]

TITLE = "Posteriors"
LIMIT, QUICK_LIMIT = 60.0, 30.0
_ROUNDS = 3
_DRAWS, _QUICK_DRAWS = 4000, 500  # of each of the reference's chains
_QUICK = (TORCHSRK, TORCHSRK_EAGER, NUMPYRO, PYRO)


def plan(quick: bool) -> dict[str, tuple[str, bool]]:
    return {file: (file, quick) for file in (FILES[:1] if quick else FILES)}


def measure(case: tuple[str, bool], crew: Crew) -> dict:
    file, quick = case
    crew.dismiss()
    row: dict = {"model": model(file).NAME, "dim": model(file).DIM, "failed": "", "outcomes": {}}
    try:
        row["twins"] = _asked(crew, "models", "check_twins", file)
        reference = reference_of(file, _QUICK_DRAWS if quick else _DRAWS, crew)
    except ContenderError as error:
        return {**row, "failed": str(error)}
    row["reference"] = {name: getattr(reference, name) for name in ("draws", "mean_error", "sd_error")}
    rounds, limit = min(_ROUNDS, crew.rounds), QUICK_LIMIT if quick else LIMIT
    row |= {"rounds": rounds, "limit": limit}
    contenders = [_Contender(name, file, limit, reference, crew) for name in (_QUICK if quick else NAMES)]
    try:
        for number in range(1 + rounds):  # the first call, and the rounds
            first = number % len(contenders)  # nobody always follows the same one
            for contender in contenders[first:] + contenders[:first]:
                contender.turn(number)
    finally:
        for contender in contenders:
            contender.close()
    return {**row, "outcomes": {contender.name: contender.outcome for contender in contenders}}


def _asked(crew: Crew, *request: str) -> object:
    """The answer of a worker for this one question."""
    worker = crew.hire({"JAX_ENABLE_X64": "1"})
    try:
        return worker.ask("call", *request)
    finally:
        worker.close()


class _Contender:
    """A sampler in its own process, and what is known of it."""

    def __init__(self, name: str, file: str, limit: float, reference: Reference, crew: Crew) -> None:
        self.name, self._limit, self._reference = name, limit, reference
        self.outcome: dict = {"failed": "", "calls": []}
        self._worker: Worker = crew.hire(environment(name))
        self._ask("prepare", file)

    def turn(self, number: int) -> None:
        """A call with another seed, unless one was too slow for more."""
        calls = self.outcome["calls"]
        late = any(call["limit"] for call in calls) or any(call["seconds"] > SLOW for call in calls[1:])
        if self.outcome["failed"] or late:
            return
        found = self._ask("call", 1 + number, self._limit, self._reference)
        if found is not None:
            draws = found.pop("draws")
            found["ess"] = None if draws is None else smallest_ess(draws)
            calls.append(found)

    def close(self) -> None:
        self._worker.close()

    def _ask(self, function: str, *arguments: object):
        if self.outcome["failed"]:
            return None
        try:
            return self._worker.ask("call", "trial", function, self.name, *arguments)
        except ContenderError as error:
            self.outcome["failed"] = str(error)
            return None
