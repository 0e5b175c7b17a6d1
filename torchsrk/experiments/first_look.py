"""The picture that a newcomer sees: particles over the density that they should follow, beside the error they have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from . import plots
from .base import Row
from .laws import LineMixture
from .targets import SEPARATION

_BINS = np.linspace(-6.0, 6.0, 25)


def along(particles: Tensor) -> Tensor:
    """The coordinate along the mixture's diagonal, on which its two halves are apart."""
    return particles.double().sum(-1) / math.sqrt(particles.shape[-1])


def draw_first_look(
    rows: list[Row],
    clouds: Mapping[str, Tensor],
    laws: Mapping[str, tuple[list[float], list[float]]],
    *,
    dim: int,
    step_size: float,
    file: Any,
) -> None:
    """Clouds at one step size on the left; W2² of laws against step size on the right.

    Estimates from particles are in the figure beside it: in many dimensions they say less than the laws.
    """
    figure, (left, right) = plots.panels(2, width=5.0, height=4.2)
    line = torch.linspace(-6.0, 6.0, 401, dtype=torch.float64)
    left.fill_between(line, LineMixture(SEPARATION).density(line), color="0.85", label="the target's density")
    for scheme, particles in clouds.items():
        name, color = plots.LABELS[scheme], plots.COLOR_OF[scheme]
        seen = along(particles).numpy()
        left.hist(seen, _BINS, density=True, histtype="step", color=color, linewidth=1.6, label=f"{name}'s particles")
        right.plot(*laws[scheme], color=color, linewidth=1.6, label=name)
        here = next(row["law"] for row in rows if row["scheme"] == scheme and row["step_size"] == step_size)
        right.plot(step_size, here, "o", color=color)
    left.set(xlabel="one coordinate of a particle", ylabel="density", title=f"particles at step size {step_size:g}")
    left.set_ylim(top=1.45 * left.get_ylim()[1])  # room for the legend
    left.legend(loc="upper center")
    right.axvline(step_size, **plots.GUIDE)
    right.set(xscale="log", yscale="log", xlabel="step size", title="distance to the target")
    right.set_ylabel(f"W2² in {dim}-D, of the exact laws")
    right.legend(loc="upper left")
    plots.label_round_numbers(right.xaxis)
    figure.suptitle(_words(rows, step_size), fontsize=11)
    plots.save(figure, file)


def _words(rows: list[Row], step_size: float) -> str:
    at = {row["scheme"]: row for row in rows if row["step_size"] == step_size}
    times = at["em"]["law"] / at["srk-ld"]["law"]
    return (
        f"With steps of {step_size:g} Euler-Maruyama's particles are spread too wide, and SRK-LD's follow the target.\n"
        f"By their exact laws SRK-LD is {times:.0f} times nearer to it in W2², at three gradients a step for one."
    )
