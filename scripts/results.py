"""What scripts leave behind: tables as CSV and figures as PNG."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any


def write_csv(rows: Sequence[Any], file: Path) -> None:
    """One row for each dict, or each instance of a dataclass."""
    rows = [row if isinstance(row, dict) else asdict(row) for row in rows]
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def subplots(rows: int, columns: int, *, size: tuple[float, float]) -> tuple[Any, Any]:
    """A figure and its axes, drawn without a screen; ``size`` is in inches."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt.subplots(rows, columns, figsize=size, constrained_layout=True, squeeze=False)


def save_figure(figure: Any, file: Path) -> None:
    """As PNG."""
    import matplotlib.pyplot as plt

    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=130)
    plt.close(figure)
