"""How figures look: alike in the gallery and among the words."""

from typing import Any

import matplotlib.pyplot as plt

STYLE: dict[str, Any] = {
    "figure.dpi": 130,
    "savefig.dpi": 130,
    "figure.constrained_layout.use": True,
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
}


def house_style(gallery_conf: dict[str, Any], file: str) -> None:
    """Set before every script of the gallery."""
    plt.rcParams.update(STYLE)
