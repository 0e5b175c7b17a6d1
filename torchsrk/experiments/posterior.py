"""What the draws of a posterior tell: a table of its parameters, whether they can be trusted, and a figure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from ..sampling import Run
from ..tuning import Tuning
from .base import Row
from .plots import COLORS, panels, save

_QUANTILES = {"5%": 0.05, "50%": 0.5, "95%": 0.95}
_MOST_SHOWN = 8  # parameters, of the figure


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
    assert run.trajectory is not None
    values, report = parameters(run.trajectory).double().cpu().numpy(), tuning.report
    return PosteriorSummary(
        rows=[_row(name, values[..., i]) for i, name in enumerate(names)],
        diagnosis=str(report),
        troubles=report.troubles,
        draw=lambda file: _figure(file, values, names),
    )


def parameter_names(event_shape: Sequence[int]) -> list[str]:
    """x for a number, x[0] and so on for the entries of a vector or an array."""
    if not event_shape:
        return ["x"]
    places = itertools.product(*(range(size) for size in event_shape))
    return [f"x[{','.join(map(str, place))}]" for place in places]


def as_markdown(rows: Sequence[Row], most: int) -> list[str]:
    """The table, in four digits; the CSV has all rows and digits."""
    head = list(rows[0])
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    for row in rows[:most]:
        name, *numbers = row.values()
        lines.append(f"| {str(name).replace('|', '')} | {' | '.join(f'{number:.4g}' for number in numbers)} |")
    if len(rows) > most:
        lines += ["", f"The first {most} of {len(rows)} parameters: summary.csv has all of them."]
    return lines


def _row(name: str, values: Any) -> Row:
    """Of values (draws, particles). Particles are independent: their means tell how well the mean is known."""
    error = values.mean(0).std(ddof=1) / np.sqrt(values.shape[1])
    row = {"parameter": name, "mean": float(values.mean()), "error": float(error), "sd": float(values.std(ddof=1))}
    quantiles = np.quantile(values, list(_QUANTILES.values()))
    return row | {title: float(quantile) for title, quantile in zip(_QUANTILES, quantiles, strict=True)}


def _figure(file: Any, values: Any, names: Sequence[str]) -> None:
    """A row a parameter: its marginal, and the mean of all particles by draw with a band of two standard errors."""
    shown, bins = min(len(names), _MOST_SHOWN), max(10, min(60, round(values[..., 0].size ** 0.5)))
    figure, axes = panels(2 * shown, width=4.6, height=1.9, columns=2)
    draws, particles = values.shape[:2]
    number = np.arange(1, draws + 1)
    for i, (marginal, trace) in enumerate(zip(axes[::2], axes[1::2], strict=True)):
        values_of = values[..., i]
        low, high = np.quantile(values_of, [0.001, 0.999])
        if low < high:  # a far tail would squeeze all else
            marginal.hist(values_of.ravel(), bins=bins, range=(low, high), density=True, color=COLORS[0], alpha=0.6)
        for quantile in np.quantile(values_of, list(_QUANTILES.values())):
            marginal.axvline(quantile, color="black", linewidth=0.8, linestyle=":")
        marginal.set_yticks([])
        marginal.set_ylabel(names[i])
        means, errors = values_of.mean(1), values_of.std(1) / np.sqrt(particles)
        trace.fill_between(number, means - 2.0 * errors, means + 2.0 * errors, color=COLORS[0], alpha=0.25, linewidth=0)
        trace.plot(number, means, color=COLORS[0], marker="o" if draws <= 50 else None, markersize=3)
        trace.axhline(values_of.mean(), color="black", linewidth=0.8, linestyle=":")
        trace.set_xlim(0.5, draws + 0.5)
        trace.xaxis.get_major_locator().set_params(integer=True)
    axes[0].set_title("marginals; 5, 50 and 95 %", fontsize=10)
    axes[1].set_title(f"means of {particles} particles, ± 2 standard errors", fontsize=10)
    axes[-1].set_xlabel("draw")
    if shown < len(names):
        figure.suptitle(f"the first {shown} of {len(names)} parameters", fontsize=10)
    save(figure, file)
