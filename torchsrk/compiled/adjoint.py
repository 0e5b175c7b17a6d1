"""The step back of a solve: from the slope of a loss at a step's end to that at its start, and to the parameters.

A step's derivative is traced like the step itself. What it gives for parameters are sums over the particles, which a
program of particles has no form for: so each such sum is cut off there. The terms are what the program emits, the loop
around it adds them up over particles and steps, and torch makes the gradients of the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from .calls import Call, operation_name
from .evaluation import evaluate
from .lowering import CONSTANTS, StepCode, begin, finish, is_of_particles, lower_one
from .trace import CannotCompile, TracedStep
from .writer import Index, Shape, Value, Writer, count, entries, is_particles, offset

SLOTS = 8  # of solve.c
_MIXES = "a step mixes its particles"


class StepBack:
    """(x, slope at the step's end), noise and time to the slope at its start and the gradients of ``wanted``.

    Attributes:
        reached: which of the wanted tensors have a gradient, by number; known after a call.
    """

    def __init__(self, step: Callable[..., Tensor], width: int, wanted: Sequence[Tensor]) -> None:
        self._step, self._width, self._wanted = step, width, wanted
        self.reached: tuple[int, ...] = ()

    def __call__(self, step_size: float, state: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
        slope = state[..., self._width :]
        with torch.enable_grad():
            x = state[..., : self._width].detach().requires_grad_()
            moved = self._step(step_size, x, *arguments)
            first, *found = torch.autograd.grad(moved, (x, *self._wanted), slope, allow_unused=True)
        self.reached = tuple(k for k, gradient in enumerate(found) if gradient is not None)
        return torch.zeros_like(slope) if first is None else first, *(g for g in found if g is not None)


@dataclass(frozen=True)
class Reduction:
    """A sum over particles, as solve.c has it: of products of two matrices' entries, or of one's if there are no
    columns."""

    node: fx.Node
    batch: int
    terms: int
    rows: int
    columns: int
    left: int
    right: int
    total: int

    @property
    def entries(self) -> int:
        return self.batch * self.rows * max(1, self.columns)

    def __str__(self) -> str:
        numbers = (self.batch, self.terms, self.rows, self.columns, self.left, self.right, self.total)
        return f"{{{', '.join(map(str, numbers))}}}"


@dataclass(frozen=True)
class AdjointCode:
    """The C of a step back, what it emits, and what is made of its sums.

    Attributes:
        emitted: vectors: first the slope, then the terms of sums.
        gradients: of the wanted tensors, as nodes of the graph after the sums.
        fills: tensors of one number that these read.
    """

    code: StepCode
    emitted: int
    reductions: tuple[Reduction, ...]
    gradients: tuple[fx.Node, ...]
    fills: tuple[fx.Node, ...]

    @property
    def totals(self) -> int:
        return sum(reduction.entries for reduction in self.reductions)

    def is_like(self, other: AdjointCode) -> bool:
        """Whether both say the same."""
        same = [str(a) == str(b) for a, b in zip(self.reductions, other.reductions, strict=False)]
        return self.code.is_like(other.code) and len(self.reductions) == len(other.reductions) and all(same)

    def definitions(self) -> dict[str, Any]:
        """What solve.c asks for."""
        return {
            "ADJOINT": 1,
            "EMITTED": self.emitted,
            "TOTALS": max(1, self.totals),
            "REDUCTIONS": ", ".join(map(str, self.reductions)) or "{0}",
        }

    def gradients_of(
        self, traced: TracedStep, constants: Sequence[Tensor], totals: Tensor, dtype: torch.dtype
    ) -> list[Tensor]:
        """The gradients of the wanted tensors from the sums, (SLOTS, totals)."""
        sums = totals.sum(0).to(dtype)
        known = {r.node: sums[r.total : r.total + r.entries].view(r.node.meta["val"].shape) for r in self.reductions}
        filled = {node: _filled(node) for node in self.fills}
        return evaluate(traced, self.gradients, constants, {**known, **filled})


class _Emitted:
    """Collects what a step back emits, each thing once."""

    def __init__(self, writer: Writer, slope: Value) -> None:
        self.writer = writer
        self.parts: list[tuple[Value, int]] = [(slope, 0)]
        self.size = count(slope.shape)
        self._known: dict[tuple[Shape, str], int] = {}

    def place(self, value: Value, dims: Sequence[int]) -> int:
        """Where the value's entries are, with its dimensions in this order."""
        value = self.writer.store(value)
        shape = tuple(entries(value.shape[d]) for d in dims)

        def source(index: Index) -> Index:
            return [index[dims.index(d)] if size != 1 else "0" for d, size in enumerate(map(entries, value.shape))]

        moved = value.moved(shape, source)
        sizes = tuple(size for size in shape if size != 1)
        names = iter(f"i{d}" for d in range(len(sizes)))
        key = sizes, moved.entry([next(names) if size != 1 else "0" for size in shape])
        if key not in self._known:
            self._known[key] = self.size
            self.parts.append((moved, self.size))
            self.size += count(shape)
        return self._known[key]

    def finish(self) -> None:
        shape = (self.size,)

        def filling(part: Value, start: int) -> tuple[Value, Callable[[Index], Index]]:
            return part, lambda index: [f"({start} + {offset(part.shape, index)})"]

        self.writer.result(self.writer.filled(shape, [filling(*part) for part in self.parts]))


def lower_adjoint(traced: TracedStep) -> AdjointCode:
    """The C of a traced step back.

    Raises:
        CannotCompile: an operation has no C form, or the step mixes particles.
    """
    writer = Writer(traced, one_by_one=False)
    graph = traced.module.graph
    made_here = begin(writer)
    cut: list[fx.Node] = []
    after: set[fx.Node] = set()  # the sums, and what is made of them
    fills: list[fx.Node] = []
    results: tuple[fx.Node, ...] = ()
    for node in graph.nodes:
        if node.op == "output":
            results = tuple(node.args[0])
        elif after.intersection(node.all_input_nodes):
            if is_of_particles(writer, node):
                raise CannotCompile(_MIXES)
            fills += [source for source in node.all_input_nodes if _is_fill(source)]
            if made_here.intersection(node.all_input_nodes).difference(fills):
                raise CannotCompile("the gradient of what depends on time alone is not a sum over steps")
            after.add(node)
        elif made_here.intersection(node.all_input_nodes) and _sums_particles(writer, node):
            cut.append(node)
            after.add(node)
        else:
            lower_one(writer, node, made_here)
    slope, *gradients = results
    if slope in after:
        raise CannotCompile(_MIXES)
    if made_here.intersection(gradients):
        raise CannotCompile("the gradient of what depends on time alone is not a sum over steps")
    emitted = _Emitted(writer, writer.value(slope))
    reductions: list[Reduction] = []
    for node in cut:
        reductions.append(_reduction(writer, emitted, node, sum(r.entries for r in reductions)))
    emitted.finish()
    return AdjointCode(finish(writer), emitted.size, tuple(reductions), tuple(gradients), tuple(fills))


def _is_fill(node: fx.Node) -> bool:
    return operation_name(node) in CONSTANTS and not isinstance(node.meta["fill"], fx.Node)


def _filled(node: fx.Node) -> Tensor:
    value = node.meta["val"]
    return torch.full(value.shape, node.meta["fill"], dtype=value.dtype)


def _sums_particles(writer: Writer, node: fx.Node) -> bool:
    return not any(map(is_particles, writer.shape(node))) and any(
        any(map(is_particles, writer.shape(source))) for source in node.all_input_nodes
    )


def _reduction(writer: Writer, emitted: _Emitted, node: fx.Node, total: int) -> Reduction:
    name, call = operation_name(node) or "", Call(node)
    if name in ("mm.default", "bmm.default"):
        left, right = (writer.value(call[name]) for name in ("self", "mat2"))
        _check_order(left.shape[-1], right.shape[-2])
        batch = [0] if name == "bmm.default" else []
        row, column = len(batch), len(batch) + 1
        terms, rows, columns = (entries(size) for size in (left.shape[-1], left.shape[-2], right.shape[-1]))
        places = emitted.place(left, (*batch, column, row)), emitted.place(right, (*batch, row, column))
        return Reduction(node, count(left.shape[:-2]), terms, rows, columns, *places, total)
    if name in ("sum.default", "sum.dim_IntList"):
        source = writer.value(call["self"])
        dims = list(range(len(source.shape)))
        summed = [d % len(dims) for d in (call.get("dim") or dims)] if name == "sum.dim_IntList" else dims
        kept = [d for d in dims if d not in summed]
        terms, rows = count(source.shape[d] for d in summed), count(source.shape[d] for d in kept)
        return Reduction(node, 1, terms, rows, 0, emitted.place(source, (*summed, *kept)), 0, total)
    raise CannotCompile(f"a gradient uses {node.target} over the particles, which has no C form here")


def _check_order(one: Any, other: Any) -> None:
    """Whether two matrices have particles and entries in one order along the dimension they share."""
    orders = {getattr(size, "before", 1) for size in (one, other)} - {None}
    if not (is_particles(one) and is_particles(other)) or len(orders) > 1 or entries(one) != entries(other):
        raise CannotCompile(_MIXES)
