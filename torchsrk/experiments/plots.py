"""Figures, drawn without a screen; matplotlib is loaded when the first one is."""

from __future__ import annotations

from typing import Any

COLORS = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple")


def panels(count: int, *, width: float = 5.4, height: float = 4.4) -> tuple[Any, list[Any]]:
    """A figure with axes in a row; sizes in inches, of a panel."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * count, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


def save(figure: Any, file: Any) -> None:
    """As PNG whose bytes depend on the picture alone."""
    figure.savefig(file, format="png", dpi=130, metadata={"Software": None})
