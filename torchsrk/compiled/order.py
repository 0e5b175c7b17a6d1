"""Entries in order: extremes with their places, and sorting.

The places that are found are a particle's own. They are kept as whole numbers in a REAL, and serve to pick and to
write (see indexing.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .calls import Call
from .operations import number, vector
from .trace import CannotCompile
from .writer import Index, Shape, Value, Writer, entries, is_particles, loops, offset

_MOST_SORTED = 128  # by comparing neighbours, whose number grows with the square


@dataclass(frozen=True)
class _Extreme:
    """The first of the largest entries, or of the smallest, and its place. NaN is beyond all, as in torch."""

    sign: str

    def __call__(self, writer: Writer, call: Call, shape: Shape) -> list[Value]:
        source, dim = writer.value(call["self"]), call["dim"]
        result = _without(source.shape, dim % len(source.shape), bool(call["keepdim"]))
        return self.found(writer, source, dim % len(source.shape), result)

    def found(self, writer: Writer, source: Value, dim: int, result: Shape) -> list[Value]:
        size, both = _line(source.shape, dim), (2, *result)

        def fill(name: str) -> str:
            def body(index: Index) -> str:
                def term(r: str) -> str:
                    return vector(source.operand(_with(index, dim, r, len(source.shape))))

                return (
                    f"{{ V best = {term('0')}, place = splat(0); for (int r = 1; r < {size}; r++) {{ "
                    f"const V other = {term('r')}; "
                    f"const M is_better = (other {self.sign} best) | (v_isnan(other) & v_not(v_isnan(best))); "
                    f"best = v_select(is_better, other, best); place = v_select(is_better, splat(r), place); }} "
                    f"{name}[{offset(both, ['0', *index])}] = best; {name}[{offset(both, ['1', *index])}] = place; }}"
                )

            return loops(result, body)

        return _parts(writer.array(both, fill), result)


@dataclass(frozen=True)
class _Place:
    """The place of an extreme alone."""

    extreme: _Extreme

    def __call__(self, writer: Writer, call: Call, shape: Shape) -> Value:
        source, dim, _ = writer.value(call["self"]), call["dim"], call["keepdim"]
        if dim is None:
            raise CannotCompile(f"{call.node.target} over all entries has no C form here: give dim=")
        return self.extreme.found(writer, source, dim % len(source.shape), shape)[1]


def sort(writer: Writer, call: Call, shape: Shape) -> list[Value]:
    call.get("stable")  # it is
    source = writer.value(call["self"])
    return _sorted(writer, source, call["dim"] % max(1, len(source.shape)), bool(call["descending"]))


def top(writer: Writer, call: Call, shape: Shape) -> list[Value]:
    """The first few of the order."""
    source, dim, _ = writer.value(call["self"]), call["dim"], call["sorted"]
    dim %= len(source.shape)
    first = tuple(call["k"] if d == dim else size for d, size in enumerate(source.shape))
    return [part.moved(first, lambda i: i) for part in _sorted(writer, source, dim, bool(call["largest"]))]


def kth(writer: Writer, call: Call, shape: Shape) -> list[Value]:
    source, dim = writer.value(call["self"]), call["dim"] % len(writer.value(call["self"]).shape)
    result = _without(source.shape, dim, bool(call["keepdim"]))
    place = str(call["k"] - 1)
    return [
        part.moved(result, lambda i: _with(i, dim, place, len(source.shape)))
        for part in _sorted(writer, source, dim, descending=False)
    ]


@dataclass(frozen=True)
class _RunningExtreme:
    """The extreme of all entries up to each, the last of equal ones, and its place."""

    sign: str

    def __call__(self, writer: Writer, call: Call, shape: Shape) -> list[Value]:
        source = writer.value(call["self"])
        dim, rank = call["dim"] % max(1, len(source.shape)), len(source.shape)
        size, both = _line(source.shape, dim), (2, *source.shape)

        def fill(name: str) -> str:
            def body(index: Index) -> str:
                def at(part: str, r: str) -> str:
                    return f"{name}[{offset(both, [part, *_with(index, dim, r, rank)])}]"

                def term(r: str) -> str:
                    return vector(source.operand(_with(index, dim, r, rank)))

                return (
                    f"{{ V best = {term('0')}, place = splat(0); for (int r = 0; r < {size}; r++) {{ "
                    f"const V other = {term('r')}; "
                    f"const M is_better = v_isnan(other) | (v_not(v_isnan(best)) & (other {self.sign}= best)); "
                    f"best = v_select(is_better, other, best); place = v_select(is_better, splat(r), place); "
                    f"{at('0', 'r')} = best; {at('1', 'r')} = place; }} }}"
                )

            return loops(tuple(1 if d == dim else n for d, n in enumerate(source.shape)), body)

        return _parts(writer.array(both, fill), source.shape)


def buckets(writer: Writer, call: Call, shape: Shape) -> Value:
    """How many of the bounds, which are in order and the same for all particles, are below each entry."""
    given = call.get("sorted_sequence")
    bounds, entry = writer.stored(call["boundaries"] if given is None else given), writer.value(call["self"])
    right = call["right"] or call.get("side") == "right"
    if len(bounds.shape) != 1 or is_particles(bounds.shape[0]):
        raise CannotCompile(f"{call.node.target} with bounds of each particle's own has no C form here")

    def fill(name: str) -> str:
        def body(index: Index) -> str:
            beyond = f"{number(bounds.operand(['k']))} {'>' if right else '>='} entry"
            return (
                f"{{ const V entry = {vector(entry.operand(index))}; V count = splat(0); "
                f"for (int k = 0; k < {entries(bounds.shape[0])}; k++) count += v_number(v_not({beyond})); "
                f"{name}[{offset(shape, index)}] = count; }}"
            )

        return loops(shape, body)

    return writer.array(shape, fill)


def _sorted(writer: Writer, source: Value, dim: int, descending: bool) -> list[Value]:
    """All entries along a dimension in order, and their places."""
    size, both, rank = _line(source.shape, dim), (2, *source.shape), len(source.shape)
    if size > _MOST_SORTED:
        raise CannotCompile(f"a step sorts {size} entries; up to {_MOST_SORTED} have a C form here")

    def fill(name: str) -> str:
        def body(index: Index) -> str:
            def at(part: str, r: str) -> str:
                return f"{name}[{offset(both, [part, *_with(index, dim, r, rank)])}]"

            first, second = ("b", "a") if descending else ("a", "b")
            later = f"({first} > {second}) | (v_isnan({first}) & v_not(v_isnan({second})))"
            swaps = " ".join(f"exchange(later, &{at(part, '(j - 1)')}, &{at(part, 'j')});" for part in ("0", "1"))
            term = vector(source.operand(_with(index, dim, "r", rank)))
            return (
                f"{{ for (int r = 0; r < {size}; r++) {{ {at('0', 'r')} = {term}; {at('1', 'r')} = splat(r); }} "
                f"for (int i = 1; i < {size}; i++) for (int j = i; j > 0; j--) {{ "
                f"const V a = {at('0', '(j - 1)')}, b = {at('0', 'j')}; const M later = {later}; {swaps} }} }}"
            )

        return loops(tuple(1 if d == dim else n for d, n in enumerate(source.shape)), body)

    return _parts(writer.array(both, fill), source.shape)


def _parts(both: Value, shape: Shape) -> list[Value]:
    values = both.moved(shape, lambda index: ["0", *index])
    places = both.moved(shape, lambda index: ["1", *index])
    return [values, places]


def _line(shape: Shape, dim: int) -> int:
    if not shape or is_particles(shape[dim]):
        raise CannotCompile("a step mixes its particles: it puts them in order")
    return entries(shape[dim])


def _without(shape: Shape, dim: int, keepdim: bool) -> Shape:
    return (*shape[:dim], *((1,) if keepdim else ()), *shape[dim + 1 :])


def _with(index: Index, dim: int, place: str, rank: int) -> list[str]:
    """An index with a place in a dimension that it lacks, or has one entry of."""
    return [*index[:dim], place, *index[dim + (len(index) == rank) :]]


_LARGEST, _SMALLEST = _Extreme(">"), _Extreme("<")

ORDER: dict[str, Callable[[Writer, Call, Shape], Value | list[Value]]] = {
    "max.dim": _LARGEST,
    "min.dim": _SMALLEST,
    "argmax.default": _Place(_LARGEST),
    "argmin.default": _Place(_SMALLEST),
    **dict.fromkeys(("sort.default", "sort.stable"), sort),
    "topk.default": top,
    "kthvalue.default": kth,
    "cummax.default": _RunningExtreme(">"),
    "cummin.default": _RunningExtreme("<"),
    **dict.fromkeys(("searchsorted.Tensor", "bucketize.Tensor"), buckets),
}
