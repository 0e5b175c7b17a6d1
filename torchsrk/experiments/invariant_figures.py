"""W2 of the laws that schemes keep against step size: a panel for each γ on a line, and for each more dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from . import plots
from .base import Row

SCHEMES = ("em", "srk-id")


def draw(settings: Any, laws: Sequence[Row], checks: Sequence[Row], wide: Sequence[Row], file: Any) -> None:
    """All panels with one range: laws as lines, particles as points with 95 % intervals."""
    titles = [f"γ = {gamma:g}, d = 1" for gamma in settings.gammas]
    titles += [f"γ = {settings.gammas[0]:g}, d = {dim}: particles alone" for dim in settings.dims]
    columns = min(2, len(titles))
    figure, axes = plots.panels(len(titles), width=4.6, height=3.5, columns=columns, share_y=True)
    for axis, title in zip(axes, titles, strict=True):
        axis.set(xscale="log", yscale="log", xlabel="step size h", title=title)
    for axis, gamma in zip(axes, settings.gammas, strict=False):
        _draw_line(axis, [row for row in laws if row["gamma"] == gamma])
        for scheme in SCHEMES:
            own = [row for row in checks if (row["scheme"], row["gamma"]) == (scheme, gamma)]
            _points(axis, [row | {"half_width": row["half_width_95"]} for row in own], scheme)
    for axis, dim in zip(axes[len(settings.gammas) :], settings.dims, strict=True):
        for scheme in SCHEMES:
            _points(axis, [row for row in wide if (row["scheme"], row["dim"]) == (scheme, dim)], scheme)
    _finish(figure, axes, settings, laws)
    plots.save(figure, file)


def _draw_line(axis: Any, laws: Sequence[Row]) -> None:
    for scheme in SCHEMES:
        own = [row for row in laws if row["scheme"] == scheme]
        x, y = ([row[key] for row in own] for key in ("step_size", "w2"))
        axis.plot(x, y, color=plots.COLOR_OF[scheme], label=f"{plots.LABELS[scheme]}, its law")


def _points(axis: Any, rows: Sequence[Row], scheme: str) -> None:
    """Of W2, whose interval is that of W2² by the root's ends; one that reaches 0 is hollow, at the upper end."""
    color, label = plots.COLOR_OF[scheme], f"{plots.LABELS[scheme]}, particles (bars: 95 %)"
    sure = [row for row in rows if row["w2_squared"] > row["half_width"]]
    if sure:
        x, y = [row["step_size"] for row in sure], [math.sqrt(row["w2_squared"]) for row in sure]
        ends = [
            [
                abs(math.sqrt(row["w2_squared"] + side * row["half_width"]) - root)
                for row, root in zip(sure, y, strict=True)
            ]
            for side in (-1.0, 1.0)
        ]
        axis.errorbar(x, y, yerr=ends, color=color, **plots.POINTS, label=label)
    hidden = [
        row for row in rows if row["w2_squared"] <= row["half_width"] and row["w2_squared"] + row["half_width"] > 0
    ]
    if hidden:
        x, y = (
            [row["step_size"] for row in hidden],
            [math.sqrt(row["w2_squared"] + row["half_width"]) for row in hidden],
        )
        hollow = {"fillstyle": "none", "marker": "v", "linestyle": "none", "markersize": 7}
        axis.plot(x, y, color=color, **hollow, label=f"{plots.LABELS[scheme]}, not told from 0: the end of its bar")


def _finish(figure: Any, axes: Sequence[Any], settings: Any, laws: Sequence[Row]) -> None:
    """A guide line at order 1, one range, and a legend below."""
    steps = [min(settings.step_sizes), max(settings.step_sizes)]
    lowest = min(row["w2"] for row in laws)
    for axis in axes:
        axis.plot(steps, [0.7 * lowest * h / steps[0] for h in steps], label="order h", **plots.GUIDE)
        axis.set_xlim(0.85 * steps[0], 1.18 * steps[1])
        plots.label_round_numbers(axis.xaxis)
        plots.label_round_numbers(axis.yaxis)
    figure.suptitle(f"non-convex target, β = {settings.beta:g}")
    figure.supylabel("W2 of the law that is kept")
    handles = {text: handle for axis in axes for handle, text in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=min(2, len(axes)))
