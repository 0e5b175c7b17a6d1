"""Figures, drawn without a screen; matplotlib is loaded when the first one is."""

from __future__ import annotations

from typing import Any

LABELS = {"em": "Euler-Maruyama", "srk-ld": "SRK-LD", "srk-id": "SRK-ID"}
COLORS = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple")

COLOR_OF = dict(zip(LABELS, COLORS, strict=False))


def panels(count: int, *, width: float = 5.4, height: float = 4.4) -> tuple[Any, list[Any]]:
    """A figure with axes in a row; sizes in inches, of a panel."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * count, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


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
