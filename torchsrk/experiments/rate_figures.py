"""Figures of the rates: gradients against ε, and against the dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from . import plots
from .base import Row
from .rate_targets import TABLE, TABLE_ITO, table_of, target_named
from .scheme_figures import LABELS

# Names of the paper's exponents: in ε and in d.
_GUIDES = {
    "w2": {2.0: "ε⁻²", 1.0: "ε⁻¹", 2.0 / 3.0: "ε^(-2/3)"},
    "dim": {4.0 / 3.0: "d^(4/3)", 1.0: "d", 0.5: "d^(1/2)"},
}
_COLORS = dict(zip(("em", "srk-ld", "ozaki", "tamed", "sra1", "shark", "lm"), plots.COLORS, strict=False))
_COLORS["srk-id"] = plots.COLOR_OF["srk-id"]
_MOMENTUM = dict(zip(("cheng", "randomized-midpoint", "baoab", "ubu"), plots.COLORS, strict=False))
_MARKERS = dict(zip((*_COLORS, *_MOMENTUM), "osD^v<>Posd^", strict=True))


def draw_errors(targets: Sequence[str], rows: Sequence[Row], exponents: Sequence[Row], file: Any) -> None:
    """A panel a target, with guide lines at the paper's exponents in ε."""
    _draw(targets, rows, exponents, "w2", "exponent", file)


def draw_dimensions(targets: Sequence[str], rows: Sequence[Row], exponents: Sequence[Row], file: Any) -> None:
    """The same against d, each scheme over its gradients in the fewest dimensions: its ε is its own."""
    _draw(targets, rows, exponents, "dim", "exponent_in_dim", file)


def _draw(
    targets: Sequence[str], rows: Sequence[Row], exponents: Sequence[Row], against: str, exponent: str, file: Any
) -> None:
    targets = [name for name in targets if any(r["target"] == name and math.isfinite(r[exponent]) for r in exponents)]
    if not targets:
        return _empty(file)
    figure, axes = plots.panels(len(targets), width=4.6, height=6.2, columns=min(2, len(targets)), share_y=True)
    seen: list[tuple[float, float]] = []
    for axis, target in zip(axes, targets, strict=True):
        for fitted in (row for row in exponents if row["target"] == target and math.isfinite(row[exponent])):
            chosen = (target, fitted["scheme"], against)
            own = [row for row in rows if (row["target"], row["scheme"], row["against"]) == chosen]
            seen += _draw_scheme(axis, own, fitted, against, exponent)
        axis.set(xscale="log", yscale="log", title=target_named(target).title)
        axis.set_xlabel("ε: W2 to be reached" if against == "w2" else "dimension d")
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), fontsize=10)
    if seen:
        x, y = zip(*seen, strict=True)
        for axis, target in zip(axes, targets, strict=True):
            limits = (0.6 * min(x), 1.7 * max(x)), (0.7 * min(y), 1.4 * max(y))
            axis.set(xlim=limits[0], ylim=limits[1])
            shown = [row for row in exponents if row["target"] == target and math.isfinite(row[exponent])]
            guides = _guides_of(target, [row["scheme"] for row in shown], against)
            _guides(axis, guides, (limits[0][1], limits[1][0]) if against == "w2" else (min(x), 1.0))
    told = "gradients/log(W2 of the start/ε)"
    figure.supylabel(told if against == "w2" else f"{told}, at the least d: 1")
    plots.save(figure, file)


def _empty(file: Any) -> None:
    """Where no exponent was found."""
    figure, axes = plots.panels(1)
    axes[0].set_title("no step size is the best for enough ε")
    plots.save(figure, file)


def _draw_scheme(axis: Any, own: Sequence[Row], fitted: Row, against: str, exponent: str) -> list[tuple[float, float]]:
    """The points that were drawn. What the paper has a rate for is drawn thick."""
    scheme, unit = fitted["scheme"], own[0]["gradients_over_logarithm"] if against == "dim" else 1.0
    points = [(row[against], row["gradients_over_logarithm"] / unit) for row in own]
    power = "ε^-" if against == "w2" else "d^"
    color = (_COLORS | _MOMENTUM)[scheme]
    axis.plot(
        *zip(*points, strict=True),
        color=color,
        marker=_MARKERS[scheme],
        markersize=4,
        linestyle="--" if scheme in _MOMENTUM else "-",
        markerfacecolor="white" if scheme in _MOMENTUM else color,
        linewidth=1.9 if scheme in TABLE or scheme in TABLE_ITO else 0.8,
        label=f"{LABELS[scheme]}: {power}({fitted[exponent]:.3f} ± {fitted[f'{exponent}_margin']:.3f})",
    )
    return points


def _guides_of(target: str, schemes: Sequence[str], against: str) -> list[tuple[float, str]]:
    """The paper's powers for the schemes of a panel."""
    sign, place = (-1.0, 0) if against == "w2" else (1.0, 1)
    known = {table_of(target, scheme)[place] for scheme in schemes}
    return [(sign * power, name) for power, name in _GUIDES[against].items() if power in known]


def _guides(axis: Any, guides: Sequence[tuple[float, str]], corner: tuple[float, float]) -> None:
    """Dotted lines of these powers from a point to where they leave the panel, named there."""
    (left, right), (_, top) = axis.get_xlim(), axis.get_ylim()
    for power, name in guides:
        other = left if power < 0 else right
        reach = corner[1] * (other / corner[0]) ** power
        end = (other, reach) if reach <= top else (corner[0] * (top / corner[1]) ** (1.0 / power), top)
        axis.plot(*zip(corner, end, strict=True), **plots.GUIDE)
        # Beside the line, on the side that it leaves free.
        offset, side = ((10, -9), "left") if power < 0 else ((-6, -12) if end[1] == top else (-2, 6), "right")
        axis.annotate(name, end, ha=side, fontsize=10, color="0.35", xytext=offset, textcoords="offset points")
