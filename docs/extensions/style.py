"""How figures look: alike in the gallery, among the words and in what runs draw."""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib import rc_params_from_file

import torchsrk

_RUNS = Path(torchsrk.__file__).with_name("experiments") / "torchsrk.mplstyle"
# Colours are those of runs, and sizes are for pages: these figures are shown smaller.
STYLE: dict[str, Any] = {
    **rc_params_from_file(_RUNS, use_default_template=False),
    "figure.dpi": 130,
    "savefig.dpi": 130,
    "figure.constrained_layout.use": True,
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.labelsize": 10,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "axes.grid": False,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 6,
}


def house_style(gallery_conf: dict[str, Any], file: str) -> None:
    """Set before every script of the gallery."""
    plt.rcParams.update(STYLE)
