"""Steps that are traced, counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from torchsrk.compiled import programs, recorded
from torchsrk.compiled.trace import TracedStep


def count_traces(patch: pytest.MonkeyPatch) -> list[Any]:
    """What is traced from here on, by running it or in torch's own way: its arguments are added to the list."""
    made: list[Any] = []

    def counted(trace: Callable[..., TracedStep]) -> Callable[..., TracedStep]:
        return lambda *args: [made.append(args), trace(*args)][1]  # type: ignore[return-value]

    patch.setattr(programs, "trace_step", counted(programs.trace_step))
    patch.setattr(recorded, "record_step", counted(recorded.record_step))
    return made
