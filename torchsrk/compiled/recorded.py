"""Steps traced by running them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from .complexes import InReals, has_complex
from .recorder import ReadsValues, WritesElsewhere, constants_of, is_recorded, record
from .trace import (
    VALUES_DECIDE,
    CannotCompile,
    CannotTrace,
    TracedStep,
    Watch,
    check_repeatable,
    decompositions,
    drop_unread,
    reason_of,
    tracing,
    writes,
)

# Counts of particles for tensors with data: as in trace_step, the number marks the particles' dimension.
MARKERS = (197, 211, 223, 227)
MOST_OPERATIONS = 250_000


class CannotRecord(CannotTrace):
    """A step can't be traced by running it: torch's own tracer may be able to."""


def record_step(
    step: Callable[..., Any],
    normals: Sequence[int],
    row: Tensor,
    particles: int,
    places: Sequence[Tensor] = (),
    most_operations: int = MOST_OPERATIONS,
) -> TracedStep:
    """As trace_step, at particles that are all where ``row`` is, and without noise; of so many operations at most."""
    watch = Watch(min(most_operations, MOST_OPERATIONS))

    examples = [row.detach().expand(particles, -1)]
    examples += [row.new_zeros(particles, components) for components in normals]
    examples.append(row.new_zeros(()))
    try:
        with tracing():
            graph, read = record(watch.on(step, particles), [*examples, *places], decompositions(), watch.read)
            constants = [*places, *read]
            drop_unread(graph)
            if any(map(writes, graph.nodes)):
                graph = _without_writes(graph, [*examples, *constants], len(read))
            if has_complex(graph):
                graph = _in_reals(graph, [*examples, *constants], len(read), particles)
    except CannotCompile:
        raise
    except ReadsValues as error:
        raise CannotRecord(f"tracing a step failed: {VALUES_DECIDE}") from error
    except WritesElsewhere as error:
        raise CannotRecord("a step writes to a tensor that it did not make") from error
    except Exception as error:  # the user's own, or torch's
        raise CannotRecord(f"tracing a step failed: {reason_of(error)}") from error
    if any(map(writes, graph.nodes)):
        raise CannotRecord("a step writes to a tensor that it did not make")
    module = Held(graph)
    check_repeatable(module)  # type: ignore[arg-type]
    given = (len(examples), tuple(constants), tuple(watch.reads), len(places))
    return TracedStep(module, particles, *given)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Held:
    """In the place of a GraphModule, which would write Python for its graph."""

    graph: fx.Graph


def _without_writes(graph: fx.Graph, given: list[Tensor], constant: int) -> fx.Graph:
    """The graph with its writes in place made values."""
    interpreter = fx.Interpreter(fx.GraphModule({}, graph))
    written_out = torch.func.functionalize(interpreter.run, remove="mutations_and_views")
    with torch.no_grad():
        pure, more = record(written_out, given, decompositions(), _was_read, constant)
    if more:
        raise CannotRecord("a step writes to a tensor that it did not make")
    drop_unread(pure)
    if any("as_strided" in str(node.target) for node in pure.nodes):  # torch's own way does without
        raise CannotRecord("a step writes to parts of a tensor in a way that has no C form here")
    return pure


def _in_reals(graph: fx.Graph, given: list[Tensor], constant: int, particles: int) -> fx.Graph:
    """The graph with pairs of real numbers for complex ones."""
    with torch.no_grad():
        in_reals = InReals(fx.GraphModule({}, graph), particles).run
        real, more = record(in_reals, given, decompositions(), _was_read, constant)
    if more:
        raise CannotRecord("a step computes with complex numbers in a way that torch's tracer alone may follow")
    drop_unread(real)
    return real


def _was_read(value: Tensor) -> bool:
    """Whether a graph that is recorded again may look at a tensor: what it looks at was noted at first."""
    return not is_recorded(value) or constants_of(value) is not None
