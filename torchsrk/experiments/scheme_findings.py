"""What the sweeps of many schemes say: tables, which scheme is best where, and what was left out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from .base import Finding, Result, Row
from .scheme_figures import LABELS, goal
from .scheme_moments import has_momentum, scheme_named
from .scheme_targets import Target


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
    scheme = scheme_named(name)
    where = {"target": target.kind, "scheme": name, "gradients_a_step": scheme.gradients_per_step}
    empty: Row = dict.fromkeys(("step_size", "steps", "gradients", "stable_to", "unstable_from"), math.nan)
    if "skipped" not in result:
        steps = torch.where(result["steps"] > 0, result["steps"], math.inf)
        best, stable = int(steps.argmin()), result["stable"] > 0
        unstable = result["step_size"][~stable]
        empty |= {
            "step_size": float(result["step_size"][best]) if steps[best] < math.inf else math.nan,
            "steps": float(steps[best]),
            "gradients": float(steps[best]) * scheme.gradients_per_step,
            "stable_to": float(result["step_size"][stable].max()) if bool(stable.any()) else math.nan,
            "unstable_from": float(unstable.min()) if len(unstable) else math.inf,
        }
    cost = timed["seconds"] if timed else math.nan
    return (
        where
        | empty
        | {
            "seconds_a_step": cost,
            "seconds": empty["steps"] * cost,
            "compiled": bool(timed["compiled"]) if timed else False,
            "exact": bool(result.get("exact", 0)),
        }
    )


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
    """Which scheme needs the fewest gradients; that it is not SRK-LD is what is claimed."""
    ranked = _ranked(reached, target.kind)
    srk = next((row for row in reached if (row["target"], row["scheme"]) == (target.kind, "srk-ld")), None)
    if srk is None:
        return None
    if not ranked:
        return Finding(f"{target.kind}: some scheme reaches {goal(target)}", False)
    first = ", ".join(f"{LABELS[row['scheme']]} {row['gradients']:g}" for row in ranked[:3])
    behind = (
        f"it needs {srk['gradients']:g}, {srk['gradients'] / ranked[0]['gradients']:.2g} times as many"
        if math.isfinite(srk["gradients"])
        else "it does not get there"
    )
    text = f"{target.kind}: SRK-LD is not the best to {goal(target)}: {behind}; fewest gradients have {first}"
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
    ranked = _ranked(reached, "gaussian")
    with_it = [row for row in ranked if has_momentum(scheme_named(row["scheme"]))]
    # A Hessian knows the conditioning: it is no gradient's merit.
    without = [row for row in ranked if row not in with_it and row["scheme"] != "ozaki"]
    if not with_it or not without:
        return None
    a, b = with_it[0], without[0]
    text = (
        f"on the ill-conditioned Gaussian momentum wins: {LABELS[a['scheme']]} needs {a['gradients']:g} "
        f"gradients, the best without momentum or Hessian ({LABELS[b['scheme']]}) {b['gradients']:g}"
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
    lines = []
    for target in targets:
        own = [row for row in reached if row["target"] == target.kind]
        told = ", ".join(f"{LABELS[row['scheme']]} {row['gradients']:g}" for row in _ranked(own, target.kind))
        never = [LABELS[row["scheme"]] for row in own if row["gradients"] == math.inf]
        left = [LABELS[row["scheme"]] for row in own if math.isnan(row["gradients"])]
        line = f"{target.kind}, d = {target.dim}, gradients a chain to {goal(target)} from {target.start:g} sd off: "
        line += told
        line += f"; not reached at any step size: {', '.join(never)}" if never else ""
        line += (
            f"; left out, as second derivatives in {target.dim} dimensions are dear: {', '.join(left)}" if left else ""
        )
        lines.append(line)
        eager = [LABELS[row["scheme"]] for row in own if row["seconds_a_step"] > 0 and not row["compiled"]]
        if eager:
            lines.append(f"{target.kind}: timed eagerly, as not compiled: {', '.join(eager)}")
    lines.append(
        f"friction is {friction:g}·√(least curvature), one choice for all; gradients of Ozaki and tamed leave "
        "out their second derivatives, and those of MALA and GHMC their energies"
    )
    return lines
