"""Entries picked and written by tensors of places: indexing, gather, scatter.

Places are tensors that don't depend on the state, as a rule. They are read at every run, and one out of bounds makes
the run an eager one, in which torch itself says so. Those that a step finds itself (see order.py) differ between
particles: with these all places are looked at, and one out of bounds makes the state NaN, which ends the run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import fx

from .calls import Call
from .moves import Rule, overwrite, own
from .operations import Kind, mask, vector
from .trace import CannotCompile
from .writer import Index, Shape, Size, Value, Writer, entries, is_particles, loops, offset


def gather(writer: Writer, call: Call, shape: Shape) -> Value:
    source, dim = writer.stored(call["self"]), call["dim"] % max(1, len(shape))
    call["sparse_grad"]
    if _is_found(writer, call["index"]):
        return _gathered(writer, source, writer.stored(call["index"]), dim, shape)
    at = _along(writer, call, source.shape, dim)
    return source.moved(shape, at)


def index_select(writer: Writer, call: Call, shape: Shape) -> Value:
    source, dim = writer.stored(call["self"]), call["dim"] % len(shape)
    places = writer.places(call["index"], own(source.shape[dim]), from_the_end=False)
    return source.moved(shape, lambda i: [*i[:dim], _line(places, i[dim]), *i[dim + 1 :]])


def index_add(writer: Writer, call: Call, shape: Shape) -> Value:
    dim, whole, part = call["dim"] % len(shape), writer.value(call["self"]), writer.value(call["source"])
    places = writer.places(call["index"], own(shape[dim]), from_the_end=False)
    return overwrite(writer, whole, part, shape, lambda i: [*i[:dim], _line(places, i[dim]), *i[dim + 1 :]], adds=True)


def _line(places: Value, at: str) -> str:
    """The place at a place of a line of them, which may be a single one."""
    return places.operand([at])[0]


def scatter(writer: Writer, call: Call, shape: Shape) -> Value:
    return _scattered(writer, call, shape, writer.value(call["src"]), adds=False)


def scatter_value(writer: Writer, call: Call, shape: Shape) -> Value:
    return _scattered(writer, call, shape, writer.value(call["value"]), adds=False)


def scatter_add(writer: Writer, call: Call, shape: Shape) -> Value:
    return _scattered(writer, call, shape, writer.value(call["src"]), adds=True)


def _scattered(writer: Writer, call: Call, shape: Shape, part: Value, adds: bool) -> Value:
    whole, dim = writer.value(call["self"]), call["dim"] % max(1, len(shape))
    if _is_found(writer, call["index"]):
        return _scattered_by_found(writer, whole, part, writer.stored(call["index"]), dim, shape, adds)
    to = _along(writer, call, shape, dim)
    # The index says how much of the part is written: it may be smaller. A single number is written everywhere.
    region = writer.shape(call["index"])
    part = part.moved(region, lambda index: index) if part.shape else part.broadcast(region)
    return overwrite(writer, whole, part, shape, to, adds)


def _is_found(writer: Writer, index: fx.Node) -> bool:
    """Whether places are a particle's own, or one number that the step was given."""
    return index in writer.values and writer.value(index).kind in (Kind.VECTOR, Kind.NUMBER)


def _gathered(writer: Writer, source: Value, places: Value, dim: int, shape: Shape) -> Value:
    size = own(source.shape[dim])

    def fill(name: str) -> str:
        def body(index: Index) -> str:
            def entry(k: str) -> str:
                return vector(source.operand([*index[:dim], k, *index[dim + 1 :]]))

            return (
                f"{{ const V place = {vector(places.operand(index))}; V found = splat((REAL)NAN); "
                f"for (int k = 0; k < {size}; k++) found = v_select(place == (REAL)k, {entry('k')}, found); "
                f"{name}[{offset(shape, index)}] = found; }}"
            )

        return loops(shape, body)

    return writer.array(shape, fill)


def _picked(writer: Writer, source: Value, places: Value, dim: int, shape: Shape) -> Value:
    """``source[..., places, ...]``, in which the places' dimensions stand for one of the source's."""
    if is_particles(source.shape[dim]) or any(map(is_particles, source.shape)):
        raise CannotCompile("a step indexes what differs between particles by places that it computes itself")
    size, rank = own(source.shape[dim]), len(places.shape)

    def fill(name: str) -> str:
        def body(index: Index) -> str:
            entry = vector(source.operand([*index[:dim], "k", *index[dim + rank :]]))
            return (
                f"{{ V place = {vector(places.operand(index[dim : dim + rank]))}, found = splat((REAL)NAN); "
                f"place = v_select(place < 0, place + {size}, place); "
                f"for (int k = 0; k < {size}; k++) found = v_select(place == (REAL)k, {entry}, found); "
                f"{name}[{offset(shape, index)}] = found; }}"
            )

        return loops(shape, body)

    return writer.array(shape, fill)


def _scattered_by_found(
    writer: Writer, whole: Value, part: Value, places: Value, dim: int, shape: Shape, adds: bool
) -> Value:
    size = own(shape[dim])

    def fill(name: str) -> str:
        def body(index: Index) -> str:
            to = f"{name}[{offset(shape, [*index[:dim], 'k', *index[dim + 1 :]])}]"
            written = f"{to} + entry" if adds else "entry"
            return (
                f"{{ const V place = {vector(places.operand(index))}, entry = {vector(part.operand(index))}; "
                f"const M is_outside = v_not((place >= 0) & (place < {size})); for (int k = 0; k < {size}; k++) "
                f"{to} = v_select(is_outside, splat((REAL)NAN), v_select(place == (REAL)k, {written}, {to})); }}"
            )

        copied = loops(shape, lambda i: f"{name}[{offset(shape, i)}] = {vector(whole.operand(i))};")
        return copied + loops(places.shape, body)

    return writer.array(shape, fill)


def _along(writer: Writer, call: Call, shape: Shape, dim: int) -> Callable[[Index], Index]:
    """An index with the place that gather's or scatter's index has there, in one dimension of a tensor."""
    index = call["index"]
    places = writer.places(index, own(shape[dim]) if shape else 1, from_the_end=False)
    rows = zip(writer.shape(index), shape, strict=True)
    if any(not _number_alike(here, there) for d, (here, there) in enumerate(rows) if d != dim):
        raise CannotCompile("a step picks or joins particles")
    return lambda i: [places.entry(i) if d == dim else a for d, a in enumerate(i)]


def _number_alike(here: Size, there: Size) -> bool:
    """Whether two dimensions number all particles, or both none."""
    return is_particles(here) == is_particles(there) and (not is_particles(here) or entries(here) == entries(there))


@dataclass(frozen=True)
class _Indexed:
    """``tensor[indices]``: the result's shape, and from an index of the result to one of the tensor."""

    shape: Shape
    source: Callable[[Index], Index]


def _indexed(writer: Writer, indices: list[fx.Node | None], shape: Shape) -> _Indexed:
    """As in numpy: the places' dimensions stand where those that they pick stood, or in front if those are apart."""
    for index in indices:
        if index is not None and index.meta["val"].dtype not in (torch.int64, torch.int32):
            raise CannotCompile("a step indexes by a mask")
    picked = [d for d, index in enumerate(indices) if index is not None]
    places = {d: writer.places(indices[d], own(shape[d])) for d in picked}
    sizes = _broadcast([value.shape for value in places.values()])
    together = picked == list(range(picked[0], picked[-1] + 1))
    first = picked[0] if together else 0
    rest = [size for d, size in enumerate(shape) if d not in places]
    result = (*rest[:first], *sizes, *rest[first:])

    def source(index: Index) -> Index:
        own_places = index[first : first + len(sizes)]
        others = iter([*index[:first], *index[first + len(sizes) :]])
        return [places[d].operand(own_places)[0] if d in places else next(others) for d in range(len(shape))]

    return _Indexed(result, source)


def _broadcast(shapes: list[Shape]) -> Shape:
    return tuple(torch.broadcast_shapes(*([own(size) for size in shape] for shape in shapes)))


def index_tensor(writer: Writer, call: Call, shape: Shape) -> Value:
    source, indices = writer.stored(call["self"]), call["indices"]
    picked = [d for d, index in enumerate(indices) if index is not None]
    if len(picked) == 1 and _is_found(writer, indices[picked[0]]):
        return _picked(writer, source, writer.stored(indices[picked[0]]), picked[0], shape)
    return source.moved(shape, _indexed(writer, call["indices"], source.shape).source)


def index_put(writer: Writer, call: Call, shape: Shape) -> Value:
    whole, values = writer.value(call["self"]), writer.value(call["values"])
    if _is_whole_mask(call, len(shape)):
        return _filled_where(writer, whole, writer.value(call["indices"][0]), values, shape)
    region = _indexed(writer, call["indices"], shape)
    return overwrite(writer, whole, values.broadcast(region.shape), shape, region.source, bool(call["accumulate"]))


def _is_whole_mask(call: Call, rank: int) -> bool:
    """Whether a condition for every entry says which ones are to be another, single number."""
    index, *others = call["indices"]
    is_mask = index is not None and index.meta["val"].dtype == torch.bool and index.meta["val"].ndim == rank
    return is_mask and not others and call["values"].meta["val"].numel() == 1 and not call["accumulate"]


def _filled_where(writer: Writer, whole: Value, condition: Value, number: Value, shape: Shape) -> Value:
    at = ["0"] * len(number.shape)

    def entry(index: Index) -> str:
        chosen, other = vector((number.entry(at), number.kind)), vector(whole.operand(index))
        return f"v_select({mask(condition.operand(index))}, {chosen}, {other})"

    return writer.store(Value(shape, Kind.VECTOR, entry))


INDEXING: dict[str, Rule] = {
    "gather.default": gather,
    "index_select.default": index_select,
    "index_add.default": index_add,
    **dict.fromkeys(("index.Tensor", "_unsafe_index.Tensor"), index_tensor),
    **dict.fromkeys(("index_put.default", "_unsafe_index_put.default"), index_put),
    "scatter.src": scatter,
    "scatter.value": scatter_value,
    "scatter_add.default": scatter_add,
}
