"""What the noise of minibatch gradients does to the law that Langevin chains sample.

Let the noise have variance σ² a dimension. A step of Euler-Maruyama takes in h²σ² of it beside the 2h that it means to:
heat of hσ²/2. SRK-LD's step averages two gradients, each with a minibatch of its own: h²σ²/2, heat of hσ²/4; what the
third one adds is smaller by a factor of (hλ)²/2 where the curvature is λ. The temperature measured here is

    T = E[x·∇f(x)]/d, which is 1 for the posterior, and 1 + (h/2)(E|∇f|²/d + σ²) for Euler-Maruyama:

exactly, for any f, since E|x|² does not change from step to step. The term E|∇f|²/d is the scheme's own share; that of
SRK-LD is O(h²). On a Gaussian the noise's share is hσ²/2 · (1 + hλ/2 + …) for Euler-Maruyama and hσ²/4 · (1 + hλ + …)
for SRK-LD, with λ the curvature along the noise; and the mean energy rises by (T - 1)d/2.

So SRK-LD's law keeps its order where σ² = O(h), and the paper asks for O(h²). The σ² of minibatches does not fall with
h: then both schemes are of first order, and what is left of SRK-LD's advantage is a factor of two at equal steps. At
3h, where it costs as many gradients as Euler-Maruyama at h, it has one and a half times the heat.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bayesian.calibration import calibration_error, mean_and_error, negative_log_likelihood
from bayesian.network_posterior import Chains, Setting, Task, minibatches, unit_variance
from torchsrk.experiments import plots
from torchsrk.experiments.fits import student_95

LABELS = {"em": "Euler-Maruyama", "srk-ld": "SRK-LD"}
SHARES = {"em": 1 / 2, "srk-ld": 1 / 4}  # of hσ², that become heat
COLORS = {"em": "C0", "srk-ld": "C1"}


@dataclass(frozen=True)
class Oracle:
    """Minibatch gradients at posterior states: their variance a dimension, drawn and in closed form, and the energy's
    mean curvature along their noise. The error is over minibatches."""

    batch_size: int
    variance: float
    variance_error: float
    closed_form: float
    curvature: float


@dataclass(frozen=True)
class Heat:
    """The law of one setting. What the oracle adds is a mean over chains of differences to the run with exact gradients
    and the same Brownian motion. Errors are over chains; predictions of what the oracle adds are of first order."""

    scheme: str
    step_size: float
    batch_size: str
    chains: int
    gradients: int
    oracle_variance: float
    temperature: float
    temperature_error: float
    predicted_temperature: float
    oracle_heat: float
    oracle_heat_error: float
    predicted_oracle_heat: float
    oracle_energy: float
    oracle_energy_error: float
    predicted_oracle_energy: float
    nll: float
    ece: float


Comparison = tuple[Heat, Heat, Heat]  # Euler-Maruyama at h and at 3h, SRK-LD at 3h


def measure_oracle(task: Task, x: Tensor, *, batch_size: int, draws: int, seed: int) -> Oracle:
    """At states x (chains, dim)."""
    oracle, exact = minibatches(task, batch_size, len(x), seed), task.exact()
    mean = exact.grad(x)
    noise = torch.stack([oracle.grad(x) - mean for _ in range(draws)])
    some = noise[: min(draws, 20)]
    shift = 0.01 * some / some.norm(dim=-1, keepdim=True)
    bend = (shift * (exact.grad(x + shift) - exact.grad(x - shift))).sum(-1) / 2e-4  # of a unit vector
    weights = some.square().sum(-1)
    return Oracle(
        batch_size,
        *mean_and_error(noise.square().mean((1, 2))),
        float(unit_variance(task, x).mean()) / batch_size,
        float((weights * bend).sum() / weights.sum()),
    )


def measure_heat(task: Task, setting: Setting, chains: Chains, exact: Chains, gradients: int) -> Heat:
    energy, virial, squares, unit = chains.averages
    exact_energy, exact_virial, _, _ = exact.averages
    h, variance = setting.step_size, float(unit.mean()) / (setting.batch_size or math.inf)
    heat = h * variance * SHARES[setting.scheme]
    own = h * float(squares.mean()) / 2 if setting.scheme == "em" else 0.0
    probabilities = chains.posterior_mean.mean(0)
    return Heat(
        setting.scheme,
        h,
        str(setting.batch_size or "exact"),
        len(virial),
        gradients,
        variance,
        *mean_and_error(virial),
        1 + own + heat,
        *mean_and_error(virial - exact_virial),
        heat,
        *mean_and_error(energy - exact_energy),
        heat * task.dim / 2,
        float(negative_log_likelihood(probabilities, task.test_labels)),
        float(calibration_error(probabilities, task.test_labels)),
    )


def measure_heats(task: Task, runs: Mapping[Setting, Chains], gradients: int) -> list[Heat]:
    """Of all runs, each beside that with exact gradients."""
    exact = {(setting.scheme, setting.step_size): run for setting, run in runs.items() if setting.batch_size is None}
    return [
        measure_heat(task, setting, run, exact[setting.scheme, setting.step_size], gradients)
        for setting, run in runs.items()
    ]


def compare(heats: list[Heat], step_size: float) -> list[Comparison]:
    """For every batch size; the last two have equal steps, the first and the last equal gradients for a time."""
    wanted = (("em", step_size), ("em", 3 * step_size), ("srk-ld", 3 * step_size))
    columns = [[row for row in heats if (row.scheme, row.step_size) == each] for each in wanted]
    return list(zip(*columns, strict=True))


def nearer(one: Heat, other: Heat) -> str:
    """The scheme whose temperature is nearer to 1, beyond the 95 % interval of the difference."""
    gap = abs(one.temperature - 1) - abs(other.temperature - 1)
    wide = student_95(min(one.chains, other.chains) - 1)
    if abs(gap) <= wide * math.hypot(one.temperature_error, other.temperature_error):
        return "neither"
    return other.scheme if gap > 0 else one.scheme


# ------------------------------------------------------------------------------------------------ what is shown


def print_oracles(rows: list[Oracle], step_size: float) -> None:
    print("\nThe oracle at posterior states: variance a dimension (errors over minibatches), curvature along its noise")
    print(f"{'batch':>5} {'σ², drawn':>19} {'closed form':>12} {'apart':>13} {'curvature':>10}")
    for row in rows:
        apart = f"{(row.variance - row.closed_form) / row.variance_error:+.2f} errors"
        drawn = f"{row.variance:.3f} ± {row.variance_error:.3f}"
        print(f"{row.batch_size:5} {drawn:>19} {row.closed_form:12.3f} {apart:>13} {row.curvature:10.1f}")
    for h in (step_size, 3 * step_size):
        bend = h * rows[0].curvature
        print(
            f"At h = {h:g} the next order multiplies the heat by {1 + bend / 2:.2f} (em) and {1 + bend:.2f} (srk-ld)."
        )


def print_heats(rows: list[Heat]) -> None:
    print("\nThe law, measured / predicted at first order (errors over chains)")
    titles = ("temperature", "heat by the oracle", "energy by the oracle")
    print(
        f"{'scheme':7} {'h':>7} {'batch':>6} {'σ²':>6} {titles[0]:>24} {titles[1]:>26} {titles[2]:>22}     nll    ece"
    )
    for row in rows:
        texts = (
            f"{row.temperature:.4f} ± {row.temperature_error:.4f} / {row.predicted_temperature:.4f}",
            f"{row.oracle_heat:+.4f} ± {row.oracle_heat_error:.4f} / {row.predicted_oracle_heat:+.4f}",
            f"{row.oracle_energy:+.1f} ± {row.oracle_energy_error:.1f} / {row.predicted_oracle_energy:+.1f}",
        )
        start = f"{row.scheme:7} {row.step_size:7.2g} {row.batch_size:>6} {row.oracle_variance:6.1f}"
        print(f"{start} {texts[0]:>24} {texts[1]:>26} {texts[2]:>22} {row.nll:7.4f} {row.ece:6.4f}")


def print_comparison(rows: list[Comparison], oracle: Oracle) -> None:
    """All that is off, and the batch sizes at which the noise takes over: in theory and to first order."""
    print("\nT - 1, and which scheme is nearer to 0 beyond the 95 % interval of the difference")
    print(f"{'batch':>6} {'em, h':>17} {'em, 3h':>17} {'srk-ld, 3h':>17}  equal gradients  equal steps")
    for small, large, srk in rows:
        values = " ".join(f"{row.temperature - 1:+.4f} ± {row.temperature_error:.4f}" for row in (small, large, srk))
        print(f"{small.batch_size:>6} {values}  {nearer(small, srk):15}  {nearer(large, srk)}")
    exact = rows[0][0]
    own = 2 * (exact.predicted_temperature - 1) / exact.step_size
    equal = oracle.batch_size * oracle.closed_form / own
    print(
        f"By theory the noise exceeds Euler-Maruyama's own error at batch sizes below {equal:.0f}; and below", end=" "
    )
    print(f"{equal / 2:.0f}\nSRK-LD at 3h is hotter than Euler-Maruyama at h, for as many gradients.")


def draw(heats: list[Heat], comparison: list[Comparison], dim: int, file: Any) -> None:
    """Left and middle: what the oracle adds, against hσ². Right: all that is off."""
    figure, (left, middle, right) = plots.panels(3, width=5.2, height=4.6)
    noisy = [row for row in heats if row.oracle_variance > 0]
    _draw_added(left, noisy, "oracle_heat", 1.0)
    _draw_added(middle, noisy, "oracle_energy", dim / 2)
    left.set(ylabel="T - T with exact gradients", title="temperature that minibatches add")
    middle.set(ylabel="E f - E f with exact gradients", title="energy that minibatches add (lines: on a Gaussian)")
    _draw_off(right, comparison)
    figure.suptitle("Minibatch noise in the posterior of a network for digits (bars: 95 %)")
    plots.save(figure, file)


def _draw_added(axis: Any, rows: list[Heat], name: str, slope: float) -> None:
    ends = [end(row.step_size * row.oracle_variance for row in rows) for end in (min, max)]
    for scheme, share in SHARES.items():
        line = [slope * share * end for end in ends]
        axis.plot(ends, line, color=COLORS[scheme], linestyle="--", label=f"theory, {scheme}: hσ²/{1 / share:g}")
        for h, marker in zip(sorted({row.step_size for row in rows}), "os", strict=True):
            own = [row for row in rows if (row.scheme, row.step_size) == (scheme, h)]
            axis.errorbar(
                [h * row.oracle_variance for row in own],
                [getattr(row, name) for row in own],
                yerr=[student_95(row.chains - 1) * getattr(row, f"{name}_error") for row in own],
                color=COLORS[scheme],
                marker=marker,
                linestyle="none",
                capsize=3,
                label=f"{LABELS[scheme]}, h = {h:g}",
            )
    axis.set(xscale="log", yscale="log", xlabel="hσ²")
    axis.legend(fontsize="small")


def _draw_off(axis: Any, comparison: list[Comparison]) -> None:
    for own, style in zip(zip(*comparison, strict=True), ("o-", "s--", "s-"), strict=True):
        label = f"{LABELS[own[0].scheme]}, h = {own[0].step_size:g}"
        values = [row.temperature - 1 for row in own]
        errors = [student_95(row.chains - 1) * row.temperature_error for row in own]
        color = COLORS[own[0].scheme]
        axis.errorbar(range(len(own)), values, yerr=errors, fmt=style, color=color, capsize=3, label=label)
    axis.axhline(0, color="0.6", linestyle=":")
    axis.set_xticks(range(len(comparison)), labels=[row[0].batch_size for row in comparison])
    axis.set(xlabel="batch size", ylabel="T - 1", title="all that is off (solid: equal gradients for a time)")
    axis.legend()
