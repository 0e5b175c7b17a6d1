"""What was found of a run: a table, findings and a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from torch import Tensor

from ..tuning import Finding, StepBias
from ..tuning.checks import Identities
from ..tuning.report import Judged
from .draws import Parameters
from .worst import worst_first

_MOST_ROWS, _OF_THE_WORST = 40, 20
_HEADINGS = {
    "mean": "mean",
    "error": "± error",
    "sd": "sd",
    "sd_error": "± of sd",
    "q5": "5 %",
    "q50": "50 %",
    "q95": "95 %",
    "ess": "draws worth",
    "nested_rhat": "nested R̂",
    "rhat": "rank R̂",
    "ess_bulk": "bulk ESS",
    "ess_tail": "tail ESS",
    "bias_mean": "bias mean/sd",
    "bias_sd": "bias sd/sd",
}


@dataclass(frozen=True)
class Diagnosis(Judged):
    """What a run is worth, parameter by parameter, and whether anything speaks against it.

    Attributes:
        names: of the parameters.
        draws, particles: kept draws of each particle, and how many of those.
        table: columns (parameters,) by name. Always mean, sd, the quantiles q5, q50 and q95, the Monte Carlo ``error``
            of the mean and ``sd_error`` of the standard deviation, which of a long tail is much larger than √2 of it,
            and ``ess`` = sd²/error², the independent draws that the run is worth for the mean. Where they could be
            told: nested_rhat; rhat, ess_bulk and ess_tail, by ArviZ; bias_mean and bias_sd, what the step size adds to
            the mean, in standard deviations, and to the standard deviation, as a share, each with its ``_error``.
        times, rhat_over_time: numbers of draws, and nested R̂ of so many first ones, (times, parameters).
        energy, energy_error: the mean energy of some kept draws, evenly spread, and its standard errors; or None.
        identities: deviations from E[g] = 0 and E[(x - x̄)g] = 1 in standard errors, coordinate by coordinate of the
            diffusion; or None.
        bias: what a step size does, as measured for this run; or None.
        tolerance: the bias and the drift allowed, in standard deviations.
        parameters: that took positions to what was looked at.
        findings: what was looked at, each with whether it is fine.
        left_out: what could not be looked at, and why.
    """

    names: tuple[str, ...]
    draws: int
    particles: int
    table: dict[str, Tensor]
    times: tuple[int, ...]
    rhat_over_time: Tensor
    energy: Tensor | None
    energy_error: Tensor | None
    identities: Identities | None
    bias: StepBias | None
    tolerance: float
    parameters: Parameters | None
    findings: tuple[Finding, ...]
    left_out: tuple[str, ...]

    @property
    def worst(self) -> list[str]:
        """The names of all parameters, those first that troubles name, or that are the worst by what is measured."""
        return [self.names[k] for k in self._worst()]

    def _worst(self) -> list[int]:
        return worst_first(self.names, self.table, self.findings)

    def rows(self) -> list[dict[str, float | str]]:
        """The table, a dict for every parameter."""
        columns = {name: column.tolist() for name, column in self.table.items()}
        return [{"name": name} | {key: columns[key][k] for key in columns} for k, name in enumerate(self.names)]

    def __str__(self) -> str:
        lines = [f"{self.draws:,} draws of {self.particles:,} particles", *self._table_lines()]
        return "\n".join([*lines, self.words])

    @property
    def words(self) -> str:
        """What was found, without the table."""
        lines = [*map(str, self.findings), *(f"not seen  {reason}" for reason in self.left_out)]
        return "\n".join([*lines, self.verdict])

    def _table_lines(self) -> list[str]:
        shown = [key for key in _HEADINGS if key in self.table]
        cells = [["", *(_HEADINGS[key] for key in shown)]]
        cells += [
            [self.names[k], *(_cell(key, float(self.table[key][k])) for key in shown)] for k in self._rows_shown()
        ]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
        more = len(self.names) - _MOST_ROWS
        if more <= 0:
            return lines
        told = f"… and {more} more parameters: above are the {_OF_THE_WORST} worst and then the first; rows() has all"
        return [*lines, told]

    def _rows_shown(self) -> list[int]:
        """All parameters; of too many those that are the worst, from the worst on, and then the first of the others."""
        if len(self.names) <= _MOST_ROWS:
            return list(range(len(self.names)))
        worst = self._worst()[:_OF_THE_WORST]
        others = (k for k in range(len(self.names)) if k not in worst)
        return [*worst, *islice(others, _MOST_ROWS - _OF_THE_WORST)]


def _cell(key: str, value: float) -> str:
    if value != value:
        return "–"
    if key.startswith("ess"):
        return f"{value:,.0f}"
    if key.endswith("rhat"):
        return f"{value:.3f}"
    return f"{value:+.3f}" if key.startswith("bias") else f"{value:.3g}"
