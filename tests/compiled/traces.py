"""Steps that are traced: counted, and kept where several runs share one step that torch is slow to trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from torchsrk.compiled import programs, recorded
from torchsrk.compiled.trace import TracedStep, trace_step
from torchsrk.derived import Ledger, plain


def count_traces(patch: pytest.MonkeyPatch) -> list[Any]:
    """What is traced from here on, by running it or in torch's own way: its arguments are added to the list."""
    made: list[Any] = []

    def counted(trace: Callable[..., TracedStep]) -> Callable[..., TracedStep]:
        return lambda *args: [made.append(args), trace(*args)][1]  # type: ignore[return-value]

    patch.setattr(programs, "trace_step", counted(programs.trace_step))
    patch.setattr(recorded, "record_step", counted(recorded.record_step))
    return made


def trace_once(patch: pytest.MonkeyPatch, traces: dict[tuple, tuple[TracedStep, Ledger]]) -> None:
    """From here on torch traces a step once for every width, dtype, number of particles and step size, and it is found
    in the table.

    The test has one SDE and one scheme, then, and is about what becomes of a trace.
    """

    def traced(
        step: Any, normals: Sequence[int], width: int, dtype: torch.dtype, particles: int, places: Sequence[Tensor]
    ) -> TracedStep:
        assert not places
        (step_size,) = step.args
        key = (width, dtype, particles, plain(step_size))
        if key not in traces:
            traces[key] = trace_step(step, normals, width, dtype, particles), step_size.ledger
        found, ledger = traces[key]
        step_size.ledger.made |= ledger.made
        return replace(found, module=_copied(found.module))  # lowering cuts away from a graph

    patch.setattr(programs, "trace_step", traced)


def _copied(module: fx.GraphModule) -> fx.GraphModule:
    graph = fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    return fx.GraphModule(module, graph)
