"""What the sweeps of many schemes say: tables, which scheme is best where, and what was left out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from .base import Finding, Result, Row
from .scheme_figures import goal, label
from .scheme_moments import has_momentum, scheme_named
from .scheme_targets import Target

WITH_HESSIANS = ("ozaki", "tamed")  # which know the conditioning: that is no gradient's merit


def error_rows(target: Target, name: str, results: Mapping[str, Result]) -> list[Row]:
    result, gradients = results[f"{target.kind}-{name}"], scheme_named(name).gradients_per_step
    if "skipped" in result:
        return []
    keys = ("second_moment", "mean", "w2", "noise", "stable", "resolved")
    return [
        {
            "target": target.kind,
            "scheme": name,
            "step_size": float(h),
            "gradients_a_time": gradients / float(h),
            "gradients_a_unit": gradients * result["unit_time"] / float(h),
            **{key: float(result[key][k]) for key in keys},
            "exact": bool(result["exact"]),
        }
        for k, h in enumerate(result["step_size"])
    ]


def reached_row(target: Target, name: str, results: Mapping[str, Result]) -> Row:
    """The fewest gradients to the tolerance, with the step size that needs them, and the limit of stability."""
    result, timed = results[f"{target.kind}-{name}"], results.get(f"seconds-{target.kind}-{name}")
    gradients = scheme_named(name).gradients_per_step
    found = _skipped() if "skipped" in result else _best(result)
    cost = timed["seconds"] if timed else math.nan
    return {
        "target": target.kind,
        "scheme": name,
        "gradients_a_step": gradients,
        **found,
        "gradients": found["steps"] * gradients,
        "seconds_a_step": cost,
        "seconds": found["steps"] * cost,
        "compiled": bool(timed["compiled"]) if timed else False,
    }


def _skipped() -> Row:
    nothing: Row = dict.fromkeys(("step_size", "steps", "stable_to", "unstable_from"), math.nan)
    return nothing | {"resolved": False, "exact": False}


def _best(result: Result) -> Row:
    """Of a sweep; infinitely many steps where the tolerance was not reached."""
    sizes, stable = result["step_size"], result["stable"] > 0
    steps = torch.where(result["steps"] > 0, result["steps"], math.inf)
    best, unstable = int(steps.argmin()), sizes[~stable]
    return {
        "step_size": float(sizes[best]) if steps[best] < math.inf else math.nan,
        "steps": float(steps[best]),
        "stable_to": float(sizes[stable].max()) if bool(stable.any()) else math.nan,
        "unstable_from": float(unstable.min()) if len(unstable) else math.inf,
        "resolved": bool(result["resolved"].all()),
        "exact": bool(result["exact"]),
    }


def overview_row(targets: Sequence[Target], name: str, reached: list[Row]) -> Row:
    """One line a scheme: gradients, and seconds of all chains, to the tolerance of each target."""
    own = {row["target"]: row for row in reached if row["scheme"] == name}
    row: Row = {"scheme": name, "gradients_a_step": scheme_named(name).gradients_per_step}
    for target in targets:
        row[f"gradients_{target.kind}"] = own[target.kind]["gradients"]
        row[f"seconds_{target.kind}"] = own[target.kind]["seconds"]
    return row


def findings(targets: Sequence[Target], errors: list[Row], reached: list[Row]) -> list[Finding]:
    """Those that the schemes and targets of a run can tell."""
    found = [best_finding(target, reached) for target in targets]
    found += [same_map_finding(errors, reached), momentum_finding(reached), exact_finding(errors)]
    return [finding for finding in found if finding is not None]


def _ranked(reached: list[Row], kind: str) -> list[Row]:
    own = [row for row in reached if row["target"] == kind and math.isfinite(row["gradients"])]
    return sorted(own, key=lambda row: row["gradients"])


def best_finding(target: Target, reached: list[Row]) -> Finding | None:
    """Which scheme of gradients alone needs the fewest; that it is not SRK-LD is what is claimed."""
    ranked = _of_gradients(_ranked(reached, target.kind))
    srk = next((row for row in reached if (row["target"], row["scheme"]) == (target.kind, "srk-ld")), None)
    if srk is None:
        return None
    if not ranked:
        return Finding(f"{target.kind}: some scheme reaches {goal(target)}", False)
    behind = (
        f"it needs {srk['gradients']:g}, {srk['gradients'] / ranked[0]['gradients']:.3g} times as many"
        if math.isfinite(srk["gradients"])
        else "it does not get there"
    )
    fewest = f"fewest gradients have {_counts(ranked[:3])}"
    text = f"{target.kind}: SRK-LD is not the best way to {goal(target)}: {behind}; {fewest}"
    return Finding(text, ranked[0]["scheme"] != "srk-ld")


def same_map_finding(errors: list[Row], reached: list[Row]) -> Finding | None:
    """On a linear drift; laws and steps are exact there, so equal means equal."""
    own = {row["scheme"]: row for row in reached if row["target"] == "gaussian"}
    if not {"sra1", "srk-ld"} <= own.keys():
        return None
    first, second = own["sra1"], own["srk-ld"]
    laws = {
        name: {row["step_size"]: row["w2"] for row in errors if (row["target"], row["scheme"]) == ("gaussian", name)}
        for name in ("sra1", "srk-ld")
    }
    shared = laws["sra1"].keys() & laws["srk-ld"].keys()
    pairs = [(laws["sra1"][h], laws["srk-ld"][h]) for h in shared]
    apart = max((abs(a - b) for a, b in pairs if a < math.inf), default=0.0)
    text = (
        f"on a linear drift SRA1 is SRK-LD for two thirds of the gradients: W2 at stationarity differs by {apart:.1g} "
        f"at most at {len(shared)} step sizes, and both need {first['steps']:g} steps: {first['gradients']:g} "
        f"gradients for {second['gradients']:g}"
    )
    return Finding(text, bool(shared) and apart < 1e-9 and first["steps"] == second["steps"])


def momentum_finding(reached: list[Row]) -> Finding | None:
    """Where the target is ill-conditioned."""
    with_it, without = _by_momentum(_ranked(reached, "gaussian"))
    if not with_it or not without:
        return None
    a, b = with_it[0], without[0]
    text = (
        f"on the ill-conditioned Gaussian momentum wins: {label(a['scheme'])} needs {a['gradients']:g} "
        f"gradients, the best without momentum or Hessian ({label(b['scheme'])}) {b['gradients']:g}"
    )
    return Finding(text, a["gradients"] < b["gradients"])


def exact_finding(errors: list[Row]) -> Finding | None:
    own = [row for row in errors if row["target"] == "gaussian" and row["scheme"] in ("lm", "baoab") and row["stable"]]
    if not own:
        return None
    worst = max(row["w2"] for row in own)
    text = f"LM and BAOAB have no error on a Gaussian at any stable step size: W2 {worst:.1g} at most at {len(own)}"
    return Finding(text, worst < 1e-6)


def notes(targets: Sequence[Target], friction: float, reached: list[Row]) -> list[str]:
    """Every scheme on every target, in words short enough to read; and what was left out."""
    lines = [line for target in targets for line in _notes_on(target, reached)]
    return [
        *lines,
        f"friction is {friction:g}·√(least curvature), one choice for all; gradients of Ozaki and tamed leave "
        "out their second derivatives, and those of MALA and GHMC their energies",
    ]


def _notes_on(target: Target, reached: list[Row]) -> list[str]:
    own, ranked = [row for row in reached if row["target"] == target.kind], _ranked(reached, target.kind)
    never = [row for row in own if row["gradients"] == math.inf]
    told = "; ".join(
        f"{words}: {shown}"
        for words, shown in (
            (f"gradients a chain to {goal(target)} from {target.start:g} sd off", _counts(ranked)),
            ("not reached at any step size that was followed", _names([row for row in never if row["resolved"]])),
            ("not reached at those that noise lets tell", _names([row for row in never if not row["resolved"]])),
            (
                f"left out, as second derivatives in {target.dim} dimensions are dear",
                _names([row for row in own if math.isnan(row["gradients"])]),
            ),
        )
        if shown
    )
    lines = [f"{target.kind}, d = {target.dim}, {told}"]
    with_it, without = _by_momentum(ranked)
    if target.kind != "gaussian" and with_it and without:
        lines.append(
            f"{target.kind}: best with momentum {_counts(with_it[:1])}, without {_counts(without[:1])} gradients"
        )
    eager = _names([row for row in own if row["seconds_a_step"] > 0 and not row["compiled"]])
    return [*lines, f"{target.kind}: timed eagerly, as not compiled: {eager}"] if eager else lines


def _names(rows: Sequence[Row]) -> str:
    return ", ".join(label(row["scheme"]) for row in rows)


def _counts(rows: Sequence[Row]) -> str:
    return ", ".join(f"{label(row['scheme'])} {row['gradients']:g}" for row in rows)


def _by_momentum(ranked: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """With it, and without it or a Hessian."""
    with_it = [row for row in ranked if has_momentum(scheme_named(row["scheme"]))]
    return with_it, [row for row in _of_gradients(ranked) if row not in with_it]


def _of_gradients(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["scheme"] not in WITH_HESSIANS]
