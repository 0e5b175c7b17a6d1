"""Operations that move entries and compute nothing: views, slices, joins. Those by places are in indexing.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

from .calls import Call
from .operations import vector
from .trace import CannotCompile
from .writer import (
    ANOTHER_DIMENSION,
    Index,
    Shape,
    Shared,
    Size,
    Value,
    Writer,
    count,
    entries,
    is_particles,
    loops,
    offset,
    strides,
)


def identity(writer: Writer, call: Call, shape: Shape) -> Value:
    return writer.value(call["self"])


def permute(writer: Writer, call: Call, shape: Shape) -> Value:
    order = [d % len(shape) for d in call["dims"]]
    return writer.value(call["self"]).moved(shape, lambda index: [index[order.index(d)] for d in range(len(order))])


def transpose(writer: Writer, call: Call, shape: Shape) -> Value:
    return _swapped(writer, call, shape, call["dim0"], call["dim1"])


def transpose_matrix(writer: Writer, call: Call, shape: Shape) -> Value:
    return _swapped(writer, call, shape, 0, 1) if len(shape) == 2 else identity(writer, call, shape)


def _swapped(writer: Writer, call: Call, shape: Shape, first: int, second: int) -> Value:
    a, b = first % max(1, len(shape)), second % max(1, len(shape))
    swapped = {a: b, b: a}
    return writer.value(call["self"]).moved(shape, lambda index: [index[swapped.get(d, d)] for d in range(len(shape))])


def unsqueeze(writer: Writer, call: Call, shape: Shape) -> Value:
    new = call["dim"] % len(shape)
    return writer.value(call["self"]).moved(shape, lambda index: [*index[:new], *index[new + 1 :]])


def squeeze(writer: Writer, call: Call, shape: Shape) -> Value:
    source, given = writer.value(call["self"]), call.get("dim")
    given = range(len(source.shape)) if given is None else [given] if isinstance(given, int) else given
    gone = {d % len(source.shape) for d in given if source.shape[d] == 1} if source.shape else set()

    def at(index: Index) -> Index:
        rest = iter(index)
        return ["0" if d in gone else next(rest) for d in range(len(source.shape))]

    return source.moved(shape, at)


def expand(writer: Writer, call: Call, shape: Shape) -> Value:
    call["size"]
    return writer.value(call["self"]).broadcast(shape)


def copy(writer: Writer, call: Call, shape: Shape) -> Value:
    call["self"]  # its shape and dtype, which are the result's
    return writer.value(call["src"]).broadcast(shape)


def select(writer: Writer, call: Call, shape: Shape) -> Value:
    source = writer.value(call["self"])
    return _pick(source, call["dim"] % len(source.shape), call["index"], shape)


def unbind(writer: Writer, call: Call, shape: Shape) -> list[Value]:
    source = writer.value(call["self"])
    dim = call["dim"] % len(source.shape)
    rest = (*source.shape[:dim], *source.shape[dim + 1 :])
    return [_pick(source, dim, i, rest) for i in range(own(source.shape[dim]))]


def split(writer: Writer, call: Call, shape: Shape) -> list[Value]:
    source = writer.value(call["self"])
    dim = call["dim"] % len(source.shape)
    whole, size = own(source.shape[dim]), call["split_size"]
    sizes = [min(size, whole - start) for start in range(0, whole, size)] if size else [0]
    return _parts(source, dim, sizes)


def split_with_sizes(writer: Writer, call: Call, shape: Shape) -> list[Value]:
    source = writer.value(call["self"])
    return _parts(source, call["dim"] % len(source.shape), call["split_sizes"])


def _parts(source: Value, dim: int, sizes: Sequence[int]) -> list[Value]:
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [
        _range(source, dim, start, 1, (*source.shape[:dim], size, *source.shape[dim + 1 :]))
        for start, size in zip(starts, sizes, strict=True)
    ]


def slice_(writer: Writer, call: Call, shape: Shape) -> Value:
    source = writer.value(call["self"])
    dim, step, start = call["dim"] % len(shape), call["step"], call["start"]
    call["end"]  # is in the result's shape
    if shape == source.shape and step == 1:
        return source
    return _range(source, dim, _from_start(start, own(source.shape[dim])), step, shape)


def _from_start(start: int | None, size: int) -> int:
    start = start or 0
    return max(0, start + size) if start < 0 else start


def view(writer: Writer, call: Call, shape: Shape) -> Value:
    call.get("size"), call.get("shape")  # are the result's
    source = writer.stored(call["self"])
    shape = _regrouped(source.shape, shape)

    def at(index: Index) -> Index:
        flat = offset(shape, index)
        return [
            "0" if size is None else f"(({flat}) / {max(1, stride)} % {max(1, entries(size))})"
            for size, stride in zip(source.shape, strides(source.shape), strict=True)
        ]

    return source.moved(shape, at)


def cat(writer: Writer, call: Call, shape: Shape) -> Value:
    dim = call["dim"] % len(shape)
    own(shape[dim])
    # An empty tensor of one dimension joins any other.
    parts = [part for part in map(writer.value, call["tensors"]) if len(part.shape) == len(shape)]
    return _join(writer, shape, dim, parts)


def stack(writer: Writer, call: Call, shape: Shape) -> Value:
    dim = call["dim"] % len(shape)
    widened = (*shape[:dim], 1, *shape[dim + 1 :])
    parts = [writer.value(part) for part in call["tensors"]]
    return _join(writer, shape, dim, [p.moved(widened, lambda index: [*index[:dim], *index[dim + 1 :]]) for p in parts])


def slice_scatter(writer: Writer, call: Call, shape: Shape) -> Value:
    dim, start, step, part = call["dim"] % len(shape), call["start"], call["step"], writer.value(call["src"])
    whole = writer.value(call["self"])
    call["end"]  # is in the part's shape
    if part.shape == shape and step == 1:
        return part
    first = _from_start(start, own(shape[dim]))
    return overwrite(
        writer, whole, part, shape, lambda i: [f"({first} + {step} * {a})" if d == dim else a for d, a in enumerate(i)]
    )


def select_scatter(writer: Writer, call: Call, shape: Shape) -> Value:
    dim = call["dim"] % len(shape)
    place = str(call["index"] % own(shape[dim]))
    whole, part = writer.value(call["self"]), writer.value(call["src"])
    return overwrite(writer, whole, part, shape, lambda index: [*index[:dim], place, *index[dim:]])


def diagonal(writer: Writer, call: Call, shape: Shape) -> Value:
    source = writer.value(call["self"])
    return source.moved(shape, _diagonal_places(call, source.shape))


def diagonal_scatter(writer: Writer, call: Call, shape: Shape) -> Value:
    whole, part = writer.value(call["self"]), writer.value(call["src"])
    return overwrite(writer, whole, part, shape, _diagonal_places(call, shape))


def _diagonal_places(call: Call, shape: Shape) -> Callable[[Index], Index]:
    """From an index of the diagonal, its own place last, to one of the tensor."""
    rank, shift = len(shape), call["offset"]
    first, second = call["dim1"] % rank, call["dim2"] % rank
    own(shape[first]), own(shape[second])

    def at(index: Index) -> Index:
        rest = iter(index[:-1])
        places = {first: f"({index[-1]} + {max(0, -shift)})", second: f"({index[-1]} + {max(0, shift)})"}
        return [places[d] if d in places else next(rest) for d in range(rank)]

    return at


def unfold(writer: Writer, call: Call, shape: Shape) -> Value:
    """Windows along a dimension, whose entries are in a last one of their own."""
    source = writer.stored(call["self"])
    if not source.shape:
        raise CannotCompile("a step unfolds a single number, which has no C form here")
    dim, step = call["dimension"] % len(source.shape), call["step"]
    own(source.shape[dim])
    call["size"]  # is in the result's shape
    return source.moved(shape, lambda i: [f"({a} * {step} + {i[-1]})" if d == dim else a for d, a in enumerate(i[:-1])])


def flip(writer: Writer, call: Call, shape: Shape) -> Value:
    sizes = {d % len(shape): own(shape[d % len(shape)]) for d in call["dims"]}
    return writer.value(call["self"]).moved(
        shape, lambda index: [f"({sizes[d] - 1} - {i})" if d in sizes else i for d, i in enumerate(index)]
    )


def _pick(source: Value, dim: int, place: int, shape: Shape) -> Value:
    at = str(place % own(source.shape[dim]))
    return source.moved(shape, lambda index: [*index[:dim], at, *index[dim:]])


def _range(source: Value, dim: int, start: int, step: int, shape: Shape) -> Value:
    own(source.shape[dim])
    factor = "" if step == 1 else f"{step} * "
    return source.moved(
        shape, lambda index: [f"({start} + {factor}{i})" if d == dim else i for d, i in enumerate(index)]
    )


def _join(writer: Writer, shape: Shape, dim: int, parts: Sequence[Value]) -> Value:
    starts = accumulate((own(part.shape[dim]) for part in parts), initial=0)

    def to(start: int) -> Callable[[Index], Index]:
        return lambda index: [f"({i} + {start})" if d == dim else i for d, i in enumerate(index)]

    return writer.filled(shape, [(part, to(start)) for part, start in zip(parts, starts, strict=False)])


def overwrite(
    writer: Writer, whole: Value, part: Value, shape: Shape, to: Callable[[Index], Index], adds: bool = False
) -> Value:
    """``whole`` with every entry of ``part``, that at i, written over the one at ``to(i)`` or added to it."""

    def fill(name: str) -> str:
        written = loops(shape, lambda i: f"{name}[{offset(shape, i)}] = {vector(whole.operand(i))};")
        assign = "+=" if adds else "="
        return written + loops(
            part.shape, lambda i: f"{name}[{offset(shape, to(i))}] {assign} {vector(part.operand(i))};"
        )

    return writer.array(shape, fill)


def padded(writer: Writer, call: Call, shape: Shape) -> Value:
    """With a number around, by pairs (before, after) of dimensions from the last on; less than 0 cuts off."""
    source, pad = writer.value(call["self"]), call["pad"]
    before, after = [0] * len(shape), [0] * len(shape)
    for number, (left, right) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        before[len(shape) - 1 - number], after[len(shape) - 1 - number] = left, right
    for d, (left, right) in enumerate(zip(before, after, strict=True)):
        if left or right:
            own(source.shape[d])
    cut = [max(0, -left) for left in before]
    kept = tuple(
        size if is_particles(size) or not (left or right) else own(size) + min(0, left) + min(0, right)
        for size, left, right in zip(source.shape, before, after, strict=True)
    )
    part = source.moved(kept, lambda i: [f"({a} + {off})" if off else a for a, off in zip(i, cut, strict=True)])
    to = [max(0, left) for left in before]
    whole = writer.constant(float(call["value"]), shape)
    return overwrite(
        writer, whole, part, shape, lambda i: [f"({a} + {off})" if off else a for a, off in zip(i, to, strict=True)]
    )


def own(size: Size) -> int:
    """A size that does not count particles."""
    if not isinstance(size, int):
        raise CannotCompile("a step picks or joins particles")
    return size


def _regrouped(source: Shape, shape: Shape) -> Shape:
    """The shape of a view, with the order of the entries in the dimension that numbers the particles."""
    here, there = (next((d for d, size in enumerate(s) if is_particles(size)), None) for s in (source, shape))
    if here is None and there is None:
        return shape
    if here is None or there is None:
        raise CannotCompile(ANOTHER_DIMENSION)
    size, slower = source[here], 1
    if isinstance(size, Shared):
        if size.before is None:  # all alike: any order will do
            return shape
        slower = size.before
    if not count(shape):
        return shape
    # Of a tensor's entries, those that change slower than the particle are the same before and after.
    before, rest = divmod(count(source[:here]) * slower, count(shape[:there]))
    if rest or entries(shape[there]) % before:
        raise CannotCompile(ANOTHER_DIMENSION)
    laid_out = None if shape[there] is None else Shared(entries(shape[there]), before)
    return (*shape[:there], laid_out, *shape[there + 1 :])


Rule = Callable[[Writer, Call, Shape], Value | list[Value]]


def _with_copies(rules: dict[str, Rule]) -> dict[str, Rule]:
    """Each under the name, too, that it has where torch writes views as copies."""
    copies = {name.replace(".", "_copy.", 1): rule for name, rule in rules.items()}
    return {**rules, **copies}


MOVES: dict[str, Rule] = {
    "constant_pad_nd.default": padded,
    **_with_copies(
        {
            "alias.default": identity,
            "detach.default": identity,
            "view.default": view,
            "permute.default": permute,
            "transpose.int": transpose,
            "t.default": transpose_matrix,
            "unsqueeze.default": unsqueeze,
            **dict.fromkeys(("squeeze.default", "squeeze.dim", "squeeze.dims"), squeeze),
            "expand.default": expand,
            "select.int": select,
            "slice.Tensor": slice_,
            "unbind.int": unbind,
            "split.Tensor": split,
            "split_with_sizes.default": split_with_sizes,
            "diagonal.default": diagonal,
            "unfold.default": unfold,
        }
    ),
    **dict.fromkeys(("clone.default", "lift_fresh.default", "lift_fresh_copy.default"), identity),
    **dict.fromkeys(("_unsafe_view.default", "reshape.default", "_reshape_copy.default"), view),
    "copy.default": copy,
    "cat.default": cat,
    "stack.default": stack,
    "flip.default": flip,
    "diagonal_scatter.default": diagonal_scatter,
    "slice_scatter.default": slice_scatter,
    "select_scatter.default": select_scatter,
}
