"""Which parameters to look at first, where they are too many to show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from torch import Tensor

from ..tuning import Finding

# Columns of a table by which a run is judged, and whether more is worse.
_MEASURES = {
    "nested_rhat": True,
    "ess": False,
    "ess_bulk": False,
    "ess_tail": False,
    "rhat": True,
    "bias_mean": True,
    "bias_sd": True,
}


def worst_first(names: Sequence[str], table: Mapping[str, Tensor], findings: Iterable[Finding]) -> list[int]:
    """All parameters, (parameters,) by number: those that troubles name, those that are named, and those that are the
    worst by some measure, measures taking turns."""
    ordered = sorted(findings, key=lambda finding: finding.fine)
    place = {name: k for k, name in enumerate(names)}
    named = (place[name] for finding in ordered for name in finding.about if name in place)
    ranked = [_ranked(table, key, more_is_worse) for key, more_is_worse in _MEASURES.items() if key in table]
    return list(dict.fromkeys(chain(named, *zip(*ranked, strict=True), range(len(names)))))


def _ranked(table: Mapping[str, Tensor], key: str, more_is_worse: bool) -> list[int]:
    """From the worst on, what could not be told last."""
    values = table[key].abs()
    values = values + table[f"{key}_error"] if f"{key}_error" in table else values
    return (
        (values if more_is_worse else -values).nan_to_num(-float("inf")).argsort(descending=True, stable=True).tolist()
    )
