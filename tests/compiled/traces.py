"""Traces that several runs of one step share: to trace takes torch longer than all that comes after."""

from __future__ import annotations

from dataclasses import replace

import pytest
from torch import fx

from torchsrk.compiled import steps
from torchsrk.compiled.trace import TracedStep, trace_step


def trace_once(patch: pytest.MonkeyPatch, traces: dict[tuple, TracedStep]) -> None:
    """From here on a step is traced once for every width, dtype and number of particles, and found in the table.

    The test has one SDE and one scheme, then, and is about what becomes of a trace.
    """

    def traced(step, normals, *form):
        if form not in traces:
            traces[form] = trace_step(step, normals, *form)
        return replace(traces[form], module=_copied(traces[form].module))  # lowering cuts away from a graph

    patch.setattr(steps, "trace_step", traced)


def _copied(module: fx.GraphModule) -> fx.GraphModule:
    graph = fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    return fx.GraphModule(module, graph)
