"""Operations that run over entries: sums and other reductions, running ones, and matrix products."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import fx

from .calls import Call
from .operations import Kind, Operand, number, vector
from .trace import CannotCompile
from .writer import Index, Shape, Size, Value, Writer, count, entries, is_particles, loops, offset

_PARTIAL_SUMS = 4  # so that an addition need not wait for the one before it
_ACCUMULATORS = {True: 64, False: 8}  # sums of a matrix product at a time, for particles one by one or side by side
_TERMS = {True: 4, False: 1}  # of each added at a time: of particles one by one, sums are kept in memory
_FEW_SUMS = 8  # of a particle on its own: so few that its terms, and not its sums, are made vectors of
_BLOCK = 128  # terms added up on their own, so that the rounding of a long sum grows with its blocks and not its terms


def _all_terms(number: int, term: str) -> str:
    """C that puts a particle's terms, over r, side by side for ``add_up`` of vector.h."""
    return (
        f'W terms[VECTORS({number})]; _Pragma("omp simd") for (int r = 0; r < {number}; r++) ((V *)terms)[r] = {term};'
    )


def _in_blocks(size: int, block: Callable[[str, int], str]) -> str:
    """``block(first, number)`` for blocks of so many places, from the first to the size."""
    whole = size - size % _BLOCK
    text = f"for (int from = 0; from < {whole}; from += {_BLOCK}) {block('from', _BLOCK)} " if whole else ""
    return text + (block(str(whole), size - whole) if size > whole else "")


@dataclass(frozen=True)
class _Reduction:
    """What starts a reduction, and the C by which ``{a}`` takes in ``{b}``; ``in_any_order`` is the function of
    vector.h that does so with many terms of one particle, if there is one."""

    start: str
    update: str
    in_any_order: str | None = None

    def loops(self, source: Value, reduced: list[int], own: Index, one_by_one: bool) -> str:
        """The loops over the reduced dimensions, which leave their result in ``total``."""
        *outer, last = [(d, entries(source.shape[d])) for d in reduced]
        around = "".join(f"for (int r{d} = 0; r{d} < {size}; r{d}++) " for d, size in outer)
        along, size = last
        places = {d: f"r{d}" for d, _ in outer}

        def term(place: str) -> str:
            places[along] = place
            return vector(source.operand([places[d] if d in reduced else own[d] for d in range(len(own))]))

        def block(first: str, number: int) -> str:
            text = self._block(number, lambda r: term(f"({first} + {r})"), one_by_one)
            return f"{{ {text} {self.update.format(a='total', b='sum')} }}"

        return f"V total = {self.start}; {around}{{ {_in_blocks(size, block)} }}"

    def _block(self, number: int, term: Callable[[str], str], one_by_one: bool) -> str:
        """A reduction of some terms, over r, into ``sum``."""
        if one_by_one and self.in_any_order:
            return f"{_all_terms(number, term('r'))} const V sum = {self.in_any_order}(terms, {number});"
        whole = number - number % _PARTIAL_SUMS
        parts = range(min(_PARTIAL_SUMS, number))
        starts = ", ".join(f"part{i} = {self.start}" for i in parts)
        adds = " ".join(self.update.format(a=f"part{i}", b=term(f"(r + {i})")) for i in parts)
        loop = f"for (int r = 0; r < {whole}; r += {_PARTIAL_SUMS}) {{ {adds} }}" if whole else ""
        rest = " ".join(self.update.format(a=f"part{i}", b=term(str(whole + i))) for i in range(number - whole))
        joins = " ".join(self.update.format(a="part0", b=f"part{i}") for i in parts[1:])
        return f"V {starts}; {loop} {rest} {joins} const V sum = part0;"

    def __call__(self, writer: Writer, call: Call, shape: Shape) -> Value:
        source = writer.value(call["self"])
        rank = len(source.shape)
        reduced = _dims(call, rank)
        if any(is_particles(source.shape[d]) for d in reduced):
            raise CannotCompile("a step mixes its particles: it reduces over the dimension that numbers them")
        if not reduced:
            return source
        keeps = bool(call.get("keepdim"))
        writer.longest_sum = max(writer.longest_sum, count(source.shape[d] for d in reduced))

        def fill(name: str) -> str:
            def body(index: Index) -> str:
                kept = iter(index)
                own = [next(kept) if keeps or d not in reduced else "0" for d in range(rank)]
                text = self.loops(source, reduced, own, writer.one_by_one)
                return f"{{ {text} {name}[{offset(shape, index)}] = total; }}"

            return loops(shape, body)

        return writer.array(shape, fill)


_SUM = _Reduction("splat(0)", "{a} += {b};", "add_up")
_PRODUCT = _Reduction("splat(1)", "{a} *= {b};", "multiply_up")
_LARGEST = _Reduction("splat(-(REAL)INFINITY)", "{a} = v_maximum({b}, {a});")
_SMALLEST = _Reduction("splat((REAL)INFINITY)", "{a} = v_minimum({b}, {a});")


@dataclass(frozen=True)
class _Running:
    """A reduction of all entries up to each."""

    reduction: _Reduction

    def __call__(self, writer: Writer, call: Call, shape: Shape) -> Value:
        _check_dtype(writer, call)
        source, rank = writer.value(call["self"]), len(shape)
        if not rank:
            return source
        along = call["dim"] % rank
        if is_particles(shape[along]):
            raise CannotCompile("a step mixes its particles: it adds up over the dimension that numbers them")
        writer.longest_sum = max(writer.longest_sum, entries(shape[along]))

        def fill(name: str) -> str:
            def body(index: Index) -> str:
                at = [*index[:along], "r", *index[along + 1 :]]
                update = self.reduction.update.format(a="total", b=vector(source.operand(at)))
                return (
                    f"{{ V total = {self.reduction.start}; for (int r = 0; r < {entries(shape[along])}; r++) "
                    f"{{ {update} {name}[{offset(shape, at)}] = total; }} }}"
                )

            return loops((*shape[:along], 1, *shape[along + 1 :]), body)

        return writer.array(shape, fill)


def _check_dtype(writer: Writer, call: Call) -> None:
    dtype = call.node.meta["val"].dtype
    if dtype != writer.dtype:
        raise CannotCompile(f"a step in {writer.dtype} adds up in {dtype}")


def add_up(writer: Writer, call: Call, shape: Shape) -> Value:
    """A sum: of the step's own numbers, or of conditions, whose count a REAL holds exactly."""
    dtype, counted = call.node.meta["val"].dtype, call["self"].meta["val"].dtype
    if dtype != writer.dtype and not (dtype == torch.int64 and counted == torch.bool):
        raise CannotCompile(f"a step in {writer.dtype} adds up in {dtype}")
    return _SUM(writer, call, shape)


def mean(writer: Writer, call: Call, shape: Shape) -> Value:
    sizes = writer.value(call["self"]).shape
    total = _SUM(writer, call, shape)
    terms = count(sizes[d] for d in _dims(call, len(sizes)))
    share = writer.literal(1.0 / terms if terms else math.nan)
    return Value(shape, Kind.VECTOR, lambda index: f"({vector(total.operand(index))} * {share})")


def some(writer: Writer, call: Call, shape: Shape) -> Value:
    return _condition(_Reduction("splat(0)", "{a} = v_maximum({b}, {a});"), writer, call, shape)


def every(writer: Writer, call: Call, shape: Shape) -> Value:
    return _condition(_Reduction("splat(1)", "{a} = v_minimum({b}, {a});"), writer, call, shape)


def _condition(reduction: _Reduction, writer: Writer, call: Call, shape: Shape) -> Value:
    if call["self"].meta["val"].dtype != torch.bool:  # of a number, 0.5 counts and so does NaN
        raise CannotCompile(f"{call.node.target} of numbers has no C form here: compare them with 0 first")
    found = reduction(writer, call, shape)
    if found.kind is Kind.MASK:
        return found
    return replace(found, kind=Kind.MASK, entry=lambda index: f"({found.entry(index)} != 0)")


def mm(writer: Writer, call: Call, shape: Shape) -> Value:
    a, b = writer.stored(call["self"]), _columns(writer, call["mat2"], shape)
    return _product(writer, shape, a.shape[-1], lambda i, k: a.operand([i[0], k]), lambda i, k: b.operand([k, i[1]]))


def bmm(writer: Writer, call: Call, shape: Shape) -> Value:
    a, b = writer.stored(call["self"]), writer.stored(call["mat2"])
    return _product(
        writer, shape, a.shape[-1], lambda i, k: a.operand([i[0], i[1], k]), lambda i, k: b.operand([i[0], k, i[2]])
    )


def addmm(writer: Writer, call: Call, shape: Shape) -> Value:
    bias, a, b = writer.stored(call["self"]), writer.stored(call["mat1"]), _columns(writer, call["mat2"], shape)
    return _product(
        writer,
        shape,
        a.shape[-1],
        lambda i, k: a.operand([i[0], k]),
        lambda i, k: b.operand([k, i[1]]),
        start=lambda i: vector(bias.operand(i)),
    )


def _columns(writer: Writer, matrix: fx.Node, shape: Shape) -> Value:
    """The right factor of a product: of weights whose columns are added up, each is handed over in one piece."""
    value = writer.stored(matrix)
    is_known = value.kind is Kind.NUMBER and matrix in writer.uniforms  # and no constant that the step makes
    if not is_known or not _adds_up_terms(writer, value.shape[0], entries(shape[-1])):
        return value
    with matrix.graph.inserting_after(matrix):
        turned = matrix.graph.call_function(torch.ops.aten.t.default, (matrix,))
    turned.meta["val"] = matrix.meta["val"].t()
    return writer.value(turned).moved(value.shape, lambda index: index[::-1])


def _adds_up_terms(writer: Writer, terms: Size, sums: int) -> bool:
    """Whether vectors of a product run along its terms, and not along its sums."""
    return writer.one_by_one and isinstance(terms, int) and sums <= min(_FEW_SUMS, terms)


def _product(
    writer: Writer,
    shape: Shape,
    terms: Size,
    left: Callable[[Index, str], Operand],
    right: Callable[[Index, str], Operand],
    start: Callable[[Index], str] = lambda index: "splat(0)",
) -> Value:
    """Σ_k left(index, k)·right(index, k), several entries along the last dimension at a time."""
    if not isinstance(terms, int):
        raise CannotCompile("a step mixes its particles: a matrix product sums over them")
    writer.longest_sum = max(writer.longest_sum, terms)
    accumulators = _ACCUMULATORS[writer.one_by_one]
    last = max((d for d, size in enumerate(shape) if size is not None), default=-1)
    size = 1 if last < 0 else entries(shape[last])
    whole = size - size % accumulators

    def fill(name: str) -> str:
        def term(at: Index, k: str) -> str:
            a, b = left(at, k), right(at, k)
            a, b = (b, a) if a[1] is Kind.NUMBER else (a, b)
            return f"{vector(a)} * {number(b)}"

        def one_sum(at: Index) -> str:
            def part(first: str, number: int) -> str:
                return f"{{ {_all_terms(number, term(at, f'({first} + r)'))} total += add_up(terms, {number}); }}"

            return f"{{ V total = {start(at)}; {_in_blocks(terms, part)} {name}[{offset(shape, at)}] = total; }}"

        def block(index: Index, entries: int) -> str:
            if _adds_up_terms(writer, terms, entries):
                return f"for (int s = 0; s < {entries}; s++) {one_sum(_moved_on(index, last, 's'))}"
            at = _moved_on(index, last, "r")
            hint = "omp simd" if writer.one_by_one else "GCC unroll 8"
            each = f'_Pragma("{hint}") for (int r = 0; r < {entries}; r++)'
            together = _TERMS[writer.one_by_one]
            most = terms - terms % together
            several = " + ".join(term(at, f"(k + {j})" if j else "k") for j in range(together))
            adds = f"for (int k = 0; k < {most}; k += {together}) {{ {each} sum[r] += {several}; }} " if most else ""
            if most < terms:
                adds += f"for (int k = {most}; k < {terms}; k++) {{ {each} sum[r] += {term(at, 'k')}; }} "
            return (
                f"{{ V sum[{entries}]; {each} sum[r] = {start(at)}; {adds}"
                f"{each} {name}[{offset(shape, at)}] = sum[r]; }}"
            )

        text = ""
        if whole:
            ranges = {last: (0, whole, accumulators)}
            text += loops(shape, lambda index: block(index, accumulators), ranges)
        if size > whole:
            ranges = {last: (whole, size, accumulators)}
            text += loops(shape, lambda index: block(index, size - whole), ranges)
        return text

    return writer.array(shape, fill)


def _moved_on(index: Index, dim: int, by: str) -> Index:
    return [f"({i} + {by})" if d == dim else i for d, i in enumerate(index)]


def _dims(call: Call, rank: int) -> list[int]:
    given = call.get("dim")
    given = [given] if isinstance(given, int) else given
    return sorted({d % max(1, rank) for d in given} & set(range(rank))) if given else list(range(rank))


SUMS: dict[str, Callable[[Writer, Call, Shape], Value | list[Value]]] = {
    **dict.fromkeys(("sum.default", "sum.dim_IntList"), add_up),
    **dict.fromkeys(("mean.default", "mean.dim"), mean),
    **dict.fromkeys(("prod.default", "prod.dim_int"), _PRODUCT),
    "amax.default": _LARGEST,
    "amin.default": _SMALLEST,
    **dict.fromkeys(("any.default", "any.dim", "any.dims"), some),
    **dict.fromkeys(("all.default", "all.dim", "all.dims"), every),
    "mm.default": mm,
    "bmm.default": bmm,
    "addmm.default": addmm,
    "cumsum.default": _Running(_SUM),
    "cumprod.default": _Running(_PRODUCT),
    "logcumsumexp.default": _Running(_Reduction("splat(-(REAL)INFINITY)", "{a} = v_logaddexp({a}, {b});")),
}
