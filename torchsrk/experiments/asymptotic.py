"""The error of a scheme's own invariant law: W2² to the mixture, against step size and dimension."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from ..brownian.noise import derive_seed
from ..metrics import corrected_wasserstein2_squared
from ..potentials import GaussianMixture
from ..sampling import NonFiniteStateError, sample
from ..sde import Langevin
from . import plots
from .base import Conclusion, Context, Finding, Result, Row
from .config import Count, Dimension, Positive, Range
from .fits import fit_line

LABELS = {"em": "Euler-Maruyama", "srk-ld": "SRK-LD"}


@dataclass(frozen=True)
class Panel:
    """Errors against the step size, in one dimension; or against the dimension, at one step size."""

    against: Literal["step_size", "dim"]
    dims: tuple[Dimension, ...]
    step_sizes: tuple[Positive, ...]

    def cases(self) -> list[tuple[int, float]]:
        return list(product(self.dims, self.step_sizes))


@dataclass(frozen=True)
class Settings:
    """Every scheme at every point of every panel."""

    panels: tuple[Panel, ...]
    particles: Count  # of a cloud; an estimate compares two clouds with two of exact draws
    repeats: Annotated[int, Range(2, 10**6)]  # independent estimates, for the standard error
    time: Positive = 20.0  # that a chain is given to reach its own law, from exact draws
    schemes: tuple[Literal["em", "srk-ld"], ...] = ("em", "srk-ld")

    def cases(self) -> dict[str, tuple[str, int, float]]:
        """Scheme, dimension and step size of every unit, each once."""
        points = (point for panel in self.panels for point in panel.cases())
        return {f"{scheme}-d{dim}-h{h:g}": (scheme, dim, h) for (dim, h), scheme in product(points, self.schemes)}


def plan(settings: Settings) -> list[str]:
    return list(settings.cases())


def mixture(dim: int, context: Context) -> GaussianMixture:
    """½N(a, I) + ½N(-a, I) with ‖a‖² = ½."""
    return GaussianMixture(torch.full((dim,), (2.0 * dim) ** -0.5, dtype=context.dtype, device=context.device))


def measure(settings: Settings, unit: str, context: Context) -> Result:
    scheme, dim, h = settings.cases()[unit]
    target = mixture(dim, context)
    sde = Langevin(target)
    estimates: list[float] = []
    for repeat in range(settings.repeats):
        draws = target.sample((4 * settings.particles,), seed=derive_seed(context.seed, repeat))
        start, exact = draws.split(2 * settings.particles)
        try:
            run = sample(
                sde,
                start,
                integrator=scheme,
                step_size=h,
                num_steps=math.ceil(settings.time / h),
                seed=derive_seed(context.seed + 1, repeat),
                compile=context.compile,
                progress=context.progress,
            )
        except NonFiniteStateError:
            return {"estimates": torch.full((settings.repeats,), math.inf, dtype=torch.float64)}
        clouds = (*run.final.double().chunk(2), *exact.double().chunk(2))
        estimates.append(float(corrected_wasserstein2_squared(*clouds)))  # type: ignore[arg-type]
    return {"estimates": torch.tensor(estimates, dtype=torch.float64)}


def gaussian_error(scheme: str, dim: int, h: float) -> float:
    """W2² on a standard normal, where both schemes are linear and keep a Gaussian law of known variance."""
    if scheme == "em":
        squared, noise = (1 - h) ** 2, 2 * h
    else:
        squared, noise = (1 - h + h**2 / 2) ** 2, 2 * h * (1 - h / 2) ** 2 + h**3 / 6
    return dim * (math.sqrt(noise / (1 - squared)) - 1) ** 2 if squared < 1 else math.inf


def conclude(settings: Settings, results: Mapping[str, Result]) -> Conclusion:
    rows = [_row(*case, results[unit]["estimates"]) for unit, case in settings.cases().items()]
    found = [finding for panel in settings.panels for finding in findings(panel, rows)]
    curves = ((panel, curve(panel, scheme, rows)) for panel in settings.panels for scheme in settings.schemes)
    return Conclusion(
        tables={"errors": rows},
        figures={"asymptotic": partial(draw, settings, rows)},
        findings=found,
        notes=[slope(panel, own) for panel, own in curves if len(own) > 2],
    )


def _row(scheme: str, dim: int, h: float, estimates: Tensor) -> Row:
    return {
        "scheme": scheme,
        "dim": dim,
        "step_size": h,
        "w2_squared": float(estimates.mean()),
        "standard_error": float(estimates.std() / math.sqrt(len(estimates))) if estimates.isfinite().all() else 0.0,
        "gaussian_theory": gaussian_error(scheme, dim, h),
    }


def findings(panel: Panel, rows: list[Row]) -> list[Finding]:
    """SRK-LD below Euler-Maruyama at all points, and still small at the last one."""
    em, srk = (curve(panel, scheme, rows) for scheme in LABELS)
    if not em or not srk:
        return []
    below = sum(b["w2_squared"] < a["w2_squared"] for a, b in zip(em, srk, strict=True))
    text = f"{_where(panel)}: SRK-LD's W2² is below Euler-Maruyama's at {below} of {len(em)} points"
    last = (
        f"{_where(panel)}, {panel.against} {em[-1][panel.against]:g}: W2² is {_shown(em[-1])} with Euler-Maruyama, "
        f"{_shown(srk[-1])} with SRK-LD"
    )
    return [
        Finding(text, below == len(em)),
        Finding(last, srk[-1]["w2_squared"] < em[-1]["w2_squared"] / 5),
    ]


def slope(panel: Panel, own: list[Row]) -> str:
    """The slope between logarithms, and that of the linear theory over the same points."""
    used = [row for row in own if row["w2_squared"] > 2 * row["standard_error"] > 0]
    label = f"{_where(panel)}: the slope of log W2² with {LABELS[own[0]['scheme']]} against log {panel.against}"
    if len(used) < 3:
        return f"{label} can't be told: {len(used)} of {len(own)} points rise above their noise"
    x, y = ([math.log(row[key]) for row in used] for key in (panel.against, "w2_squared"))
    fit = fit_line(x, y, [row["standard_error"] / row["w2_squared"] for row in used])
    theory = fit_line(x, [math.log(row["gaussian_theory"]) for row in used], fit.errors).slope
    return f"{label} is {fit.slope:.2f} ± {fit.half_width:.2f} (95 %, {len(used)} points); {theory:.2f} on a Gaussian"


def curve(panel: Panel, scheme: str, rows: list[Row]) -> list[Row]:
    """The rows of a scheme on a panel, in its order."""
    own = {(row["dim"], row["step_size"]): row for row in rows if row["scheme"] == scheme}
    return [own[case] for case in panel.cases() if case in own]


def _where(panel: Panel) -> str:
    return f"d = {panel.dims[0]}" if panel.against == "step_size" else f"h = {panel.step_sizes[0]:g}"


def _shown(row: Row) -> str:
    return f"{row['w2_squared']:.3g} ± {row['standard_error']:.2g}"


def theory_line(panel: Panel, scheme: str) -> tuple[list[float], list[float]]:
    """Abscissae and errors on a Gaussian, finely spaced over the panel."""
    ends = [math.log(end(getattr(panel, f"{panel.against}s"))) for end in (min, max)]
    x = [math.exp(ends[0] + (ends[1] - ends[0]) * k / 100) for k in range(101)]
    if panel.against == "dim":
        return x, [dim * gaussian_error(scheme, 1, panel.step_sizes[0]) for dim in x]
    return x, [gaussian_error(scheme, panel.dims[0], h) for h in x]


def draw(settings: Settings, rows: list[Row], file: Any) -> None:
    """The panels side by side, with the linear theory of both schemes."""
    figure, axes = plots.panels(len(settings.panels))
    for axis, panel in zip(axes, settings.panels, strict=True):
        for scheme, color in zip(settings.schemes, plots.COLORS, strict=False):
            shown = [row for row in curve(panel, scheme, rows) if math.isfinite(row["w2_squared"])]
            x = [row[panel.against] for row in shown]
            axis.errorbar(
                x,
                [row["w2_squared"] for row in shown],
                yerr=[2 * row["standard_error"] for row in shown],
                color=color,
                marker="o",
                linestyle="none",
                capsize=3,
                label=LABELS[scheme],
            )
            axis.plot(*theory_line(panel, scheme), color=color, alpha=0.6)
        ticks = panel.step_sizes if panel.against == "step_size" else panel.dims
        axis.set(xscale="log", yscale="log", title=f"mixture, {_where(panel)}")
        axis.set_xlabel("step size h" if panel.against == "step_size" else "dimension d")
        axis.set_xticks(ticks, labels=[f"{tick:g}" for tick in ticks])
        axis.minorticks_off()
    axes[0].set_ylabel("W2² to the target (bars: 2 standard errors)")
    axes[0].plot([], [], color="0.4", label="linear theory, for a Gaussian")
    axes[0].legend()
    plots.save(figure, file)
