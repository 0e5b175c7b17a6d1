"""Operations that move entries and compute nothing: views, slices, joins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from .operations import Kind, vector
from .trace import CannotCompile
from .writer import Index, Shape, Value, Writer, count, loops, offset, operation_name, strides


def identity(writer: Writer, node: fx.Node, shape: Shape) -> Value:
    return writer.value(node.args[0])


def permute(writer: Writer, node: fx.Node, shape: Shape) -> Value:
    order = [d % len(shape) for d in _argument(node, 1)]
    return writer.value(node.args[0]).moved(shape, lambda index: [index[order.index(d)] for d in range(len(order))])


def transpose(writer: Writer, node: fx.Node, shape: Shape) -> Value:
    a, b = (_argument(node, i, default) % len(shape) for i, default in ((1, 0), (2, 1)))
    swapped = {a: b, b: a}
    return writer.value(node.args[0]).moved(shape, lambda index: [index[swapped.get(d, d)] for d in range(len(shape))])


def unsqueeze(writer: Writer, node: fx.Node, shape: Shape) -> Value:
    new = _argument(node, 1) % len(shape)
    return writer.value(node.args[0]).moved(shape, lambda index: [*index[:new], *index[new + 1 :]])


def squeeze(writer: Writer, node: fx.Node, shape: Shape) -> Value:
    source = writer.value(node.args[0])
    given = _argument(node, 1, range(len(source.shape)))
    asked = {d % len(source.shape) for d in ([given] if isinstance(given, int) else given)}
    gone = {d for d in asked if source.shape[d] == 1}

    def at(index: Index) -> Index:
        rest = iter(index)
        return ["0" if d in gone else next(rest) for d in range(len(source.shape))]

    return source.moved(shape, at)


def expand(writer: Writer, node: fx.Node, shape: Shape) -> Value:
    source = writer.value(node.args[0])
    return Value(shape, source.kind, lambda index: source.operand(index)[0])


def copy(writer: Writer, node: fx.Node, shape: Shape) -> Value:
    source = writer.value(node.args[1])
    return Value(shape, source.kind, lambda index: source.operand(index)[0])


def select(writer: Writer, node: fx.Node, shape: Shape) -> Value:
    source = writer.value(node.args[0])
    dim = _argument(node, 1) % len(source.shape)
    return _pick(source, dim, _argument(node, 2), shape)


def unbind(writer: Writer, node: fx.Node, shape: Shape) -> list[Value]:
    source = writer.value(node.args[0])
    dim = _argument(node, 1, 0) % len(source.shape)
    rest = (*source.shape[:dim], *source.shape[dim + 1 :])
    return [_pick(source, dim, i, rest) for i in range(_own(source.shape[dim]))]


def split(writer: Writer, node: fx.Node, shape: Shape) -> list[Value]:
    source, sizes = writer.value(node.args[0]), _argument(node, 1)
    dim = _argument(node, 2, 0) % len(source.shape)
    whole = _own(source.shape[dim])
    if isinstance(sizes, int):
        sizes = [min(sizes, whole - start) for start in range(0, whole, sizes)]
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [
        _range(source, dim, start, 1, (*source.shape[:dim], size, *source.shape[dim + 1 :]))
        for start, size in zip(starts, sizes, strict=True)
    ]


def slice_(writer: Writer, node: fx.Node, shape: Shape) -> Value:
    source = writer.value(node.args[0])
    dim, start, step = _argument(node, 1, 0) % len(shape), _argument(node, 2, None), _argument(node, 4, 1)
    if shape == source.shape and step == 1:
        return source
    size, start = _own(source.shape[dim]), start or 0
    return _range(source, dim, max(0, start + size) if start < 0 else start, step, shape)


def view(writer: Writer, node: fx.Node, shape: Shape) -> Value:
    source = writer.stored(node.args[0])
    if _before(shape) != _before(source.shape):
        raise CannotCompile("a step reshapes its particles into another dimension")

    def at(index: Index) -> Index:
        flat = offset(shape, index)
        return [
            "0" if size is None else f"(({flat}) / {stride} % {size})"
            for size, stride in zip(source.shape, strides(source.shape), strict=True)
        ]

    return source.moved(shape, at)


def cat(writer: Writer, node: fx.Node, shape: Shape) -> Value:
    dim = _argument(node, 1, 0) % len(shape)
    _own(shape[dim])
    return _join(writer, shape, dim, [writer.value(part) for part in _argument(node, 0)])


def stack(writer: Writer, node: fx.Node, shape: Shape) -> Value:
    dim = _argument(node, 1, 0) % len(shape)
    parts = [writer.value(part) for part in _argument(node, 0)]
    widened = (*shape[:dim], 1, *shape[dim + 1 :])
    return _join(writer, shape, dim, [p.moved(widened, lambda index: [*index[:dim], *index[dim + 1 :]]) for p in parts])


def slice_scatter(writer: Writer, node: fx.Node, shape: Shape) -> Value:
    dim, start, step = _argument(node, 2, 0) % len(shape), _argument(node, 3, None) or 0, _argument(node, 5, 1)
    size = _own(shape[dim])
    start = max(0, start + size) if start < 0 else start
    return _overwrite(
        writer, node, shape, lambda i: [f"({start} + {step} * {a})" if d == dim else a for d, a in enumerate(i)]
    )


def select_scatter(writer: Writer, node: fx.Node, shape: Shape) -> Value:
    dim = _argument(node, 2) % len(shape)
    place = str(_argument(node, 3) % _own(shape[dim]))
    return _overwrite(writer, node, shape, lambda index: [*index[:dim], place, *index[dim:]])


def diagonal(writer: Writer, node: fx.Node, shape: Shape) -> Value:
    source = writer.value(node.args[0])
    at = _diagonal_places(source.shape, _argument(node, 1, 0), _argument(node, 2, 0), _argument(node, 3, 1))
    return source.moved(shape, at)


def _diagonal_places(shape: Shape, shift: int, first: int, second: int) -> Callable[[Index], Index]:
    """From an index of the diagonal, its own place last, to one of the tensor."""
    rank = len(shape)
    first, second = first % rank, second % rank
    _own(shape[first]), _own(shape[second])

    def at(index: Index) -> Index:
        rest = iter(index[:-1])
        places = {first: f"({index[-1]} + {max(0, -shift)})", second: f"({index[-1]} + {max(0, shift)})"}
        return [places[d] if d in places else next(rest) for d in range(rank)]

    return at


def gather(writer: Writer, node: fx.Node, shape: Shape) -> Value:
    source, places = writer.stored(node.args[0]), writer.value(node.args[2])
    dim = _argument(node, 1) % len(shape)
    _own(source.shape[dim])
    return source.moved(shape, lambda index: [places.entry(index) if d == dim else i for d, i in enumerate(index)])


def index_tensor(writer: Writer, node: fx.Node, shape: Shape) -> Value:
    source, dim, places = writer.stored(node.args[0]), *_one_index(writer, node)
    _own(source.shape[dim])
    return source.moved(shape, lambda i: [*i[:dim], places.entry([i[dim]]), *i[dim + 1 :]])


def index_select(writer: Writer, node: fx.Node, shape: Shape) -> Value:
    source, places = writer.stored(node.args[0]), writer.value(node.args[2])
    dim = _argument(node, 1) % len(shape)
    _own(source.shape[dim])
    return source.moved(shape, lambda i: [*i[:dim], places.entry([i[dim]]), *i[dim + 1 :]])


def scatter(writer: Writer, node: fx.Node, shape: Shape) -> Value:
    dim, places = _argument(node, 1) % len(shape), writer.value(node.args[2])
    _own(shape[dim])
    return _overwrite(
        writer,
        node,
        shape,
        lambda index: [places.entry(index) if d == dim else i for d, i in enumerate(index)],
        part=node.args[3],
        adds=operation_name(node) == "scatter_add",
    )


def diagonal_scatter(writer: Writer, node: fx.Node, shape: Shape) -> Value:
    at = _diagonal_places(shape, _argument(node, 2, 0), _argument(node, 3, 0), _argument(node, 4, 1))
    return _overwrite(writer, node, shape, at)


def index_put(writer: Writer, node: fx.Node, shape: Shape) -> Value:
    dim, places = _one_index(writer, node)
    _own(shape[dim])
    return _overwrite(
        writer,
        node,
        shape,
        lambda index: [*index[:dim], places.entry([index[dim]]), *index[dim + 1 :]],
        part=node.args[2],
        adds=bool(_argument(node, 3, False)),
    )


def _one_index(writer: Writer, node: fx.Node) -> tuple[int, Value]:
    """The one dimension that is indexed, and the places in it."""
    given = [(dim, index) for dim, index in enumerate(_argument(node, 1)) if index is not None]
    places = writer.value(given[0][1])
    if len(given) > 1 or places.kind is not Kind.PLACE or len(places.shape) != 1:
        raise CannotCompile("a step indexes by several tensors, by a mask or by one of many dimensions")
    return given[0][0], places


def flip(writer: Writer, node: fx.Node, shape: Shape) -> Value:
    sizes = {d % len(shape): _own(shape[d % len(shape)]) for d in _argument(node, 1)}
    return writer.value(node.args[0]).moved(
        shape, lambda index: [f"({sizes[d] - 1} - {i})" if d in sizes else i for d, i in enumerate(index)]
    )


def _pick(source: Value, dim: int, place: int, shape: Shape) -> Value:
    at = str(place % _own(source.shape[dim]))
    return source.moved(shape, lambda index: [*index[:dim], at, *index[dim:]])


def _range(source: Value, dim: int, start: int, step: int, shape: Shape) -> Value:
    _own(source.shape[dim])
    return source.moved(
        shape, lambda index: [f"({start} + {step} * {i})" if d == dim else i for d, i in enumerate(index)]
    )


def _join(writer: Writer, shape: Shape, dim: int, parts: Sequence[Value]) -> Value:
    def fill(name: str) -> str:
        text, start = "", 0
        for part in parts:

            def body(index: Index, part: Value = part, start: int = start) -> str:
                to = [f"({i} + {start})" if d == dim else i for d, i in enumerate(index)]
                return f"{name}[{offset(shape, to)}] = {vector((part.entry(index), part.kind))};"

            text += loops(part.shape, body)
            start += part.shape[dim] or 0
        return text

    return writer.array(shape, fill)


def _overwrite(
    writer: Writer,
    node: fx.Node,
    shape: Shape,
    to: Callable[[Index], Index],
    part: Any = None,
    adds: bool = False,
) -> Value:
    """The first argument with another, by default the second, written over or added: its entry at i to ``to(i)``."""
    whole, other = writer.value(node.args[0]), writer.value(node.args[1] if part is None else part)
    sizes = other.shape if other.shape else shape

    def fill(name: str) -> str:
        written = loops(shape, lambda i: f"{name}[{offset(shape, i)}] = {vector(whole.operand(i))};")
        assign = "+=" if adds else "="
        return written + loops(sizes, lambda i: f"{name}[{offset(shape, to(i))}] {assign} {vector(other.operand(i))};")

    return writer.array(shape, fill)


def _own(size: int | None) -> int:
    if size is None:
        raise CannotCompile("a step picks or joins particles")
    return size


def _before(shape: Shape) -> int | None:
    """How many entries come before the particles' dimension; None without one."""
    return count(shape[: shape.index(None)]) if None in shape else None


def _argument(node: fx.Node, place: int, default: Any = None) -> Any:
    return node.args[place] if len(node.args) > place else default


MOVES: dict[str, Callable[[Writer, fx.Node, Shape], Value | list[Value]]] = {
    **dict.fromkeys(("alias", "clone", "detach", "lift_fresh", "lift_fresh_copy", "contiguous"), identity),
    **dict.fromkeys(("view", "_unsafe_view", "view_copy", "reshape", "_reshape_copy"), view),
    **dict.fromkeys(("permute", "permute_copy"), permute),
    **dict.fromkeys(("transpose", "transpose_copy", "t", "t_copy"), transpose),
    **dict.fromkeys(("unsqueeze", "unsqueeze_copy"), unsqueeze),
    **dict.fromkeys(("squeeze", "squeeze_copy"), squeeze),
    **dict.fromkeys(("expand", "expand_copy"), expand),
    **dict.fromkeys(("select", "select_copy"), select),
    **dict.fromkeys(("slice", "slice_copy"), slice_),
    **dict.fromkeys(("unbind", "unbind_copy"), unbind),
    **dict.fromkeys(("split", "split_copy", "split_with_sizes", "split_with_sizes_copy"), split),
    "copy": copy,
    "cat": cat,
    "stack": stack,
    "flip": flip,
    **dict.fromkeys(("diagonal", "diagonal_copy"), diagonal),
    "gather": gather,
    "index": index_tensor,
    "index_select": index_select,
    **dict.fromkeys(("scatter", "scatter_add"), scatter),
    "diagonal_scatter": diagonal_scatter,
    **dict.fromkeys(("index_put", "_unsafe_index_put"), index_put),
    "_unsafe_index": index_tensor,
    "slice_scatter": slice_scatter,
    "select_scatter": select_scatter,
}
