"""Figures of errors along runs: a colour for the scheme, a shade and a marker for the step size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

from . import plots
from .base import Row
from .fits import student_95

_LAW_COLUMNS = {"em": "em_law", "srk-ld": "srk_ld_law"}  # of a table of plateaus
_LAW: dict[str, Any] = {"linestyle": (0, (4, 2)), "linewidth": 1.0, "zorder": 1}
_DRAWS: dict[str, Any] = {"color": "0.4", "linestyle": ":"}


def draw_traces(
    settings: Any, label: str, rows: list[Row], plateaus: list[Row], references: list[Row], file: Any
) -> None:
    """A panel for each target, on one axis: where the error of a scheme's exact law is known, it is a dashed line.

    W2² may be negative, so that its axis is linear around 0. The energy's V-statistic is above 0 for draws of the
    target too.
    """
    count = len(settings.targets)
    figure, axes = plots.panels(count, width=4.8, height=4.2, columns=min(2, count), share_y=True)
    wide = student_95(settings.repeats - 1)
    for axis, target, reference in zip(axes, settings.targets, references, strict=True):
        own = [row for row in rows if row["target"] == target.name]
        _draw_steps(axis, own, [row for row in plateaus if row["target"] == target.name], wide)
        if settings.metric == "energy":
            axis.axhline(reference["error_of_draws"], **_DRAWS)
        else:
            axis.axhline(0.0, color="0.8", linewidth=0.8, zorder=0)
        axis.set(xlabel="iterations", title=target.title)
        if axis.get_subplotspec().is_first_col():
            axis.set_ylabel(f"{label} (bars: 95 %)")
        _name_steps(axis, target.step_sizes)
    if settings.metric == "energy":
        axes[0].set_yscale("log")
    else:
        _show_signed(axes[0], rows, wide)
    laws = any(row[column] != "" for row, column in product(plateaus, _LAW_COLUMNS.values()))
    _name_schemes(figure, settings.metric == "energy", laws, hole=count == 3)
    plots.save(figure, file)


def _look(rank: int, count: int) -> dict[str, Any]:
    """Of the step size of this rank: the largest is darkest."""
    return {"marker": plots.MARKERS[rank], "share": 0.45 + 0.55 * (rank + 1) / count}


def _draw_steps(axis: Any, own: Sequence[Row], plateaus: Sequence[Row], wide: float) -> None:
    sizes = sorted({row["step_size"] for row in own})
    for (rank, h), scheme in product(enumerate(sizes), _LAW_COLUMNS):
        look = _look(rank, len(sizes))
        color = plots.lighter(plots.COLOR_OF[scheme], look["share"])
        shown = [row for row in own if (row["scheme"], row["step_size"]) == (scheme, h) and math.isfinite(row["error"])]
        axis.errorbar(
            [row["iteration"] for row in shown],
            [row["error"] for row in shown],
            yerr=[wide * row["standard_error"] for row in shown],
            color=color,
            marker=look["marker"],
            markersize=4,
            capsize=2,
            linewidth=1.1,
        )
        law = next(row[_LAW_COLUMNS[scheme]] for row in plateaus if row["step_size"] == h)
        if law != "" and math.isfinite(law):
            axis.axhline(law, color=color, **_LAW)


def _name_steps(axis: Any, sizes: Sequence[float]) -> None:
    """A legend of step sizes, in grey."""
    from matplotlib.lines import Line2D

    looks = [(h, _look(rank, len(sizes))) for rank, h in enumerate(sorted(sizes))]
    handles = [
        Line2D([], [], color=plots.lighter("0.25", look["share"]), marker=look["marker"], markersize=5, label=f"{h:g}")
        for h, look in looks
    ]
    axis.legend(handles=handles, title="step size", loc="upper right")


def _name_schemes(figure: Any, draws: bool, laws: bool, hole: bool) -> None:
    """A legend of schemes for all panels, in the cell that they leave free or below them."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=plots.COLOR_OF[scheme], linewidth=2.0, label=plots.LABELS[scheme])
        for scheme in _LAW_COLUMNS
    ]
    if laws:
        handles.append(Line2D([], [], color="0.4", label="W2² of the exact law", **_LAW))
    if draws:
        handles.append(Line2D([], [], label="draws of the target", **_DRAWS))
    if hole:
        figure.legend(handles=handles, loc="center", bbox_to_anchor=(0.77, 0.27))
    else:
        figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 2 * len(figure.axes)))


def _show_signed(axis: Any, rows: Sequence[Row], wide: float) -> None:
    """Estimates are 0 on average where laws are equal, give or take the noise."""
    finite = [row for row in rows if math.isfinite(row["error"])] or [{"error": 0.0, "standard_error": 0.0}]
    plots.scale_signed(axis, [row["standard_error"] for row in finite])
    least = min(row["error"] - wide * row["standard_error"] for row in finite)
    axis.set_ylim(min(1.2 * least, 0.0), 40.0 * axis.get_ylim()[1])  # room for the legend
