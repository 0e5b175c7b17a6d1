"""The mean-square error on one Brownian path: Euler-Maruyama and SRK-ID on the non-convex target."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, product
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor

from ..blocks import one_torch_thread
from ..brownian import Increment, MrongowiusRoesslerLevyArea, StepNormals
from ..brownian.noise import derive_seed
from ..potentials import NonConvex
from ..sde import ItoDiffusion
from . import plots
from .base import Conclusion, Context, Finding, Result, Row, by_name
from .config import Count, Dimension, Range
from .estimates import mean_and_error
from .fine_path import EM, SRK_ID, fine_steps
from .fits import student, student_95

# Two show what comes of the paper's choices: "srk-id-drawn" has Lévy areas drawn given W alone, not those of the path
# that the truth follows, and "em-fine" makes the steps of the truth, which the paper solves so.
CHAINS = ("em", "srk-id", "srk-id-drawn", "em-fine")
GAINS = {"srk-id": "Lévy areas of the path", "srk-id-drawn": "Lévy areas drawn given W"}
_POINTS = 60  # of a curve in the table
_NOISE = 0.1  # a relative standard error beyond which nothing can be said to agree with theory


@dataclass(frozen=True)
class Settings:
    """Both schemes at one step size, for every β in every dimension, from exact draws.

    The truth is SRK-ID at ``step_size / substeps``. In mean square its own error falls with the square of the substeps;
    being correlated with that of whole steps, it makes what is read of SRK-ID too small by at most about 1.5/substeps.
    That of Euler-Maruyama falls like the substeps, and with a thousand it is still as large as what is to be read.
    """

    betas: tuple[Annotated[float, Range(1e-3, 1e6)], ...]
    dims: tuple[Dimension, ...]
    step_size: Annotated[float, Range(1e-6, 1.0)]
    substeps: Annotated[int, Range(2, 10**6)]  # of the reference, in a step
    iterations: Count
    particles: Count  # of a run
    runs: Annotated[int, Range(2, 10**6)]  # independent, for the standard errors
    gamma: Annotated[float, Range(1e-3, 100.0)] = 0.5


class Case(NamedTuple):
    beta: float
    dim: int

    def unit(self, run: int) -> str:
        return f"b{self.beta:g}-d{self.dim}-run{run}"

    def target(self, gamma: float) -> NonConvex:
        return NonConvex(beta=self.beta, gamma=gamma, dim=self.dim)


def cases(settings: Settings) -> list[Case]:
    return [Case(*case) for case in product(settings.betas, settings.dims)]


def plan(settings: Settings) -> dict[str, tuple[Case, int]]:
    """Cases, and the numbers of their runs."""
    pairs = product(cases(settings), range(settings.runs))
    return by_name((case.unit(run), (case, run)) for case, run in pairs)


def measure(settings: Settings, run_of_case: tuple[Case, int], context: Context) -> Result:
    """Mean squared errors after every iteration, (chains, iterations), and the growth that theory gives that of EM."""
    case, run = run_of_case
    target = case.target(settings.gamma)
    start_seed, path_seed = (derive_seed(context.seed, 2 * run + k) for k in range(2))
    x0 = target.sample((settings.particles,), seed=start_seed, dtype=context.dtype, device=context.device)
    chains = follow(settings, target, x0, path_seed, context)
    errors = [(states[:-1] - states[-1]).square().sum(-1).mean(-1) for states in chains]
    growth = settings.step_size * float(growth_rate(target, x0).mean())
    return {"errors": torch.stack(errors, dim=-1).double().cpu(), "growth": growth}


def follow(settings: Settings, target: NonConvex, x0: Tensor, seed: int, context: Context) -> Iterator[Tensor]:
    """After every iteration the states of CHAINS and of the reference, (chains + 1, particles, dim).

    Whole steps see the path that fine ones have made, and areas drawn given its W.
    """
    sde = ItoDiffusion(target, diffusion=target.scale, noise_type="isotropic")
    h, count = settings.step_size, settings.substeps
    fine = partial(fine_steps, sde, seed=seed, step_size=h / count, compile=context.compile)
    em = srk_id = drawn = em_fine = truth = x0
    for k in context.bar(range(settings.iterations), unit="iteration"):
        em_fine, truth, path = fine(em_fine, truth, steps=range(k * count, (k + 1) * count))
        # Operations on few particles are short: threads would wait for each other most of the time.
        with one_torch_thread(), torch.no_grad():
            em, srk_id = EM.step(sde, k * h, em, path), SRK_ID.step(sde, k * h, srk_id, path)
            drawn = SRK_ID.step(sde, k * h, drawn, with_drawn_area(path, derive_seed(seed, 0), k))
        yield torch.stack((em, srk_id, drawn, em_fine, truth))


def with_drawn_area(increment: Increment, seed: int, step: int) -> Increment:
    """The increment with areas that have the right law given W, and know nothing else of the path."""
    A = MrongowiusRoesslerLevyArea().sample(increment.W, increment.dt, StepNormals(seed, step))
    return replace(increment, A=A)


def growth_rate(target: NonConvex, x: Tensor) -> Tensor:
    """What a step of Euler-Maruyama from x adds to its mean-square error, over h².

    It leaves out Σ_ij σ ∂_jσ I_(j,i) e_i with σ ∂_jσ = x_j/(2g) and E I_(j,i)² = h²/2.
    """
    squared = x.square().sum(-1)
    return target.dim / 8.0 * squared / (target.beta + squared)


def bounds(target: NonConvex, *, growth: float, time: float) -> tuple[float, float]:
    """Between what Euler-Maruyama's mean-square error is after a time, to first order in h, if it grows by ``growth``.

    Earlier errors decay at a rate of at least twice the dissipativity, and at most twice the drift's steepest slope.
    """
    steepest = 0.5 + max(0.0, target.gamma - 0.5) / math.sqrt(target.beta)
    low, high = (growth * _weight(2.0 * rate, time) for rate in (steepest, target.dissipativity))
    return low, high


def _weight(rate: float, time: float) -> float:
    """∫ e^(-rate s) ds from 0 to time."""
    return -math.expm1(-rate * time) / rate if rate else time


class Outcome(NamedTuple):
    """What the runs of a case say: errors (runs, chains, iterations)."""

    case: Case
    errors: Tensor
    growth: float

    def mse(self, chain: str, iteration: int) -> tuple[float, float]:
        """Mean and standard error over runs."""
        return mean_and_error(self.errors[:, CHAINS.index(chain), iteration - 1])

    def ratio(self, chain: str, other: str) -> tuple[float, float]:
        """Of two mean-square errors at the end; the standard error is that of the ratio's linearisation."""
        above, below = (self.errors[:, CHAINS.index(name), -1] for name in (chain, other))
        ratio = float(above.mean() / below.mean())
        return ratio, mean_and_error((above - ratio * below) / below.mean())[1]


def conclude(settings: Settings, results: Mapping[str, Result]) -> Conclusion:
    outcomes = []
    for case in cases(settings):
        runs = [results[case.unit(run)] for run in range(settings.runs)]
        growth = sum(run["growth"] for run in runs) / len(runs)
        outcomes.append(Outcome(case, torch.stack([run["errors"] for run in runs]), growth))
    figures = {"errors": partial(draw_errors, settings, outcomes)}
    if len(settings.dims) > 1:
        figures["gains"] = partial(draw_gains, settings, outcomes)
    tables = {
        "errors": [row for outcome in outcomes for row in _curve_rows(settings, outcome)],
        "gains": [_gain_row(settings, outcome) for outcome in outcomes],
    }
    return Conclusion(tables=tables, figures=figures, findings=findings(settings, outcomes))


def _shown(iterations: int) -> list[int]:
    """The iterations that the table has."""
    return sorted({math.ceil(k * iterations / _POINTS) for k in range(1, _POINTS + 1)})


def _curve_rows(settings: Settings, outcome: Outcome) -> Iterator[Row]:
    for chain, iteration in product(CHAINS, _shown(settings.iterations)):
        mse, error = outcome.mse(chain, iteration)
        step_size = settings.step_size / (settings.substeps if chain == "em-fine" else 1)
        where = {**outcome.case._asdict(), "chain": chain, "step_size": step_size}
        yield {**where, "iteration": iteration, "mse": mse, "standard_error": error}


def _gain_row(settings: Settings, outcome: Outcome) -> Row:
    """At the last iteration."""
    row: Row = {**outcome.case._asdict(), "iteration": settings.iterations}
    for chain in CHAINS:
        row[f"{chain}_mse"], row[f"{chain}_standard_error"] = outcome.mse(chain, settings.iterations)
    for chain in ("srk-id", "srk-id-drawn"):
        row[f"{chain}_gain"], row[f"{chain}_gain_standard_error"] = outcome.ratio("em", chain)
    row["em_theory_low"], row["em_theory_high"] = _bounds_at(settings, outcome, settings.iterations)
    return row


def _bounds_at(settings: Settings, outcome: Outcome, iteration: float) -> tuple[float, float]:
    time = iteration * settings.step_size
    return bounds(outcome.case.target(settings.gamma), growth=outcome.growth, time=time)


def findings(settings: Settings, outcomes: list[Outcome]) -> list[Finding]:
    found = []
    for beta in settings.betas:
        own = [outcome for outcome in outcomes if outcome.case.beta == beta]
        found += [_smaller(settings, own), _theory(settings, own), _paper_reference(settings, own)]
        several = [outcome for outcome in own if outcome.case.dim > 1]
        found += [_areas_matter(beta, several)] if several else []
    return found


def _smaller(settings: Settings, outcomes: list[Outcome]) -> Finding:
    gains = [outcome.ratio("em", "srk-id") for outcome in outcomes]
    listed = (
        f"d = {outcome.case.dim}: {_pm(outcome.mse('em', settings.iterations))} and "
        f"{_pm(outcome.mse('srk-id', settings.iterations))}, {_pm(gain)} times less"
        for gain, outcome in zip(gains, outcomes, strict=True)
    )
    text = (
        f"β = {outcomes[0].case.beta:g}: SRK-ID has a smaller mean-square error than Euler-Maruyama after "
        f"{settings.iterations} iterations of {settings.step_size:g} (Euler-Maruyama and SRK-ID at {'; '.join(listed)})"
    )
    return Finding(text, all(gain > 1 + student(settings.runs - 1, 3.0) * error for gain, error in gains))


def _theory(settings: Settings, outcomes: list[Outcome]) -> Finding:
    """Whether Euler-Maruyama's error is what theory says; its lower bound on the plateau tells how far that is off."""
    listed, holds, wide = [], True, student(settings.runs - 1, 4.0)
    for outcome in outcomes:
        mse, error = outcome.mse("em", settings.iterations)
        low, high = _bounds_at(settings, outcome, settings.iterations)
        plateau = _bounds_at(settings, outcome, math.inf)[0]
        listed.append(f"d = {outcome.case.dim}: {low:.3g} to {high:.3g}, and {mse / plateau:.0%}")
        holds = holds and low - wide * error < mse < high + wide * error and error < _NOISE * mse
    text = (
        f"β = {outcomes[0].case.beta:g}: Euler-Maruyama's error is within the bounds of theory (these, and how much of "
        f"the least that its plateau can be is reached, at {'; '.join(listed)})"
    )
    return Finding(text, holds)


def _paper_reference(settings: Settings, outcomes: list[Outcome]) -> Finding:
    """The error of Euler-Maruyama in place of the reference: of order ½, so 1/substeps of that at a whole step."""
    scaled = [outcome.ratio("em", "em-fine") for outcome in outcomes]
    listed = (
        f"d = {outcome.case.dim}: {_pm(outcome.ratio('em-fine', 'srk-id'))} times that, 1/({_pm(ratio)})"
        for outcome, ratio in zip(outcomes, scaled, strict=True)
    )
    text = (
        f"β = {outcomes[0].case.beta:g}: Euler-Maruyama at {settings.step_size / settings.substeps:g} as the truth "
        f"would add its own error to SRK-ID's, which is 1/{settings.substeps} of that at {settings.step_size:g} by its "
        f"order ½ (at {'; '.join(listed)})"
    )
    tolerance, wide = 0.05 * settings.substeps, student(settings.runs - 1, 4.0)
    near = all(abs(ratio - settings.substeps) < wide * error + tolerance for ratio, error in scaled)
    return Finding(text, near and all(error < _NOISE * ratio for ratio, error in scaled))


def _areas_matter(beta: float, outcomes: list[Outcome]) -> Finding:
    """Drawn areas leave Σ_j≠i σ ∂_jσ (A - A')_ji e_i with E(A - A')_ji² = h²/2: (d - 1)/d of what no area leaves."""
    near, clear = (student(len(outcomes[0].errors) - 1, deviations) for deviations in (4.0, 3.0))
    drawn = [(outcome.case.dim, *outcome.ratio("em", "srk-id-drawn")) for outcome in outcomes]
    path = [outcome.ratio("em", "srk-id") for outcome in outcomes]
    listed = (
        f"d = {dim}: {_pm((gain, error))} ({dim / (dim - 1):.3g}) and {_pm(other)}"
        for (dim, gain, error), other in zip(drawn, path, strict=True)
    )
    text = (
        f"β = {beta:g}: the gain of SRK-ID over Euler-Maruyama shrinks with the dimension, like d/(d - 1), if its Lévy "
        f"areas are drawn given W, and stays large with those of the path (at {'; '.join(listed)})"
    )
    shrinks = all(
        abs(gain - dim / (dim - 1)) < near * error + 0.1 and error < _NOISE * gain for dim, gain, error in drawn
    )
    stays = all(
        gain - clear * error > 10 * dim / (dim - 1) for (dim, *_), (gain, error) in zip(drawn, path, strict=True)
    )
    return Finding(text, shrinks and stays)


def _pm(value: tuple[float, float]) -> str:
    return " ± ".join(
        f"{number:.0f}" if number >= 100 else f"{number:.{digits}g}"
        for number, digits in zip(value, (3, 2), strict=True)
    )


def draw_errors(settings: Settings, outcomes: list[Outcome], file: Any) -> None:
    """A panel for each β; a colour for each dimension, or for each scheme if there is one dimension."""
    one = len(settings.dims) == 1
    figure, axes = plots.panels(len(settings.betas), width=6.6 if one else 6.0, share_y=True)
    for axis, beta in zip(axes, settings.betas, strict=True):
        own = [outcome for outcome in outcomes if outcome.case.beta == beta]
        for outcome, color in zip(own, cycle(plots.COLORS), strict=False):
            # On a line there are no areas to draw.
            for chain in ("em", "srk-id", "srk-id-drawn") if outcome.case.dim > 1 else ("em", "srk-id"):
                scheme = chain.removesuffix("-drawn")
                _draw_curve(axis, settings, outcome, chain, plots.COLOR_OF[scheme] if one else color)
            _draw_theory(axis, settings, outcome, label="EM, theory" if outcome is own[-1] else None)
        if one:
            _draw_curve(axis, settings, own[0], "em-fine", plots.lighter(plots.COLOR_OF["em"], 0.6))
        title = f"non-convex target, β = {beta:g}, γ = {settings.gamma:g}"
        axis.set(yscale="log", xlabel=f"iterations of h = {settings.step_size:g}", title=title)
    axes[0].set_ylabel("mean-square error (bars: 95 %)")
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside right center", title=None if one else "scheme (dimension)"
    )
    plots.save(figure, file)


def _draw_curve(axis: Any, settings: Settings, outcome: Outcome, chain: str, color: Any) -> None:
    shown = _shown(settings.iterations)
    points = [outcome.mse(chain, iteration) for iteration in shown]
    names = {"em": "EM", "srk-id": "SRK-ID", "srk-id-drawn": "SRK-ID, areas drawn"}
    name = names.get(chain, f"EM at {settings.step_size / settings.substeps:g}")
    axis.errorbar(
        shown,
        [mse for mse, _ in points],
        yerr=[student_95(settings.runs - 1) * error for _, error in points],
        errorevery=max(1, len(shown) // 10),
        color=color,
        linestyle={"em": "-", "srk-id": "--", "srk-id-drawn": "-.", "em-fine": ":"}[chain],
        capsize=2,
        label=name if len(settings.dims) == 1 else f"{name} ({outcome.case.dim})",
    )


def _draw_theory(axis: Any, settings: Settings, outcome: Outcome, label: str | None) -> None:
    """Bars from the lower to the upper bound, where the curve has its own."""
    shown = _shown(settings.iterations)
    spread = [_bounds_at(settings, outcome, iteration) for iteration in shown[:: max(1, len(shown) // 10)]]
    middle, half = ([(high + sign * low) / 2 for low, high in spread] for sign in (1, -1))
    axis.errorbar(
        shown[:: max(1, len(shown) // 10)], middle, yerr=half, color="black", linestyle="none", marker="x", label=label
    )


def draw_gains(settings: Settings, outcomes: list[Outcome], file: Any) -> None:
    """How many times smaller SRK-ID's error is, against dimension, with either kind of Lévy area."""
    figure, (axis,) = plots.panels(1, width=6.4)
    for (chain, name), (beta, color) in product(GAINS.items(), zip(settings.betas, cycle(plots.COLORS), strict=False)):
        own = [outcome for outcome in outcomes if outcome.case.beta == beta]
        gains = [outcome.ratio("em", chain) for outcome in own]
        aside = 0.08 * settings.betas.index(beta)  # drawn areas gain as much whatever β is
        axis.errorbar(
            [dim + aside for dim in settings.dims],
            [gain for gain, _ in gains],
            yerr=[student_95(settings.runs - 1) * error for _, error in gains],
            color=color,
            marker="o" if chain == "srk-id" else "s",
            markersize=5 if chain == "srk-id" else 9,
            fillstyle="full" if chain == "srk-id" else "none",
            linestyle="none",
            capsize=3,
            label=f"β = {beta:g}, {name}",
        )
    several = [dim for dim in settings.dims if dim > 1]
    axis.plot(several, [dim / (dim - 1) for dim in several], color="0.5", label="d/(d - 1)")
    axis.set(yscale="log", xlabel="dimension d", ylabel="MSE of EM / MSE of SRK-ID (bars: 95 %)")
    axis.set_title(f"after {settings.iterations} iterations of h = {settings.step_size:g}, γ = {settings.gamma:g}")
    axis.set_xticks(settings.dims)
    axis.legend()
    plots.save(figure, file)
