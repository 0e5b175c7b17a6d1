"""What the draws of a posterior tell: a table of its parameters, whether they can be trusted, and a figure."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..diagnostics import diagnose
from ..plots import posterior_figure
from ..sampling import Run
from ..tuning import Tuning
from .base import Row
from .plots import save

# Columns of the table that is read; the CSV has all.
_SHOWN = ("name", "mean", "error", "sd", "q5", "q50", "q95", "ess", "nested_rhat", "bias_mean", "bias_sd")


@dataclass(frozen=True)
class PosteriorSummary:
    """What is written of a posterior.

    Attributes:
        rows: of the table, one a parameter.
        diagnosis: what speaks for the draws and what against, in words.
        troubles: what speaks against them; they are trusted if there is none.
        draw: draws the figure into a file.
    """

    rows: list[Row]
    diagnosis: str
    troubles: list[str]
    draw: Callable[[Any], None]

    @property
    def trusted(self) -> bool:
        return not self.troubles


def summarized(
    run: Run, tuning: Tuning, parameters: Callable[[Tensor], Tensor], names: Sequence[str]
) -> PosteriorSummary:
    """Of a run of a plan; ``parameters`` are read of its positions, (..., dim) to (..., parameters)."""
    with warnings.catch_warnings():
        # Told by the summary, and by the command's last line.
        warnings.filterwarnings("ignore", "these draws should not be trusted", RuntimeWarning)
        diagnosis = diagnose(run, tuning=tuning, parameters=parameters, names=names)
    return PosteriorSummary(
        rows=diagnosis.rows(),
        diagnosis=diagnosis.words,
        troubles=diagnosis.troubles,
        draw=lambda file: save(posterior_figure(run, diagnosis=diagnosis), file),
    )


def parameter_names(event_shape: Sequence[int]) -> list[str]:
    """x for a number, x[0] and so on for the entries of a vector or an array."""
    if not event_shape:
        return ["x"]
    places = itertools.product(*(range(size) for size in event_shape))
    return [f"x[{','.join(map(str, place))}]" for place in places]


def as_markdown(rows: Sequence[Row], most: int) -> list[str]:
    """The table, in four digits; the CSV has all rows and digits."""
    head = [name for name in _SHOWN if name in rows[0]]
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    for row in rows[:most]:
        name, *numbers = (row[key] for key in head)
        lines.append(f"| {str(name).replace('|', '')} | {' | '.join(f'{number:.4g}' for number in numbers)} |")
    if len(rows) > most:
        lines += ["", f"The first {most} of {len(rows)} parameters: summary.csv has all of them."]
    return lines
