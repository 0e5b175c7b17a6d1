"""The largest stable step of each scheme on each target, beside what linear theory says, and the error near it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor

from ..brownian.noise import derive_seed
from ..potentials import GaussianMixture, NonConvex
from ..sampling import NonFiniteStateError, sample
from ..sde import BaseSDE, ItoDiffusion, Langevin
from . import plots
from .base import Conclusion, Context, Finding, Result, Row
from .config import Count, Dimension, Range, Seed
from .fits import student_95
from .targets import mixture, regression

# SRK-LD serves additive noise alone; SRK-ID is Euler-Maruyama there.
CASES = (
    ("mixture", "em"),
    ("mixture", "srk-ld"),
    ("regression", "em"),
    ("regression", "srk-ld"),
    ("non-convex", "em"),
    ("non-convex", "srk-id"),
)


@dataclass(frozen=True)
class Settings:
    """A step size is stable if all particles stay finite and the second moment stays below a bound."""

    particles: Annotated[int, Range(2, 10**7)]
    steps: Annotated[int, Range(40, 10**8)]
    bisections: Annotated[int, Range(1, 60)]
    dim: Dimension = 20  # of the mixture and the regression
    observations: Count = 1000
    data_seed: Seed = 0
    non_convex_dim: Dimension = 3
    beta: Annotated[float, Range(1e-3, 1e6)] = 2.0
    gamma: Annotated[float, Range(1e-3, 100.0)] = 0.5
    # Times the target's second moment: a stable run may be far off, and is not beyond this.
    bound: Annotated[float, Range(1.0, 1e30, above=True)] = 1e12
    fraction: Annotated[float, Range(0.0, 1.0, above=True)] = 0.9  # of a limit, for the errors near it


class Problem(NamedTuple):
    """A diffusion, where its particles start, and two Lipschitz constants of its drift: anywhere, and far out."""

    sde: BaseSDE
    start: Tensor
    smoothness: float
    far_smoothness: float


class Moment(NamedTuple):
    """E‖x‖² over the second half of a run."""

    mean: float
    standard_error: float


def plan(settings: Settings) -> dict[str, tuple[str, str]]:
    return {f"{target}-{scheme}": (target, scheme) for target, scheme in CASES}


def problem(settings: Settings, target: str, context: Context) -> Problem:
    """A shipped target with its natural diffusion."""
    like, count, seed = {"dtype": context.dtype, "device": context.device}, settings.particles, context.seed
    if target == "mixture":
        modes = mixture(settings.dim, context)
        return Problem(Langevin(modes), modes.sample((count,), seed=seed), 1.0, 1.0)
    if target == "regression":
        posterior = regression(settings.observations, settings.dim, settings.data_seed, context)
        assert posterior.smoothness is not None
        # The likelihood's gradient is bounded: far out the prior alone is left.
        prior = posterior.smoothness * posterior.alpha / (posterior.alpha + settings.observations / 4)
        start = torch.zeros(count, settings.dim, **like)  # type: ignore[call-overload]
        return Problem(Langevin(posterior), start, posterior.smoothness, prior)
    hills = NonConvex(settings.beta, settings.gamma, settings.non_convex_dim)
    start = hills.sample((count,), seed=seed, dtype=context.dtype, device=context.device)
    # The drift is -x/2 + (½ - γ)x/g, and x/g has slope at most 1/√β.
    smoothness = 0.5 + max(0.0, settings.gamma - 0.5) / math.sqrt(settings.beta)
    return Problem(ItoDiffusion(hills, hills.scale, noise_type="isotropic"), start, smoothness, 0.5)


def moment(settings: Settings, case: Problem, scheme: str, h: float, context: Context) -> Moment:
    """Infinite where a particle is."""
    half = settings.steps // 2
    try:
        run = sample(
            case.sde,
            case.start,
            integrator=scheme,
            step_size=h,
            burn_in=half,
            num_steps=half,
            thin=half // 20,
            seed=derive_seed(context.seed, 0),
            compile=context.compile,
        )
    except NonFiniteStateError:
        return Moment(math.inf, 0.0)
    assert run.trajectory is not None
    squares = run.trajectory.double().square().sum(-1).mean(0)
    return Moment(float(squares.mean()), float(squares.std()) / math.sqrt(len(squares)))


def measure(settings: Settings, pair: tuple[str, str], context: Context) -> Result:
    """Bisection, evenly in the logarithm, between a step that is surely stable and one that is surely not."""
    target, scheme = pair
    case = problem(settings, target, context)
    truth = _truth(settings, case, context)
    low, high = 0.1 * 2 / case.smoothness, 13 * 2 / case.far_smoothness
    for _ in context.bar(range(settings.bisections), unit="step size"):
        middle = math.sqrt(low * high)
        stable = moment(settings, case, scheme, middle, context).mean < settings.bound * truth
        low, high = (middle, high) if stable else (low, middle)
    there = moment(settings, case, scheme, settings.fraction * low, context)
    linear = moment(settings, case, scheme, settings.fraction * 2 / case.smoothness, context)
    return {
        "largest_stable": low,
        "smallest_unstable": high,
        "smoothness": case.smoothness,
        "far_smoothness": case.far_smoothness,
        "second_moment": truth,
        "there": list(there),
        "linear": list(linear),
    }


def _truth(settings: Settings, case: Problem, context: Context) -> float:
    """The target's second moment; the regression's is not known, and comes from small steps."""
    potential = case.sde.potential
    if isinstance(potential, (GaussianMixture, NonConvex)):
        return potential.second_moment()
    return moment(settings, case, "srk-ld", 0.2 / case.smoothness, context).mean


def conclude(settings: Settings, results: Mapping[str, Result]) -> Conclusion:
    rows = [_row(*pair, results[unit]) for unit, pair in plan(settings).items()]
    return Conclusion(
        tables={"stability": rows},
        figures={"stability": partial(draw, settings, rows)},
        findings=[*(_limit_finding(settings, row) for row in rows), *_error_findings(settings, rows)],
    )


def _row(target: str, scheme: str, result: Result) -> Row:
    truth = result["second_moment"]
    return {
        "target": target,
        "scheme": scheme,
        "largest_stable": result["largest_stable"],
        "smallest_unstable": result["smallest_unstable"],
        "linear_theory": 2 / result["smoothness"],
        "linear_theory_far_out": 2 / result["far_smoothness"],
        "error_near_largest": result["there"][0] / truth - 1,
        "error_near_largest_standard_error": result["there"][1] / truth,
        "error_near_linear_theory": result["linear"][0] / truth - 1,
        "error_near_linear_theory_standard_error": result["linear"][1] / truth,
    }


def _limit_finding(settings: Settings, row: Row) -> Finding:
    """On a quadratic both |1 - hL| and |1 - hL + (hL)²/2| are below 1 up to h = 2/L. It is the curvature far out that
    decides: where that is less than L, steps beyond 2/L are still stable."""
    ratio = row["largest_stable"] / row["linear_theory_far_out"]
    times = row["largest_stable"] / row["linear_theory"]
    beyond = f", {times:.3g} times 2/L" if row["linear_theory_far_out"] > 1.001 * row["linear_theory"] else ""
    text = (
        f"{row['target']}: {plots.LABELS[row['scheme']]} is stable up to h = {row['largest_stable']:.3g}, "
        f"within a tenth of linear theory's 2/(L far out), {ratio:.2f} of it{beyond}; at {settings.fraction:g} of that "
        f"step E‖x‖² is off by "
        f"{row['error_near_largest']:.2g} times itself"
    )
    return Finding(text, 0.9 < ratio < 1.1)


def _error_findings(settings: Settings, rows: list[Row]) -> list[Finding]:
    """Rows come in pairs, Euler-Maruyama's and the other scheme's. SRK-LD's law is better than that. SRK-ID's is
    not: its higher order is a strong one, and the term that brings it adds to the second moment.
    """
    found = []
    for em, other in zip(rows[::2], rows[1::2], strict=True):
        errors = [abs(row["error_near_linear_theory"]) for row in (em, other)]
        better = other["scheme"] == "srk-ld"
        verdict = "closer" if better else "not closer"
        text = (
            f"{em['target']}, h = {settings.fraction:g}·2/L: {plots.LABELS[other['scheme']]} is {verdict} "
            f"than Euler-Maruyama; E‖x‖² is off by {_shown(other)} and {_shown(em)} times itself"
        )
        both = math.hypot(*(row["error_near_linear_theory_standard_error"] for row in (em, other)))
        noise = student_95(settings.particles - 1) * both
        found.append(Finding(text, errors[1] < errors[0] - noise if better else errors[1] > errors[0] - noise))
    return found


def _shown(row: Row) -> str:
    return f"{row['error_near_linear_theory']:.3g} ± {row['error_near_linear_theory_standard_error']:.2g}"


def draw(settings: Settings, rows: list[Row], file: Any) -> None:
    """The largest stable step beside linear theory, and the error near it."""
    figure, (left, right) = plots.panels(2, height=4.0, share_y=True)
    names = [f"{row['target']}\n{plots.LABELS[row['scheme']]}" for row in rows]
    colors = [plots.COLOR_OF[row["scheme"]] for row in rows]
    left.barh(names, [row["largest_stable"] for row in rows], color=colors, alpha=0.7)
    for key, mark, label in (("linear_theory", "|", "2/L"), ("linear_theory_far_out", "x", "2/(L far out)")):
        left.plot([row[key] for row in rows], names, color="black", marker=mark, linestyle="none", ms=14, label=label)
    left.set(xscale="log", xlabel="step size", title="largest stable step")
    left.invert_yaxis()  # the first at the top
    left.legend(loc="lower right")
    wide = student_95(settings.particles - 1)
    errors = [wide * row["error_near_linear_theory_standard_error"] for row in rows]
    lengths = [abs(row["error_near_linear_theory"]) for row in rows]
    right.barh(names, lengths, xerr=errors, color=colors, alpha=0.7, capsize=3)
    right.set(xscale="log", xlabel="|relative error of E‖x‖²| (bars: 95 %)")
    right.set_title(f"error at h = {settings.fraction:g}·2/L")
    plots.save(figure, file)
