"""A posterior on one page; matplotlib is loaded when it is drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .diagnostics import Diagnosis
from .diagnostics.draws import Parameters, kept_positions, named, read
from .diagnostics.rhat import rhat_over_time
from .extras import missing
from .sampling import Run

_WIDTH, _ROW, _BOTTOM = 10.0, 1.6, 3.2  # inches
_BINS = 60
_OWN, _OTHER, _ALARM = "tab:blue", "tab:orange", "tab:red"


def posterior_figure(
    run: Run,
    *,
    diagnosis: Diagnosis | None = None,
    reference: Tensor | None = None,
    names: Sequence[str] | Mapping[str, Sequence[int]] | None = None,
    parameters: Parameters | None = None,
    most: int = 8,
    only: Sequence[str] | None = None,
) -> Any:
    """A matplotlib Figure of the draws of a run: traces and marginals of its parameters, R-hat and the step's bias.

    Traces are of the mean of all particles and of a standard deviation about it, at every kept draw. Without a
    trajectory there are marginals alone.

    Args:
        diagnosis: that ``torchsrk.diagnose`` made of the run: tells names, parameters and the bias.
        reference: draws (draws, parameters) of another sampler, whose marginals are drawn beside those of the run.
        names, parameters: as for ``torchsrk.diagnose``; by default the diagnosis has them, or a plan's run.
        most: parameters that are shown: those that the diagnosis has troubles with, and then from the first on.
        only: names of the parameters to show, in this order; that of an array stands for all of its entries.
    """
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise ValueError(f"most is a positive integer; got {most!r}")
    positions = kept_positions(run)
    if parameters is None:
        parameters = run.constrain if diagnosis is None else diagnosis.parameters
    theta = read(positions, parameters)
    count = theta.shape[-1]
    if diagnosis is not None and len(diagnosis.names) != count:
        raise ValueError(f"the diagnosis is of {len(diagnosis.names)} parameters, and the run has {count}")
    labels = diagnosis.names if diagnosis is not None and names is None else named(names, count)
    other = None if reference is None else _checked_reference(reference, count)
    times, over_time = rhat_over_time(theta) if diagnosis is None else (diagnosis.times, diagnosis.rhat_over_time)
    which = _chosen(labels, only, most, diagnosis)
    theta, labels, over_time = theta[..., which], tuple(labels[k] for k in which), over_time[:, which]
    other = None if other is None else other[:, which]
    shown = len(which)
    has_bias = diagnosis is not None and "bias_mean" in diagnosis.table
    has_rhat = len(times) > 1 and bool(over_time.isfinite().any())

    figure, rows, bottom = _page(shown, traces=len(theta) > 1, below=has_bias + has_rhat)
    for k, axes in enumerate(rows):
        if len(axes) > 1:
            _trace(axes[0], theta[..., k], labels[k], last=k + 1 == shown)
        _marginal(axes[-1], theta[..., k].flatten(), None if other is None else other[:, k], labels[k], first=k == 0)
    if has_rhat:
        _rhat(bottom.pop(0), times, over_time, labels)
    if has_bias:
        assert diagnosis is not None
        _bias(bottom.pop(0), diagnosis, which, labels)
    return figure


def _chosen(labels: Sequence[str], only: Sequence[str] | None, most: int, diagnosis: Diagnosis | None) -> list[int]:
    """The parameters to show, by number."""
    if only is None:
        found = () if diagnosis is None else diagnosis.findings
        troubled = {name for finding in found if not finding.fine for name in finding.about}
        names = labels if diagnosis is None else diagnosis.names
        first = sorted(range(len(labels)), key=lambda k: names[k] not in troubled)
        return sorted(first[:most])
    if isinstance(only, str) or not isinstance(only, Sequence) or not only:
        raise ValueError(f"only is a list of names of parameters; got {only!r}")
    chosen: list[int] = []
    for name in only:
        entries = [k for k, label in enumerate(labels) if label == name or label.startswith(f"{name}[")]
        if not entries:
            raise ValueError(
                f"there is no parameter {name!r}; there are {', '.join(labels[:10])}{' …' * (len(labels) > 10)}"
            )
        chosen += entries
    return list(dict.fromkeys(chosen))


def _page(shown: int, *, traces: bool, below: int) -> tuple[Any, list[list[Any]], list[Any]]:
    """A figure, the axes of every parameter's row, and those below the rows."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing("matplotlib", "plots") from error
    height = _ROW * shown + (_BOTTOM if below else 0.6)
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    parts: Any = figure.subfigures(2, 1, height_ratios=[_ROW * shown, _BOTTOM]) if below else [figure]
    columns = {"ncols": 2, "width_ratios": [2, 1]} if traces else {"ncols": 1}
    axes = parts[0].subplots(shown, squeeze=False, **columns)
    bottom = list(parts[1].subplots(1, below, squeeze=False).flat) if below else []
    return figure, [list(row) for row in axes], bottom


def _trace(axis: Any, values: Tensor, label: str, *, last: bool) -> None:
    """The mean over particles of values (draws, particles), and a standard deviation on either side."""
    draws = range(1, len(values) + 1)
    mean = values.mean(1).numpy()
    sd = values.std(1).numpy() if values.shape[1] > 1 else 0.0 * mean
    axis.fill_between(draws, mean - sd, mean + sd, color=_OWN, alpha=0.25, linewidth=0.0, label="± sd over particles")
    axis.plot(draws, mean, color=_OWN, linewidth=1.2, label="mean over particles")
    axis.set_ylabel(label)
    axis.margins(x=0.0)
    if last:
        axis.set_xlabel("kept draw")
    else:
        axis.tick_params(labelbottom=False)
    if axis.get_subplotspec().is_first_row():
        axis.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), frameon=False, fontsize="x-small", ncols=2)


def _marginal(axis: Any, values: Tensor, other: Tensor | None, label: str, *, first: bool) -> None:
    """Histograms of values and, if there are others, of those, on the middle of both: tails would hide it."""
    both = [values] if other is None else [values, other]
    low = min(_quantile(v, 0.002) for v in both)
    high = max(_quantile(v, 0.998) for v in both)
    if not high > low:
        low, high = low - 0.5, high + 0.5
    bins = torch.linspace(low, high, min(_BINS, max(10, int(math.sqrt(len(values))))) + 1).numpy()
    axis.hist(values.numpy(), bins=bins, density=True, color=_OWN, alpha=0.4, label="run")
    if other is not None:
        axis.hist(
            other.numpy(), bins=bins, density=True, histtype="step", color=_OTHER, linewidth=1.3, label="reference"
        )
        if first:
            axis.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), frameon=False, fontsize="x-small", ncols=2)
    axis.set_xlabel(label, labelpad=1.0)
    axis.set_yticks([])
    axis.set_ylabel("density", fontsize="small")


def _quantile(values: Tensor, share: float) -> float:
    return float(values.sort().values[round(share * (len(values) - 1))])


def _rhat(axis: Any, times: Sequence[int], over_time: Tensor, labels: Sequence[str]) -> None:
    for k, label in enumerate(labels):
        axis.plot(times, over_time[:, k].tolist(), marker=".", linewidth=1.0, label=label)
    # What draws have that know nothing of one another.
    axis.plot(times, [math.sqrt(1.0 + 1.0 / t) for t in times], color="black", linestyle=":", label="independent draws")
    axis.set_xscale("log")
    axis.set_xticks(list(times)[:: max(1, len(times) // 6)], labels=[str(t) for t in times][:: max(1, len(times) // 6)])
    axis.minorticks_off()
    axis.set_xlabel("kept draws, from the first on")
    axis.set_ylabel("nested R-hat")
    axis.legend(fontsize="x-small", ncols=2)


def _bias(axis: Any, diagnosis: Diagnosis, which: Sequence[int], labels: Sequence[str]) -> None:
    """Bars of what the step size does to means and standard deviations, with errors, and the tolerance."""
    places = range(len(labels))
    for shift, key, color, label in (
        (-0.2, "bias_mean", _OWN, "means"),
        (0.2, "bias_sd", _OTHER, "standard deviations"),
    ):
        values, errors = (diagnosis.table[name][which].tolist() for name in (key, f"{key}_error"))
        axis.bar(
            [place + shift for place in places],
            values,
            width=0.4,
            yerr=errors,
            color=color,
            alpha=0.6,
            capsize=2.0,
            label=label,
        )
    for side in (-1.0, 1.0):
        axis.axhline(
            side * diagnosis.tolerance, color=_ALARM, linestyle="--", label="tolerance" if side > 0.0 else None
        )
    axis.axhline(0.0, color="black", linewidth=0.6)
    axis.set_ylim(*(1.6 * side * _reach(diagnosis, which) for side in (-1.0, 1.0)))
    axis.set_xticks(places, labels=labels, rotation=45 if max(map(len, labels)) > 4 else 0)
    axis.set_ylabel("bias of the step, in sd")
    axis.legend(fontsize="x-small", ncols=3, loc="upper center")


def _reach(diagnosis: Diagnosis, which: Sequence[int]) -> float:
    """The farthest that a bar with its error goes, or the tolerance."""
    ends = [
        diagnosis.table[key][which].abs() + diagnosis.table[f"{key}_error"][which] for key in ("bias_mean", "bias_sd")
    ]
    return max(diagnosis.tolerance, float(torch.cat(ends).nan_to_num(0.0, posinf=0.0).max()))


def _checked_reference(reference: Tensor, count: int) -> Tensor:
    if not isinstance(reference, Tensor) or reference.ndim != 2 or reference.shape[-1] != count or not len(reference):
        given = tuple(reference.shape) if isinstance(reference, Tensor) else type(reference).__name__
        raise ValueError(f"reference is draws (draws, {count}) of the same parameters; got {given}")
    return reference.detach().double().cpu()
