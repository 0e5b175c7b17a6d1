"""One call of a sampler: how long it takes to come to its draws, and how far they are from a reference."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from samplers import Chunk, Sampler, builder

MEAN_WITHIN, SD_WITHIN = 0.1, 0.05  # standard deviations, and relative
BIAS = 0.01  # of a second moment, squared, over its variance

_samplers: dict[str, Sampler] = {}


@dataclass(frozen=True)
class Reference:
    """Moments of a posterior, coordinate by coordinate, and how well they are known.

    Attributes:
        mean, sd: (dim,).
        second, second_variance: of squares, E x² and Var x².
        draws: how many they are from.
        mean_error, sd_error: the largest standard errors, in standard deviations.
    """

    mean: np.ndarray
    sd: np.ndarray
    second: np.ndarray
    second_variance: np.ndarray
    draws: int
    mean_error: float
    sd_error: float

    def badness(self, second: Any) -> Any:
        """The squared bias of a second moment over its variance, the largest of all coordinates."""
        return ((second - self.second) ** 2 / self.second_variance).max()


@dataclass
class Trial:
    """What a call came to.

    Attributes:
        seconds, gradients, mean_error, sd_error: of a run as users make it, gradients a chain with the warm-up.
        draws: of that run, (draws, chains, dim).
        accurate: seconds of the shortest run that is accurate.
        below: gradients a chain after which the bias of second moments stays below its bound.
        limit: what there was when the time was over, if it was.
        note: what the sampler says of its draws.
    """

    seconds: float | None = None
    gradients: float | None = None
    mean_error: float | None = None
    sd_error: float | None = None
    draws: np.ndarray | None = None
    accurate: float | None = None
    below: float | None = None
    limit: str = ""
    note: str = ""
    _chunks: list[Chunk] = field(default_factory=list, repr=False)


def prepare(name: str, file: str) -> None:
    """Import a library and build its sampler of a posterior; nothing is compiled yet."""
    _samplers[name] = builder(name)(file)


def call(name: str, seed: int, limit: float, reference: Reference) -> dict:
    """A trial, as a dictionary."""
    found = measured(_samplers[name], seed, limit, reference)
    return {key: value for key, value in asdict(found).items() if not key.startswith("_")}


def measured(sampler: Sampler, seed: int, limit: float, reference: Reference) -> Trial:
    """Run until there are as many draws as users make and they are accurate, or until the limit.

    The clock stands while draws are judged.
    """
    found, seconds, chunks = Trial(), 0.0, sampler.run(seed, limit)
    spent = 0.0  # of this call in all, by runs that stand alone as well
    while found.seconds is None or found.accurate is None:
        start = time.perf_counter()
        try:
            chunk = next(chunks)
        except (StopIteration, TimeoutError) as end:
            found.limit = str(end) or "no more draws"
            break
        elapsed = time.perf_counter() - start
        spent += elapsed
        seconds = elapsed if chunk.alone else seconds + elapsed
        found._chunks = [chunk] if chunk.alone else [*found._chunks, chunk]
        _judge(found, sampler, seconds, spent > limit, reference)
        if spent > limit:
            found.limit = f"{_count(found._chunks)} draws in {spent:.0f} s"
            break
    found._chunks = []
    return found


def _judge(found: Trial, sampler: Sampler, seconds: float, over: bool, reference: Reference) -> None:
    draws = np.concatenate([chunk.draws for chunk in found._chunks])
    gradients = np.concatenate([chunk.gradients for chunk in found._chunks])
    mean_error, sd_error = errors(draws, reference)
    if found.accurate is None and mean_error <= MEAN_WITHIN and sd_error <= SD_WITHIN:
        found.accurate = seconds
    if found.seconds is None and (len(draws) >= sampler.draws or over):
        found.seconds, found.gradients = seconds, float(gradients[-1])
        found.mean_error, found.sd_error = mean_error, sd_error
        found.draws, found.note = draws, found._chunks[-1].note
        means = np.square(draws).mean(1).cumsum(0) / np.arange(1, len(draws) + 1)[:, None]
        taken, seconds = found._chunks[-1].path or (gradients, means)
        found.below = staying_below(taken, [reference.badness(second) for second in seconds])


def errors(draws: np.ndarray, reference: Reference) -> tuple[float, float]:
    """The worst error of a mean, in standard deviations, and of a standard deviation, relative."""
    flat = draws.reshape(-1, draws.shape[-1])
    mean = np.abs((flat.mean(0) - reference.mean) / reference.sd).max()
    return float(mean), float(np.abs(flat.std(0) / reference.sd - 1.0).max())


def staying_below(gradients: Sequence[float], values: Sequence[float]) -> float | None:
    """The first of ``gradients`` from which on all values are below the bound."""
    last_above = max((i for i, value in enumerate(values) if not value < BIAS), default=-1)
    return float(gradients[last_above + 1]) if last_above + 1 < len(values) else None


def _count(chunks: Sequence[Chunk]) -> int:
    return sum(len(chunk.draws) for chunk in chunks)
