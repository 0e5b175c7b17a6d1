"""Figures, drawn without a screen; matplotlib is loaded when the first one is."""

from __future__ import annotations

import math
from typing import Any

LABELS = {"em": "Euler-Maruyama", "srk-ld": "SRK-LD", "srk-id": "SRK-ID"}
COLORS = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple")
COLOR_OF = dict(zip(LABELS, COLORS, strict=False))


def panels(count: int, *, width: float = 5.4, height: float = 4.4, columns: int | None = None) -> tuple[Any, list[Any]]:
    """A figure with axes in rows of so many columns, by default one row, or two by two; sizes in inches, of a panel."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = columns or (count if count <= 3 else 2)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axis in axes[count:]:
        axis.remove()
    return figure, axes[:count]


def label_round_numbers(axis: Any) -> None:
    """Ticks of a logarithmic axis at 1, 2 and 5 times powers of ten: what spans one decade gets labels too."""
    low, high = axis.get_view_interval()
    ticks = [digit * 10.0**power for power in range(-9, 10) for digit in (1, 2, 5)]
    inside = [tick for tick in ticks if low <= tick <= high]
    axis.set_ticks(inside, labels=[f"{tick:g}" for tick in inside])
    axis.set_ticks([], minor=True)


def save(figure: Any, file: Any) -> None:
    """As PNG whose bytes depend on the picture alone."""
    figure.savefig(file, format="png", dpi=130, metadata={"Software": None})
