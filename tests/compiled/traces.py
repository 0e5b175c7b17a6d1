"""Traces that several runs of one step share: to trace takes torch longer than all that comes after."""

from __future__ import annotations

from dataclasses import replace

import pytest
from torch import fx

from torchsrk.compiled import programs
from torchsrk.compiled.trace import TracedStep, trace_step
from torchsrk.derived import Ledger, plain


def trace_once(patch: pytest.MonkeyPatch, traces: dict[tuple, tuple[TracedStep, Ledger]]) -> None:
    """From here on a step is traced once for every width, dtype, number of particles and step size, and found in the
    table.

    The test has one SDE and one scheme, then, and is about what becomes of a trace.
    """

    def traced(step, normals, *form):
        (step_size,) = step.args
        key = (*form, plain(step_size))
        if key not in traces:
            traces[key] = trace_step(step, normals, *form), step_size.ledger
        found, ledger = traces[key]
        step_size.ledger.made |= ledger.made
        return replace(found, module=_copied(found.module))  # lowering cuts away from a graph

    patch.setattr(programs, "trace_step", traced)


def _copied(module: fx.GraphModule) -> fx.GraphModule:
    graph = fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    return fx.GraphModule(module, graph)
