"""Stacks of very many values that loops keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx

from .calls import operation_name
from .looped import LoopedProgram
from .operations import vector
from .writer import Index, Value, Writer, loops, offset

_FEWEST_PARTS = 32


def joined(writer: Writer, node: fx.Node, program: LoopedProgram) -> Value | None:
    """A stack of very many values, most of them kept by loops: by loops as well."""
    if operation_name(node) != "stack.default" or len(node.args[0]) < _FEWEST_PARTS:  # type: ignore[arg-type]
        return None
    parts, shape = list(node.args[0]), writer.shape(node)  # type: ignore[arg-type]
    given: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
    dim: int = given % len(shape)
    runs = _runs(parts, program)

    def fill(name: str) -> str:
        text = ""
        for start, number, value in runs:
            rest = (*shape[:dim], *shape[dim + 1 :])

            def body(index: Index, start: int = start, value: Value = value) -> str:
                at = [*index[:dim], f"({start} + it)", *index[dim:]]
                return f"{name}[{offset(shape, at)}] = {vector(value.operand(index))};"

            text += f"for (int it = 0; it < {number}; it++) {{ {loops(rest, body)} }} "
        return text

    values = [writer.value(part) for part in parts]
    runs = [(start, number, values[start] if value is None else value) for start, number, value in runs]
    return writer.array(shape, fill)


def _runs(parts: Sequence[fx.Node], program: LoopedProgram) -> list[Any]:
    """(first, how many, their value at C's ``it``, or None for one on its own)."""
    runs: list[Any] = []
    start = 0
    while start < len(parts):
        place = program.places[parts[start]]
        loop, end, by = program.loop_at(place), start + 1, 0
        if loop is not None and loop.kept.get(loop.locate(place)[0]) is not None:  # type: ignore[index]
            number, slot = loop.locate(place)  # type: ignore[misc]
            while end < len(parts):
                located = loop.locate(program.places[parts[end]])
                step = None if located is None or located[0] != number else located[1] - slot
                if step is None or (by and step != by * (end - start)) or (not by and abs(step) != 1):
                    break
                by, end = by or step, end + 1
            whole = loop.kept[number].slots == loop.repeat.rounds + loop.peeled
            if end - start > 1 and whole:
                runs.append((start, end - start, loop.read(number, f"{slot} + {by} * it")))
                start = end
                continue
        runs.append((start, 1, None))
        start += 1
    return runs
