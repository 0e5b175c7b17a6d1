"""What bounds say is needed for W2 ≤ ε, beside what laws that are known without sampling say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from ..theory import Bound, non_convex_constants, printed
from .base import Conclusion, Context, Finding, Result, Row
from .theory_assumptions import assumption_finding, assumptions
from .theory_figures import draw
from .theory_laws import law_of, needed_steps, told_steps
from .theory_targets import Settings, bounds_of, hills_of, potential_of, smoothness_of

__all__ = ["Settings", "conclude", "measure", "plan", "table"]

_CHECKED = (1.0, 0.1)  # shares of the largest step of a bound at which it is held against the law


def plan(settings: Settings) -> list[str]:
    return list(settings.targets)


def measure(settings: Settings, target: str, context: Context) -> Result:
    """Of every scheme the fewest steps for each ε, and of every bound its least ratio to the law."""
    bounds = bounds_of(settings, target)
    schemes = sorted({bound.scheme for bound in bounds})
    checks = [_check(settings, target, bound, share) for bound in bounds for share in _CHECKED]
    return {
        "schemes": ",".join(schemes),
        "needed": torch.stack([needed_steps(settings, target, scheme) for scheme in schemes]),
        "checks": torch.stack(checks).view(len(bounds), len(_CHECKED), -1),
        "assumptions": assumptions(target, potential_of(settings, target), width=settings.shift, seed=context.seed),
    }


def _check(settings: Settings, target: str, bound: Bound, share: float) -> Tensor:
    """The share of the bound's largest step that it was checked at, the least ratio of the bound and the law, at steps
    up to where the law has settled and in the limit, how many these are, and the W2 of the limit."""
    law = law_of(settings, target, bound.scheme, share * bound.largest_step)
    while law is None:  # the law is too wide to be told: with Euler-Maruyama near 2/L
        share /= 2.0
        law = law_of(settings, target, bound.scheme, share * bound.largest_step)
    h, steps = share * bound.largest_step, told_steps(law.settled(settings))
    errors = law.after(steps)
    told = torch.tensor([bound.after(n, step_size=h) for n in steps], dtype=torch.float64)
    kept = law.kept()
    told = torch.cat((told, torch.tensor([bound.bias(h)], dtype=torch.float64)))
    sure = torch.cat((errors, torch.tensor([kept], dtype=torch.float64))) - law.floor
    least = float((told / sure)[sure > 0.0].min())
    return torch.tensor([share, least, steps[-1], kept], dtype=torch.float64)


def conclude(settings: Settings, results: Mapping[str, Result]) -> Conclusion:
    rows = [row for target in settings.targets for row in _plan_rows(settings, target, results[target])]
    checks = [row for target in settings.targets for row in _check_rows(settings, target, results[target])]
    seen = [results[target]["assumptions"] for target in settings.targets]
    return Conclusion(
        tables={"plans": rows, "assumptions": _same_keys(seen), "checks": checks},
        figures={"looseness": partial(draw, settings, rows)} if _loose(rows) else {},
        findings=[*_findings(checks, _loose(rows)), *map(assumption_finding, seen)],
        notes=_notes(settings),
    )


def _same_keys(rows: Sequence[Row]) -> list[Row]:
    keys = dict.fromkeys(key for row in rows for key in row)
    return [{key: row.get(key, "") for key in keys} for row in rows]


def _plan_rows(settings: Settings, target: str, result: Result) -> list[Row]:
    schemes = result["schemes"].split(",")
    rows: list[Row] = []
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
            steps, h = result["needed"][schemes.index(bound.scheme), number].tolist()
            if steps:
                needed = round(steps) * bound.gradients_per_step
                row |= {"needed_step_size": h, "needed_gradients": needed}
                row["times_too_many"] = told.gradients / needed if told else ""
            rows.append(row)
    return rows


def _check_rows(settings: Settings, target: str, result: Result) -> list[Row]:
    return [
        {
            "target": target,
            "bound": bound.name,
            "share_of_largest_step": share,
            "step_size": share * bound.largest_step,
            "settled_after_steps": round(steps),
            "w2_kept": kept,
            "least_ratio_to_the_law": least,
        }
        for bound, checks in zip(bounds_of(settings, target), result["checks"].tolist(), strict=True)
        for share, least, steps, kept in checks
    ]


def _loose(rows: Sequence[Row]) -> list[Row]:
    """Those that have a plan and a law that reaches ε."""
    return [row for row in rows if row["times_too_many"] != ""]


def _findings(checks: Sequence[Row], loose: Sequence[Row]) -> list[Finding]:
    least = min(checks, key=lambda row: row["least_ratio_to_the_law"])
    text = (
        f"no bound is below the law's W2, at {len(checks)} step sizes from the first step to the law that is kept: "
        f"the nearest is {least['least_ratio_to_the_law']:.3g} times the law's ({least['bound']}, {least['target']})"
    )
    found = [Finding(text, least["least_ratio_to_the_law"] >= 1.0)]
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
        limits["non-convex (SRK-ID)"] = printed.srk_id_largest_step(non_convex_constants(hills_of(settings)))
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
