"""Figures of many schemes: those without momentum solid, those with it dashed."""

from __future__ import annotations

import math
from typing import Any

from . import plots
from .base import Row
from .fits import student_95
from .scheme_moments import BATCHES, has_momentum, scheme_named, scheme_names
from .scheme_targets import Target

LABELS = {
    "em": "EM",
    "srk-ld": "SRK-LD",
    "srk-id": "SRK-ID",
    "sra1": "SRA1",
    "shark": "ShARK",
    "lm": "LM",
    "ozaki": "Ozaki",
    "tamed": "tamed",
    "mala": "MALA",
    "cheng": "Cheng",
    "randomized-midpoint": "rand. midpoint",
    "baoab": "BAOAB",
    "obabo": "OBABO",
    "obabo-2": "OBABO-2",
    "ubu": "UBU",
    "quicsort": "QUICSORT",
    "ghmc": "GHMC",
}
_FLOOR = 1e-4  # errors below are drawn there


def _style(scheme: str) -> dict[str, Any]:
    """A colour and a marker that a scheme has on every panel, and no other has."""
    names = [*LABELS, *(name for name in scheme_names() if name not in LABELS)]
    look, momentum = plots.combination(names.index(scheme)), has_momentum(scheme_named(scheme))
    filled = "white" if momentum else look["color"]
    return {**look, "linestyle": "--" if momentum else "-", "markerfacecolor": filled, "markeredgewidth": 1.0}


def label(scheme: str) -> str:
    """A short name; a scheme of the user's own has the one that it is registered by."""
    return LABELS.get(scheme, scheme)


def draw_errors(settings: Any, errors: list[Row], file: Any) -> None:
    """Error of the law at stationarity against what a unit of time costs, a panel for each target."""
    figure, axes = plots.panels(len(settings.targets), width=5.2, height=4.0)
    wide = student_95(BATCHES - 1)
    for axis, target in zip(axes, settings.targets, strict=True):
        for scheme in settings.schemes:
            own = [row for row in errors if (row["target"], row["scheme"]) == (target.kind, scheme)]
            shown = [row for row in own if row["stable"]]
            x = [row["gradients_a_unit"] for row in shown]
            y = [max(row["second_moment"], _FLOOR) for row in shown]
            axis.plot(x, y, **_style(scheme), markersize=5, linewidth=1.0)
        noise = [
            wide * row["noise"] for row in errors if row["target"] == target.kind and row["stable"] and not row["exact"]
        ]
        middle = sorted(noise)[len(noise) // 2] if noise else 0.0
        if middle > _FLOOR and target.kind != "gaussian":
            axis.axhspan(_FLOOR / 2, middle, color="0.92", zorder=0)
            axis.text(0.02, middle / 1.7, "95 % of the noise", fontsize=9, transform=axis.get_yaxis_transform())
        if target.kind == "gaussian":
            axis.text(0.98, 1.3 * _FLOOR, "no error", fontsize=9, ha="right", transform=axis.get_yaxis_transform())
        axis.set(xscale="log", yscale="log", title=_title(target))
        axis.set_ylim(_FLOOR / 1.5, 3.0)
    for axis in axes[-2:]:
        axis.set_xlabel("gradients in a unit of time:\n1/m, or 1/√m with momentum")
    for axis in axes[::2] if len(axes) > 3 else axes[:1]:
        axis.set_ylabel("worst relative error\nof a second moment")
    _legend(figure, settings.schemes)
    plots.save(figure, file)


def draw_gradients(settings: Any, reached: list[Row], file: Any) -> None:
    """Gradients to the tolerance, a panel for each target, sorted."""
    figure, axes = plots.panels(len(settings.targets), width=5.2, height=3.9)
    for axis, target in zip(axes, settings.targets, strict=True):
        own = [row for row in reached if row["target"] == target.kind and not math.isnan(row["gradients"])]
        ranked = sorted(own, key=lambda row: row["gradients"], reverse=True)
        known = [row["gradients"] for row in ranked if row["gradients"] < math.inf]
        top = 2.0 * max(known, default=1.0)
        for place, row in enumerate(ranked):
            style = {**_style(row["scheme"]), "linestyle": "none"}
            if row["gradients"] < math.inf:
                axis.plot(row["gradients"], place, **style, markersize=7)
                axis.annotate(
                    f"{row['gradients']:g}", (row["gradients"], place), (7, -3), textcoords="offset points", fontsize=9
                )
            else:
                words = "not reached" if row["resolved"] else "hidden by noise"
                axis.text(top, place, words, fontsize=9, va="center", ha="right", color="0.4")
        axis.set_yticks(range(len(ranked)), labels=[label(row["scheme"]) for row in ranked], fontsize=9.5)
        axis.set(xscale="log", title=_title(target), ylim=(-0.8, len(ranked) - 0.2))
        axis.set_xlim(0.7 * min(known, default=1.0), 1.3 * top)
        axis.set_xlabel(f"gradients a chain to {goal(target)}")
        plots.label_round_numbers(axis.xaxis)
        axis.grid(axis="x", color="0.9")
        axis.set_axisbelow(True)
    plots.save(figure, file)


def _legend(figure: Any, schemes: tuple[str, ...]) -> None:
    from matplotlib.lines import Line2D

    lines = [Line2D([], [], **_style(scheme), markersize=5, label=label(scheme)) for scheme in schemes]
    figure.legend(handles=lines, loc="outside lower center", ncols=6, fontsize=10, frameon=False)


def goal(target: Target) -> str:
    if target.kind == "gaussian":
        return f"W2 ≤ {target.tolerance:g}"
    return f"{100 * target.tolerance:g} % in second moments"


def _title(target: Target) -> str:
    more = {
        "gaussian": f", condition number {target.condition:g}",
        "regression": f", {target.observations} observations",
    }
    return f"{target.kind}, d = {target.dim}{more.get(target.kind, '')}"
