"""The bias of the vanilla and the corrected W2² estimator on Gaussians, where the distance is known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor

from ..brownian.noise import Stream, derive_seed, fill_normal
from ..metrics import corrected_wasserstein2_squared, gaussian_wasserstein2_squared, wasserstein2_squared
from . import plots
from .base import Conclusion, Context, Finding, Result, Row, by_name
from .config import ConfigError, Count, Dimension, Range
from .fits import student, student_95

# What the two laws differ in; the first two panels go over dimensions, the others over α, in one dimension.
TITLES = {
    "mean": "N(0, I) and N(1, I)",
    "covariance": "N(0, I) and N(0, I/2 + 11ᵀ/5)",
    "mean-interpolated": "N(0, I) and N(2(1 - α)1, I)",
    "covariance-interpolated": "N(0, 2I) and N(0, 2αI + (1 - α)(I/2 + 11ᵀ/5))",
}
_INTERPOLATED = ("mean-interpolated", "covariance-interpolated")
COLORS = {"vanilla": plots.COLORS[0], "corrected": plots.COLORS[1]}


@dataclass(frozen=True)
class Settings:
    """The paper's two figures: over dimensions, and between laws that approach each other."""

    dims: tuple[Dimension, ...]
    points: tuple[Count, ...]  # of a cloud
    interpolation_dim: Dimension
    alphas: tuple[Annotated[float, Range(0.0, 1.0)], ...]  # ascending; at 1 the laws are equal
    repeats: Annotated[int, Range(2, 10**6)]

    def __post_init__(self) -> None:
        if sorted(self.alphas) != list(self.alphas):
            raise ConfigError(f"alphas: expected rising ones; got {list(self.alphas)}")


class Case(NamedTuple):
    panel: str
    dim: int
    alpha: float
    points: int

    @property
    def unit(self) -> str:
        return f"{self.panel}-d{self.dim}-a{self.alpha:g}-n{self.points}"


class Laws(NamedTuple):
    """N(0, variance·I) and N(mean, covariance)."""

    variance: float
    mean: Tensor
    covariance: Tensor

    def distance(self) -> float:
        """W2², in closed form."""
        first = torch.zeros_like(self.mean), self.variance * torch.eye(len(self.mean), dtype=self.mean.dtype)
        return float(gaussian_wasserstein2_squared(*first, self.mean, self.covariance))


def cases(settings: Settings) -> list[Case]:
    over_dims = [(panel, dim, 0.0) for panel in ("mean", "covariance") for dim in settings.dims]
    over_alphas = [(panel, settings.interpolation_dim, alpha) for panel in _INTERPOLATED for alpha in settings.alphas]
    return [Case(*where, points) for where in over_dims + over_alphas for points in settings.points]


def plan(settings: Settings) -> dict[str, Case]:
    return by_name((case.unit, case) for case in cases(settings))


def laws(case: Case, dtype: torch.dtype) -> Laws:
    """The two laws of a case."""
    ones, eye = torch.ones(case.dim, dtype=dtype), torch.eye(case.dim, dtype=dtype)
    other = eye / 2 + torch.outer(ones, ones) / 5
    if case.panel == "mean":
        return Laws(1.0, ones, eye)
    if case.panel == "covariance":
        return Laws(1.0, 0 * ones, other)
    if case.panel == "mean-interpolated":
        return Laws(1.0, (1 - case.alpha) * 2 * ones, eye)
    return Laws(2.0, 0 * ones, case.alpha * 2 * eye + (1 - case.alpha) * other)


def measure(settings: Settings, case: Case, context: Context) -> Result:
    """Estimates and the values of ``dual_value`` on their clouds, a row a repeat: vanilla, corrected."""
    both = laws(case, context.dtype)
    repeats = context.bar(range(settings.repeats), unit="repeat")
    clouds = (draw_clouds(both, case, derive_seed(context.seed, repeat)) for repeat in repeats)
    estimates, duals = zip(*(_estimates_and_duals(both, *four) for four in clouds), strict=True)
    return {
        name: torch.tensor(rows, dtype=torch.float64) for name, rows in (("estimates", estimates), ("duals", duals))
    }


def draw_clouds(both: Laws, case: Case, seed: int) -> tuple[Tensor, ...]:
    """Two clouds of the first law and two of the second: from the same normals for all cases of equal size."""
    normal = torch.empty(4 * case.points, case.dim, dtype=both.mean.dtype)
    parts = fill_normal(normal, seed=seed, stream=Stream.EXACT_DRAW).view(4, case.points, case.dim)
    first = math.sqrt(both.variance) * parts[:2]
    second = both.mean + parts[2:] @ torch.linalg.cholesky(both.covariance).mT
    return (*first, *second)


def _estimates_and_duals(both: Laws, x: Tensor, x2: Tensor, y: Tensor, y2: Tensor) -> tuple[list[float], list[float]]:
    vanilla = float(wasserstein2_squared(x, y, "exact"))
    corrected = float(corrected_wasserstein2_squared(x, x2, y, y2, method="exact"))  # type: ignore[arg-type]
    dual = dual_value(both, x, y)
    return [vanilla, corrected], [dual, 0.5 * (dual + dual_value(both, x2, y2))]


def dual_value(both: Laws, x: Tensor, y: Tensor) -> float:
    """The means over clouds of the laws' own Kantorovich potentials.

    Its expectation is exactly W2² of the laws, and it follows the fluctuations of a cloud's estimate to first order:
    an estimate less this has the estimator's bias as its mean, with far less noise. By duality it is never above the
    clouds' own W2².
    """
    values, vectors = torch.linalg.eigh(both.covariance)
    factors = (values / both.variance).sqrt()  # of the optimal map: x to mean + A x
    turned, moved = x @ vectors, (y - both.mean) @ vectors
    first = x.square().sum(-1) - (factors * turned.square()).sum(-1) - 2 * x @ both.mean
    second = y.square().sum(-1) - (moved.square() / factors).sum(-1)
    return float(first.mean() + second.mean())


def conclude(settings: Settings, results: Mapping[str, Result]) -> Conclusion:
    rows = [_row(case, results[case.unit]) for case in cases(settings)]
    figures = {
        "dimensions": partial(draw_dimensions, rows),
        "interpolation": partial(draw_interpolation, rows),
        "spread": partial(draw_spread, rows),
    }
    return Conclusion(tables={"biases": rows}, figures=figures, findings=findings(settings, rows))


def _row(case: Case, result: Result) -> Row:
    gaps = result["estimates"] - result["duals"]
    error = gaps.std(0) / math.sqrt(len(gaps))
    columns = gaps.mean(0), error, student_95(len(gaps) - 1) * error, result["estimates"].std(0)
    numbers = {
        f"{kind}_{name}": float(column[k])
        for k, kind in enumerate(COLORS)
        for name, column in zip(("bias", "standard_error", "margin", "spread"), columns, strict=True)
    }
    return {**case._asdict(), "exact": laws(case, torch.float64).distance(), **numbers}


def findings(settings: Settings, rows: list[Row]) -> list[Finding]:
    found = [_closer(panel, [row for row in rows if row["panel"] == panel]) for panel in TITLES]
    if len(settings.alphas) > 1:
        largest = [row for row in rows if row["points"] == max(settings.points)]
        found.append(_unbiased([row for row in largest if row["panel"] == "mean-interpolated"], settings.repeats))
        found.append(_approach([row for row in largest if row["panel"] == "covariance-interpolated"], settings.repeats))
    return found


def _closer(panel: str, rows: list[Row]) -> Finding:
    ratios = [_size(row) / abs(row["vanilla_bias"]) for row in rows]
    closer = sum(ratio < 1 for ratio in ratios)
    text = (
        f"{panel}: the corrected estimator is closer to W2² in {closer} of {len(rows)} cases; its bias is at most "
        f"{max(ratios):.2g} of the vanilla one's"
    )
    return Finding(text, closer == len(rows))


def _unbiased(rows: list[Row], repeats: int) -> Finding:
    """Moving a law adds the same to the estimate and to W2², but for a term of mean 0: only the noise can improve."""
    first, last = rows[0], rows[-1]
    within = max(_size(row) / row["corrected_standard_error"] for row in rows)
    text = (
        f"{first['panel']}, {first['points']} points: the corrected estimator is unbiased at any distance (at most "
        f"{within:.1f} standard errors from 0), and the spread of an estimate falls as the laws approach, from "
        f"{first['corrected_spread']:.2g} at α = {first['alpha']:g} to {last['corrected_spread']:.2g} at "
        f"α = {last['alpha']:g}"
    )
    fine = all(10 * row["corrected_standard_error"] < abs(row["vanilla_bias"]) for row in rows)
    return Finding(
        text, within < student(repeats - 1, 5.0) and fine and last["corrected_spread"] < first["corrected_spread"]
    )


def _approach(rows: list[Row], repeats: int) -> Finding:
    """The corrected bias falls with α. At α = 1 it is 0, and its estimate is noise: hence the standard errors."""
    steps, wide = pairwise(rows), student(repeats - 1, 3.0)
    falls = all(_size(after) < _size(before) + wide * after["corrected_standard_error"] for before, after in steps)
    biases = ", ".join(f"{row['corrected_bias']:.2g} ± {row['corrected_standard_error']:.1g}" for row in rows)
    text = (
        f"{rows[0]['panel']}, {rows[0]['points']} points: the corrected estimator is better as the laws approach; its "
        f"bias is {biases} at α = {', '.join(format(row['alpha'], 'g') for row in rows)}, the vanilla one's "
        f"{rows[-1]['vanilla_bias']:.2g} at the last"
    )
    return Finding(text, falls and _size(rows[-1]) < _size(rows[0]) / 2)


def _size(row: Row) -> float:
    return abs(float(row["corrected_bias"]))


def draw_dimensions(rows: list[Row], file: Any) -> None:
    """The bias against dimension."""
    plots.save(_draw(rows, ("mean", "covariance"), "dim", "dimension", "bias"), file)


def draw_interpolation(rows: list[Row], file: Any) -> None:
    """The bias against α, at whose end the laws are equal."""
    plots.save(_draw(rows, _INTERPOLATED, "alpha", "α (the laws are equal at 1)", "bias"), file)


def draw_spread(rows: list[Row], file: Any) -> None:
    """The standard deviation of one estimate, against α."""
    plots.save(_draw(rows, _INTERPOLATED, "alpha", "α (the laws are equal at 1)", "spread"), file)


def _draw(rows: list[Row], names: tuple[str, ...], key: str, label: str, quantity: str) -> Any:
    """A panel for each name, darker for more points."""
    figure, axes = plots.panels(2, share_y=True)
    if quantity == "bias":
        plots.scale_signed(axes[0], [row["corrected_margin"] for row in rows if row["panel"] in names])
    else:
        axes[0].set_yscale("log")
    for axis, name in zip(axes, names, strict=True):
        own = [row for row in rows if row["panel"] == name]
        sizes = sorted({row["points"] for row in own})
        for kind, (rank, points) in product(COLORS, enumerate(sizes, start=1)):
            curve = [row for row in own if row["points"] == points]
            _curve(axis, curve, key, kind, quantity, rank / len(sizes))
        axis.set(xlabel=label, title=TITLES[name])
        axis.set_xticks(sorted({row[key] for row in own}))
        if quantity == "bias":
            axis.axhline(0.0, color="0.8", linewidth=0.8, zorder=0)
    axes[0].set_ylabel("bias of W2² (bars: 95 %)" if quantity == "bias" else "spread of an estimate of W2²")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def _curve(axis: Any, rows: list[Row], key: str, kind: str, quantity: str, shade: float) -> None:
    axis.errorbar(
        [row[key] for row in rows],
        [row[f"{kind}_{quantity}"] for row in rows],
        yerr=[row[f"{kind}_margin"] for row in rows] if quantity == "bias" else None,
        color=plots.lighter(COLORS[kind], 0.25 + 0.75 * shade),
        marker="o" if kind == "vanilla" else "s",
        capsize=3,
        label=f"{kind}, {rows[0]['points']} points",
    )
