"""Figures, drawn without a screen; matplotlib is loaded when the first one is."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..extras import missing

LABELS = {"em": "Euler-Maruyama", "srk-ld": "SRK-LD", "srk-id": "SRK-ID"}
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")  # the style's
COLOR_OF = dict(zip(LABELS, COLORS, strict=False))
MARKERS = "osD^v<>P*Xhpd"  # as many as have no factor in common with the colours: pairs repeat after 104
MARKER_OF = dict(zip(LABELS, MARKERS, strict=False))
POINTS: dict[str, Any] = {"marker": "o", "linestyle": "none"}
BELOW = "estimate below 0: upper end of its bar, or the floor"
GUIDE: dict[str, Any] = {"color": "0.45", "linestyle": (0, (1, 1.5)), "linewidth": 1.2, "zorder": 1}
STYLE = Path(__file__).with_name("torchsrk.mplstyle")


def panels(
    count: int, *, width: float = 5.4, height: float = 4.4, columns: int | None = None, share_y: bool = False
) -> tuple[Any, list[Any]]:
    """A figure with axes in rows of so many columns, by default one row, or two by two; sizes in inches, of a panel."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing("matplotlib", "experiments") from error
    columns = columns or (count if count <= 3 else 2)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(rows, columns, squeeze=False, sharey=share_y).flat)
    for axis in axes[count:]:
        axis.remove()
    return figure, axes[:count]


def label_round_numbers(axis: Any) -> None:
    """Ticks of a logarithmic axis at 1, 2 and 5 times powers of ten, so that what spans one decade gets labels too; at
    the powers alone where more would run into each other."""
    low, high = axis.get_view_interval()
    digits = (1, 2, 5) if high < 1000.0 * low else (1,)
    ticks = [digit * 10.0**power for power in range(-9, 10) for digit in digits]
    inside = [tick for tick in ticks if low <= tick <= high]
    axis.set_ticks(inside, labels=[f"{tick:g}" for tick in inside])
    axis.set_ticks([], minor=True)


def points_above_zero(
    axis: Any, x: Sequence[float], y: Sequence[float], bars: Sequence[float], *, floor: float, color: str, label: str
) -> None:
    """Points with bars for a logarithmic axis that ends at a floor. A point that is not above 0 is hollow, at the upper
    end of its bar; where that is below the floor, on it."""
    above = [k for k, value in enumerate(y) if value > 0.0]
    below = [k for k, value in enumerate(y) if value <= 0.0]
    axis.errorbar(*([values[k] for k in above] for values in (x, y, bars)), color=color, label=label, **POINTS)
    if below:
        ends = [max(y[k] + bars[k], floor) for k in below]
        hollow = {"fillstyle": "none", "marker": "v", "linestyle": "none", "markersize": 7, "clip_on": False}
        axis.plot([x[k] for k in below], ends, color=color, **hollow, label=BELOW)


def scale_signed(axis: Any, noise: Sequence[float]) -> None:
    """A logarithmic axis that is linear around 0, for values of either sign: to the power of ten next to their noise,
    in its geometric mean, as of what is on one axis some may be known a hundred times better."""
    told = [math.log10(value) for value in noise if value > 0.0] or [-3.0]
    axis.set_yscale("symlog", linthresh=10.0 ** round(math.fsum(told) / len(told)))


def combination(number: int) -> dict[str, str]:
    """A colour and a marker, no two numbers' alike."""
    if number >= len(COLORS) * len(MARKERS):
        raise ValueError(f"colours and markers make {len(COLORS) * len(MARKERS)} pairs; got number {number}")
    return {"color": COLORS[number % len(COLORS)], "marker": MARKERS[number % len(MARKERS)]}


def lighter(color: str, share: float) -> tuple[float, float, float]:
    """A colour with so much of it left, and white for the rest."""
    from matplotlib.colors import to_rgb

    red, green, blue = (1.0 - share * (1.0 - part) for part in to_rgb(color))
    return red, green, blue


def pictures(draw: Callable[[Any], None] | Any) -> dict[str, bytes]:
    """What a function draws, in the style of all figures, or a figure of matplotlib's as it is; as PNG and as SVG."""
    from matplotlib import style

    files = {"png": io.BytesIO(), "svg": io.BytesIO()}
    with style.context(STYLE):
        draw(files) if callable(draw) else save(draw, files)
    return {kind: file.getvalue() for kind, file in files.items()}


def save(figure: Any, file: Any) -> None:
    """Into a PNG, or into files by their kind; bytes depend on the picture alone.

    Places are found once: for every file matplotlib would find them twice, which takes longer than to draw.
    """
    engine, dpi = figure.get_layout_engine(), figure.dpi
    figure.dpi = 130
    figure.draw_without_rendering()
    figure.set_layout_engine(None)
    for kind, one in file.items() if isinstance(file, Mapping) else (("png", file),):
        figure.savefig(one, format=kind, dpi="figure", metadata={"Date" if kind == "svg" else "Software": None})
    figure.dpi = dpi
    figure.set_layout_engine(engine)
