"""What bounds say is needed for W2 ≤ ε, beside what laws that are known without sampling say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from ..integrators import integrator_named
from ..potentials import GaussianMixture, LogisticRegression, NonConvex, Potential
from ..sde import UnderdampedLangevin
from ..theory import (
    Bound,
    Smoothness,
    certified,
    cheng,
    dalalyan_karagulyan,
    dalalyan_karagulyan_hessian,
    durmus_moulines,
    non_convex_constants,
    printed,
    shen_lee,
    theorem_one_cheng,
    theorem_one_em,
    theorem_one_em_ito,
    theorem_one_midpoint,
    theorem_one_srk_id,
    theorem_one_srk_ld,
    underdamped,
)
from . import plots
from .base import Conclusion, Context, Finding, Result, Row
from .config import ConfigError, Count, Dimension, Positive, Range, Seed
from .laws import LineMixture, gaussian_errors, line_errors, linear_step, steps_below
from .linear import gaussian_w2, probe
from .scheme_targets import Quadratic, even_curvatures
from .targets import SEPARATION
from .theory_assumptions import assumption_finding, assumptions

KNOWN = ("gaussian", "mixture")  # whose laws are known
LONGEST = 40_000  # steps that a law is followed for
_CHECKED = (1.0, 0.1)  # shares of the largest step of a bound at which it is held against the law, at every step
_CHECKED_STEPS = 300
_LOOKS = {
    "em": ("Euler-Maruyama", "-"),
    "srk-ld": ("SRK-LD", "--"),
    "cheng": ("Cheng's scheme", "-."),
    "randomized-midpoint": ("randomized midpoint", ":"),
}
_OVERDAMPED = (dalalyan_karagulyan, dalalyan_karagulyan_hessian, durmus_moulines)
_UNDERDAMPED = (cheng, shen_lee, theorem_one_cheng, theorem_one_midpoint)


@dataclass(frozen=True)
class Settings:
    """Chains start from a point on the Gaussian, and from N(shift, I) along a on the mixture; the shift is in every
    coordinate of the one and along a of the other."""

    errors: tuple[Positive, ...]  # ε
    targets: tuple[Literal["gaussian", "mixture", "regression", "non-convex"], ...] = (
        *KNOWN,
        "regression",
        "non-convex",
    )  # type: ignore[assignment]
    dim: Dimension = 10  # of the Gaussian and the mixture
    condition: Annotated[float, Range(1.0, 1e6)] = 10.0  # of the Gaussian: curvatures from 1, evenly in their logarithm
    shift: Annotated[float, Range(0.1, 20.0)] = 3.0
    per_decade: Annotated[int, Range(3, 100)] = 10  # step sizes that laws are tried at
    smallest: Annotated[float, Range(1e-4, 0.5)] = 0.01  # of these, times L
    observations: Count = 50  # of the regression, in two dimensions
    data_seed: Seed = 0
    beta: Positive = 0.33  # of the non-convex target, on a line
    gamma: Positive = 0.5

    def __post_init__(self) -> None:
        if max(self.errors) >= self.shift:
            raise ConfigError(
                f"errors: below shift ({self.shift:g}), which the start is away at least: no step is needed for "
                f"{max(self.errors):g}"
            )


def plan(settings: Settings) -> list[str]:
    return list(settings.targets)


def measure(settings: Settings, target: str, context: Context) -> Result:
    """Of every scheme with a law the fewest gradients for each ε, and of every bound its least ratio to the law."""
    seen = assumptions(target, potential_of(settings, target), width=settings.shift, seed=context.seed)
    if target not in KNOWN:
        return {"schemes": "", "assumptions": seen}
    bounds = bounds_with_law(settings, target)
    schemes = sorted({bound.scheme for bound in bounds})
    needed = {scheme: needed_steps(settings, target, scheme) for scheme in schemes}
    ratios = [[_least_ratio(settings, target, bound, share) for share in _CHECKED] for bound in bounds]
    return {
        "schemes": ",".join(schemes),
        "needed": torch.stack([needed[scheme] for scheme in schemes]),
        "ratios": torch.tensor(ratios, dtype=torch.float64),
        "assumptions": seen,
    }


def bounds_of(settings: Settings, target: str) -> list[Bound]:
    """All that apply to a target, from this start."""
    if target == "non-convex":
        hills, away = NonConvex(beta=settings.beta, gamma=settings.gamma, dim=1), settings.shift
        constants = non_convex_constants(hills)
        start = away + math.sqrt(hills.second_moment())
        return [make(constants, start=start, radius=away) for make in (theorem_one_em_ito, theorem_one_srk_id)]
    f, start, radius = smoothness_of(settings, target), start_of(settings, target), radius_of(settings, target)
    found = [make(f, start=start) for make in _OVERDAMPED]
    found += [make(f, start=start, radius=radius) for make in (theorem_one_em, theorem_one_srk_ld)]
    return found + [make(f, start=start) for make in _UNDERDAMPED]


def bounds_with_law(settings: Settings, target: str) -> list[Bound]:
    """Those of schemes whose law on the target is known: on the mixture, of schemes without momentum."""
    schemes = {"gaussian": None, "mixture": ("em", "srk-ld")}.get(target, ())
    return [bound for bound in bounds_of(settings, target) if schemes is None or bound.scheme in schemes]


def potential_of(settings: Settings, target: str) -> Potential:
    """In double precision."""
    if target == "gaussian":
        curvatures = even_curvatures(settings.dim, settings.condition)
        return Quadratic(torch.zeros_like(curvatures), curvatures)
    if target == "mixture":
        return GaussianMixture(torch.full((settings.dim,), SEPARATION / math.sqrt(settings.dim), dtype=torch.float64))
    if target == "regression":
        return LogisticRegression.synthetic(settings.observations, 2, seed=settings.data_seed, dtype=torch.float64)
    return NonConvex(beta=settings.beta, gamma=settings.gamma, dim=1)


def smoothness_of(settings: Settings, target: str) -> Smoothness:
    return certified(potential_of(settings, target))


def start_of(settings: Settings, target: str) -> float:
    """W2 between the start and the target, or a bound on it."""
    if target == "gaussian":
        spread = float((1.0 / even_curvatures(settings.dim, settings.condition)).sum())
        return math.sqrt(settings.dim * settings.shift**2 + spread)
    if target == "mixture":  # with the same normals, and a sign that is independent of them
        return math.hypot(settings.shift, SEPARATION)
    f = smoothness_of(settings, target)
    return settings.shift + math.sqrt(f.dim / f.strong_convexity)


def radius_of(settings: Settings, target: str) -> float:
    """Whose powers bound the start's moments up to the sixth."""
    if target == "gaussian":
        return settings.shift * math.sqrt(settings.dim)
    return math.sqrt(settings.shift**2 + settings.dim + 4) if target == "mixture" else settings.shift


def law(settings: Settings, target: str, scheme: str, h: float, steps: int) -> Tensor:
    """W2 after every step, by exact moments or quadrature. The midpoint's law on a Gaussian is taken as the Gaussian of
    its moments, which is no farther from the target."""
    if target == "mixture":
        return _mixture_law(settings, scheme, h, steps)
    curvatures = even_curvatures(settings.dim, settings.condition)
    if scheme in ("em", "srk-ld"):
        count = torch.arange(1, steps + 1)
        of = partial(gaussian_errors, scheme, step_size=h, mean=settings.shift, variance=0.0, steps=count)
        return torch.stack([of(curvature=float(curvature)) for curvature in curvatures]).sum(0).sqrt()
    potential = Quadratic(torch.zeros_like(curvatures), curvatures)
    sde = UnderdampedLangevin(potential, friction=underdamped.FRICTION, u=1.0 / float(curvatures.max()))
    found = probe(sde, integrator_named(scheme), step_size=h, modes=settings.dim)
    assert found is not None
    return gaussian_w2(*found.trace(torch.full_like(curvatures, settings.shift), steps), curvatures.rsqrt())


def _mixture_law(settings: Settings, scheme: str, h: float, steps: int) -> Tensor:
    line = line_errors(LineMixture(SEPARATION), scheme, step_size=h, mean=settings.shift, deviation=1.0)
    along = torch.tensor(list(islice(line, steps)), dtype=torch.float64)
    factor, noise = linear_step(scheme, step_size=h, curvature=1.0)
    decay = factor ** (2.0 * torch.arange(1, steps + 1, dtype=torch.float64))
    spread = (decay + (1.0 - decay) * noise / (1.0 - factor**2)).sqrt()
    return (along + (settings.dim - 1) * (spread - 1.0).square()).sqrt()


def needed_steps(settings: Settings, target: str, scheme: str) -> Tensor:
    """(errors, 2): the fewest steps after which W2 stays at or below each ε, and the step size; 0 where none does."""
    f = smoothness_of(settings, target)
    # With u = 1/L time has no unit, and the rate is 1/(2κ) for 1/κ.
    unit, slower = (1.0 / f.smoothness, 1.0) if scheme in ("em", "srk-ld") else (1.0, 2.0)
    time = slower * f.condition * unit * math.log(100.0 * settings.shift / min(settings.errors))
    count = math.ceil(settings.per_decade * math.log10(1.0 / settings.smallest)) + 1
    best = torch.zeros(len(settings.errors), 2, dtype=torch.float64)
    for k in range(count):
        h = unit * 10 ** (-k / settings.per_decade)
        errors = law(settings, target, scheme, h, min(LONGEST, math.ceil(time / h)))
        for row, epsilon in enumerate(settings.errors):
            reached = steps_below(errors, epsilon)
            if reached and (best[row, 0] == 0 or reached < best[row, 0]):
                best[row] = torch.tensor([reached, h])
    return best


def _least_ratio(settings: Settings, target: str, bound: Bound, share: float) -> float:
    """Of the bound and the law over steps; on the mixture at steps that quadrature can take."""
    h = share * bound.largest_step
    if target == "mixture":
        h = min(max(h, 0.02), bound.largest_step, 1.0)
    errors = law(settings, target, bound.scheme, h, _CHECKED_STEPS)
    told = torch.tensor([bound.after(n, step_size=h) for n in range(1, _CHECKED_STEPS + 1)], dtype=torch.float64)
    return float((told / errors).min())


def conclude(settings: Settings, results: Mapping[str, Result]) -> Conclusion:
    rows = [row for target in settings.targets for row in _plan_rows(settings, target, results[target])]
    checks = [row for target in settings.targets for row in _check_rows(settings, target, results[target])]
    known = [target for target in settings.targets if target in KNOWN]
    seen = [results[target]["assumptions"] for target in settings.targets]
    return Conclusion(
        tables={"plans": rows, "assumptions": _same_keys(seen), **({"checks": checks} if checks else {})},
        figures={"looseness": partial(draw, settings, rows, known)} if _loose(rows) else {},
        findings=[*_findings(checks, _loose(rows)), *map(assumption_finding, seen)],
        notes=_notes(settings),
    )


def _same_keys(rows: Sequence[Row]) -> list[Row]:
    keys = dict.fromkeys(key for row in rows for key in row)
    return [{key: row.get(key, "") for key in keys} for row in rows]


def _plan_rows(settings: Settings, target: str, result: Result) -> list[Row]:
    schemes = result["schemes"].split(",")
    rows = []
    for bound in bounds_of(settings, target):
        for number, epsilon in enumerate(settings.errors):
            told = bound.plan(epsilon)
            row: Row = {
                "target": target,
                "bound": bound.name,
                "scheme": bound.scheme,
                "w2": epsilon,
                "step_size": told.step_size if told else "",
                "steps": told.steps if told else "",
                "gradients": told.gradients if told else "",
                "needed_step_size": "",
                "needed_gradients": "",
                "times_too_many": "",
                "source": bound.source,
            }
            if bound.scheme in schemes:
                steps, h = result["needed"][schemes.index(bound.scheme), number].tolist()
                if steps:
                    needed = round(steps) * bound.gradients_per_step
                    row |= {"needed_step_size": h, "needed_gradients": needed}
                    row["times_too_many"] = told.gradients / needed if told else ""
            rows.append(row)
    return rows


def _check_rows(settings: Settings, target: str, result: Result) -> list[Row]:
    if target not in KNOWN:
        return []
    pairs = zip(bounds_with_law(settings, target), result["ratios"].tolist(), strict=True)
    return [
        {"target": target, "bound": bound.name, "share_of_largest_step": share, "least_ratio_to_the_law": ratio}
        for bound, ratios in pairs
        for share, ratio in zip(_CHECKED, ratios, strict=True)
    ]


def _loose(rows: Sequence[Row]) -> list[Row]:
    """Those that have a plan and a law that reaches ε."""
    return [row for row in rows if row["times_too_many"] != ""]


def _findings(checks: Sequence[Row], loose: Sequence[Row]) -> list[Finding]:
    found = []
    if checks:
        least = min(checks, key=lambda row: row["least_ratio_to_the_law"])
        text = (
            f"no bound is below the law's W2, at {len(checks)} step sizes and every step: the nearest is "
            f"{least['least_ratio_to_the_law']:.3g} times the law's ({least['bound']}, {least['target']})"
        )
        found.append(Finding(text, least["least_ratio_to_the_law"] >= 1.0))
    if loose:
        tightest, loosest = (pick(loose, key=lambda row: row["times_too_many"]) for pick in (min, max))
        text = (
            f"plans take from {tightest['times_too_many']:.2g} times ({tightest['bound']}, {tightest['target']}, "
            f"W2 ≤ {tightest['w2']:g}) to {loosest['times_too_many']:.2g} times ({loosest['bound']}, "
            f"{loosest['target']}, W2 ≤ {loosest['w2']:g}) the gradients needed, each at its best step size"
        )
        found.append(Finding(text, tightest["times_too_many"] >= 1.0))
    return found


def _notes(settings: Settings) -> list[str]:
    smooth = [target for target in settings.targets if target != "non-convex"]
    limits: dict[str, float] = {
        target: printed.srk_ld_largest_step(smoothness_of(settings, target)) for target in smooth
    }
    if "non-convex" in settings.targets:
        hills = NonConvex(beta=settings.beta, gamma=settings.gamma, dim=1)
        limits["non-convex (SRK-ID)"] = printed.srk_id_largest_step(non_convex_constants(hills))
    told = ", ".join(f"{limit:.1g} on {target}" for target, limit in limits.items())
    return [f"the step size that the paper's own moment constants allow, as printed: {told}"]


def table(conclusion: Conclusion) -> list[str]:
    """The plans, in Markdown."""
    keys = ("target", "bound", "w2", "step_size", "steps", "gradients", "needed_gradients", "times_too_many")
    lines = [f"| {' | '.join(key.replace('_', ' ') for key in keys)} |", f"|{' --- |' * len(keys)}"]
    for row in conclusion.tables["plans"]:
        cells = (f"{row[key]:.3g}" if isinstance(row[key], (int, float)) else str(row[key]) for key in keys)
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def draw(settings: Settings, rows: Sequence[Row], targets: Sequence[str], file: Any) -> None:
    """Gradients of plans over those needed, a panel for each target and a line for each bound."""
    shown = [row for row in rows if row["target"] in targets and row["times_too_many"] != ""]
    names = list(dict.fromkeys(row["bound"] for row in shown))
    titles = {
        "gaussian": f"Gaussian, d = {settings.dim}, condition number {settings.condition:g}",
        "mixture": f"mixture, d = {settings.dim}",
    }
    figure, axes = plots.panels(len(targets), width=5.6, height=5.4)
    most = 3.0 * max(row["times_too_many"] for row in shown)
    for axis, target in zip(axes, targets, strict=True):
        for number, name in enumerate(names):
            _draw_bound(axis, [row for row in shown if (row["target"], row["bound"]) == (target, name)], number)
        axis.axhline(1.0, color="black", linewidth=1)
        axis.set(xscale="log", yscale="log", xlabel="ε: W2 to be reached", title=titles[target], ylim=(0.5, most))
        plots.label_round_numbers(axis.xaxis)
    axes[0].set_ylabel("gradients of the plan / gradients needed")
    handles = {text: handle for axis in axes for handle, text in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=2, fontsize=9)
    plots.save(figure, file)


def _draw_bound(axis: Any, own: Sequence[Row], number: int) -> None:
    if not own:
        return
    scheme = own[0]["scheme"]
    label, dashes = _LOOKS[scheme]
    x, y = ([row[key] for row in own] for key in ("w2", "times_too_many"))
    style = {"color": f"C{number}", "linestyle": dashes, "marker": "os^vD*Pxh"[number % 9], "markersize": 5}
    axis.plot(x, y, label=f"{own[0]['bound']} ({label})", **style)
