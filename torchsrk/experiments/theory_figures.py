"""How loose bounds are: gradients of their plans over those needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import plots
from .base import Row
from .theory_targets import Settings

_LOOKS = {
    "em": ("Euler-Maruyama", "-"),
    "srk-ld": ("SRK-LD", "--"),
    "srk-id": ("SRK-ID", "--"),
    "cheng": ("Cheng's scheme", "-."),
    "randomized-midpoint": ("randomized midpoint", ":"),
}


def draw(settings: Settings, rows: Sequence[Row], file: Any) -> None:
    """A panel for each target with plans, two by two and all with one range, and a line for each bound."""
    shown = [row for row in rows if row["times_too_many"] != ""]
    names = list(dict.fromkeys(row["bound"] for row in shown))
    titles = {
        "gaussian": f"Gaussian, d = {settings.dim}, condition number {settings.condition:g}",
        "mixture": f"mixture, d = {settings.dim}",
        "regression": f"logistic regression, d = 2, {settings.observations} observations",
        "non-convex": f"non-convex target, d = 1, β = {settings.beta:g}, γ = {settings.gamma:g}",
    }
    targets = [target for target in settings.targets if any(row["target"] == target for row in shown)]
    figure, axes = plots.panels(len(targets), width=4.6, height=3.9, columns=min(2, len(targets)), share_y=True)
    most = 3.0 * max(row["times_too_many"] for row in shown)
    for axis, target in zip(axes, targets, strict=True):
        for number, name in enumerate(names):
            _draw_bound(axis, [row for row in shown if (row["target"], row["bound"]) == (target, name)], number)
        axis.axhline(1.0, color="black", linewidth=1)
        axis.set(xscale="log", yscale="log", xlabel="ε: W2 to be reached", title=titles[target], ylim=(0.5, most))
        plots.label_round_numbers(axis.xaxis)
    figure.supylabel("gradients of the plan / gradients needed")
    handles = {text: handle for axis in axes for handle, text in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=min(2, len(targets)))
    plots.save(figure, file)


def _draw_bound(axis: Any, own: Sequence[Row], number: int) -> None:
    if not own:
        return
    scheme = own[0]["scheme"]
    label, dashes = _LOOKS[scheme]
    x, y = ([row[key] for row in own] for key in ("w2", "times_too_many"))
    style = {"color": _COLORS[number % 6], "linestyle": dashes, "marker": "os^vD*Pxh<>"[number % 11], "markersize": 5}
    axis.plot(x, y, label=f"{own[0]['bound']} ({label})", **style)


_COLORS = (*plots.COLORS, "black")
