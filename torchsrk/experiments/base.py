"""What an experiment is: a plan of units that are measured one by one, and what is concluded from them all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch

from .config import ConfigError

T = TypeVar("T")

Result = dict[str, Any]  # tensors, numbers and text, as a checkpoint holds them; "samples" are particles to keep
Row = dict[str, Any]  # of a table


@dataclass(frozen=True)
class Context:
    """How to compute, whatever is measured.

    Attributes:
        seed: of all that is random.
        device, dtype: of tensors.
        compile: as ``sample`` takes it.
        progress: show a bar within the unit.
    """

    seed: int
    device: torch.device
    dtype: torch.dtype
    compile: bool
    progress: bool

    def bar(self, items: Iterable[T], *, unit: str, total: int | None = None) -> Iterator[T]:
        """The items, with a bar below that of the units which goes when they end."""
        from tqdm import tqdm

        return iter(tqdm(items, unit=unit, total=total, position=1, leave=False, disable=not self.progress))


@dataclass(frozen=True)
class Finding:
    """What was found.

    Attributes:
        text: a statement with its numbers.
        holds: whether it holds.
    """

    text: str
    holds: bool


@dataclass(frozen=True)
class Conclusion:
    """What a run leaves behind.

    Attributes:
        tables: rows for each CSV, one a measurement.
        figures: matplotlib's figures, or functions that draw one into a file when it is wanted.
        findings: what the paper claims and theory says, tested on the results.
        notes: numbers that are reported, whatever they are.
    """

    tables: Mapping[str, Sequence[Row]]
    figures: Mapping[str, Callable[[Any], None] | Any]
    findings: Sequence[Finding]
    notes: Sequence[str] = ()

    def lines(self) -> list[str]:
        """Findings and notes, in words."""
        found = [f"{'holds' if finding.holds else 'DOES NOT HOLD'}: {finding.text}" for finding in self.findings]
        return [*found, *self.notes]


class Experiment(Protocol):
    """A module with these names. ``measure`` depends on its arguments alone: a run that was killed and goes on ends
    with the numbers of one that was not.

    Attributes:
        Settings: a frozen dataclass; its fields are what a config may set.
        plan: from the settings alone to the cases, by the names of their files; or to names that say all.
        measure: from the settings, a case and a Context to what was measured: numbers, text, lists and tensors.
        conclude: from the settings and all that was measured, by the names of the cases, to a Conclusion.
    """

    Settings: type

    def plan(self, settings: Any) -> Mapping[str, Any] | Sequence[str]: ...

    def measure(self, settings: Any, case: Any, context: Context) -> Result: ...

    def conclude(self, settings: Any, results: Mapping[str, Result]) -> Conclusion: ...


def by_name(cases: Iterable[tuple[str, T]]) -> dict[str, T]:
    """A plan. Two cases of one name are refused: the second would be given the result of the first."""
    plan: dict[str, T] = {}
    for name, case in cases:
        if plan.setdefault(name, case) != case:
            raise ConfigError(
                f"{name}: the name of two cases, {plan[name]} and {case}; they differ too little to be told apart"
            )
    return plan
