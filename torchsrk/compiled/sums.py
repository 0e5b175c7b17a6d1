"""Operations that run over entries: sums and other reductions, matrix products, triangular solves."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import fx

from .operations import Kind, Operand, number, vector
from .trace import CannotCompile
from .writer import Index, Shape, Value, Writer, loops, offset

_PARTIAL_SUMS = 4  # so that an addition need not wait for the one before it


def _reduction(start: str, update: str) -> Callable[[Writer, fx.Node, Shape], Value]:
    """A reduction that starts from a vector and takes in term after term: ``{a}`` becomes the C of update."""

    def lower(writer: Writer, node: fx.Node, shape: Shape) -> Value:
        source = writer.value(node.args[0])
        rank = len(source.shape)
        reduced = _dims(node, rank)
        if any(source.shape[d] is None for d in reduced):
            raise CannotCompile("a step mixes its particles: it reduces over the dimension that numbers them")
        if not reduced:
            return source
        *outer, last = (f"for (int r{d} = 0; r{d} < {source.shape[d]}; r{d}++) " for d in reduced)
        starts = ", ".join([start] * _PARTIAL_SUMS)
        joins = " ".join(update.format(a="sum[0]", b=f"sum[{i}]") for i in range(1, _PARTIAL_SUMS))

        def fill(name: str) -> str:
            def body(index: Index) -> str:
                kept = iter(index)
                keepdim = len(shape) == rank
                own = [next(kept) if keepdim or d not in reduced else "0" for d in range(rank)]
                term = vector(source.operand([f"r{d}" if d in reduced else own[d] for d in range(rank)]))
                return (
                    f'{{ V sum[] = {{{starts}}}; {"".join(outer)}_Pragma("GCC unroll 16") {last}'
                    f"{update.format(a=f'sum[r{reduced[-1]} % {_PARTIAL_SUMS}]', b=term)} {joins} "
                    f"{name}[{offset(shape, index)}] = sum[0]; }}"
                )

            return loops(shape, body)

        return writer.array(shape, fill)

    return lower


add_up = _reduction("splat(0)", "{a} += {b};")


def mean(writer: Writer, node: fx.Node, shape: Shape) -> Value:
    sizes = writer.value(node.args[0]).shape
    share = writer.literal(1.0 / math.prod(sizes[d] or 1 for d in _dims(node, len(sizes))))
    total = add_up(writer, node, shape)
    return Value(shape, Kind.VECTOR, lambda index: f"({total.entry(index)} * {share})")


def some(writer: Writer, node: fx.Node, shape: Shape) -> Value:
    largest = _reduction("splat(0)", "{a} = v_maximum({b}, {a});")(writer, node, shape)
    return Value(shape, Kind.MASK, lambda index: f"({largest.entry(index)} != 0)")


def mm(writer: Writer, node: fx.Node, shape: Shape) -> Value:
    a, b = (writer.stored(argument) for argument in node.args)
    return _product(writer, shape, a.shape[-1], lambda i, k: a.operand([i[0], k]), lambda i, k: b.operand([k, i[1]]))


def bmm(writer: Writer, node: fx.Node, shape: Shape) -> Value:
    a, b = (writer.stored(argument) for argument in node.args)
    return _product(
        writer, shape, a.shape[-1], lambda i, k: a.operand([i[0], i[1], k]), lambda i, k: b.operand([i[0], k, i[2]])
    )


def addmm(writer: Writer, node: fx.Node, shape: Shape) -> Value:
    if any(node.kwargs.get(key, 1) != 1 for key in ("alpha", "beta")):
        raise CannotCompile("aten.addmm with factors has no C form here")
    bias, a, b = writer.value(node.args[0]), writer.stored(node.args[1]), writer.stored(node.args[2])
    return _product(
        writer,
        shape,
        a.shape[-1],
        lambda i, k: a.operand([i[0], k]),
        lambda i, k: b.operand([k, i[1]]),
        start=lambda i: vector(bias.operand(i)),
    )


def _product(
    writer: Writer,
    shape: Shape,
    terms: int | None,
    left: Callable[[Index, str], Operand],
    right: Callable[[Index, str], Operand],
    start: Callable[[Index], str] = lambda index: "splat(0)",
) -> Value:
    """Σ_k left(index, k)·right(index, k), several entries along the last dimension at a time."""
    if terms is None:
        raise CannotCompile("a step mixes its particles: a matrix product sums over them")
    last = max((d for d, size in enumerate(shape) if size is not None), default=-1)
    size = 1 if last < 0 else shape[last] or 1
    whole = size - size % writer.accumulators

    def fill(name: str) -> str:
        def block(index: Index, entries: int) -> str:
            at = [f"({i} + r)" if d == last else i for d, i in enumerate(index)]
            a, b = left(at, "k"), right(at, "k")
            a, b = (b, a) if a[1] is Kind.NUMBER else (a, b)
            each = f'_Pragma("GCC unroll 8") for (int r = 0; r < {entries}; r++)'
            return (
                f"{{ V sum[{entries}]; {each} sum[r] = {start(at)}; "
                f"for (int k = 0; k < {terms}; k++) {{ {each} sum[r] += {vector(a)} * {number(b)}; }} "
                f"{each} {name}[{offset(shape, at)}] = sum[r]; }}"
            )

        text = ""
        if whole:
            ranges = {last: (0, whole, writer.accumulators)}
            text += loops(shape, lambda index: block(index, writer.accumulators), ranges)
        if size > whole:
            ranges = {last: (whole, size, writer.accumulators)}
            text += loops(shape, lambda index: block(index, size - whole), ranges)
        return text

    return writer.array(shape, fill)


def solve_triangular(writer: Writer, node: fx.Node, shape: Shape) -> Value:
    """X with A X = B, for A that does not depend on the particles; by substitution."""
    matrix, right = writer.value(node.args[0]), writer.value(node.args[1])
    upper, left = node.kwargs.get("upper"), node.kwargs.get("left", True)
    if not left or None in matrix.shape or shape[-2] is None or node.kwargs.get("unitriangular"):
        raise CannotCompile("aten.linalg_solve_triangular of this form has no C form here")
    size = shape[-2]

    def fill(name: str) -> str:
        def body(index: Index) -> str:
            row = f"({size - 1} - i)" if upper else "i"

            def at(line: str) -> list[str]:
                return [*index[:-2], line, index[-1]]

            def coefficient(line: str, column: str) -> str:
                return number(matrix.operand([*index[:-2], line, column]))

            done = f"({size - 1} - k)" if upper else "k"
            return (
                f"for (int i = 0; i < {size}; i++) {{ V rest = {vector(right.operand(at(row)))}; "
                f"for (int k = 0; k < i; k++) rest -= {coefficient(row, done)} * {name}[{offset(shape, at(done))}]; "
                f"{name}[{offset(shape, at(row))}] = rest / {coefficient(row, row)}; }}"
            )

        return loops((*shape[:-2], None, shape[-1]), body)

    return writer.array(shape, fill)


def _dims(node: fx.Node, rank: int) -> list[int]:
    given: Any = node.args[1] if len(node.args) > 1 else None
    given = [given] if isinstance(given, int) else given
    return sorted(d % rank for d in given) if given else list(range(rank))


SUMS: dict[str, Callable[[Writer, fx.Node, Shape], Value]] = {
    "sum": add_up,
    "mean": mean,
    "prod": _reduction("splat(1)", "{a} *= {b};"),
    "amax": _reduction("splat(-(REAL)INFINITY)", "{a} = v_maximum({b}, {a});"),
    "amin": _reduction("splat((REAL)INFINITY)", "{a} = v_minimum({b}, {a});"),
    "any": some,
    "mm": mm,
    "bmm": bmm,
    "addmm": addmm,
    "linalg_solve_triangular": solve_triangular,
}
