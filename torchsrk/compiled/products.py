"""Matrix products."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor, fx

from ..vectors import uses_avx512
from .calls import Call, operation_name
from .operations import Kind, Operand, number, vector
from .statements import Terms
from .sums import all_terms, in_blocks
from .trace import CannotCompile
from .writer import Index, Shape, Size, Value, Writer, entries, is_particles, loops, offset

PANEL = 8 if uses_avx512() else 6  # the most outputs that are added up at a time, by registers; see products.h
GROUPS = 2  # vectors of particles in a tile of a step that has such products: ten sums or more keep adders busy
_FEWEST_WEIGHTS = 100  # of a product that is worth a tile of several vectors
_ACCUMULATORS = {True: 64, False: 8}  # sums of other products at a time, for particles one by one or side by side
_TERMS = {True: 4, False: 1}  # of each added at a time: of particles one by one, sums are kept in memory
_NEAREST_CACHE = 1 << 15  # bytes: a matrix that has no room there beside a copy of it is best read once for both
_BLOCK_BYTES = 256  # of a chain's numbers that are made and used before the next ones: half of the registers
_MOST_SUMS = 64  # that are added up by such blocks: the weights of one are in the nearest cache
_FEW_SUMS = 8  # of a particle on its own: so few that its terms, and not its sums, are made vectors of


def mm(writer: Writer, call: Call, shape: Shape) -> Value:
    if _takes_all_groups(writer, call["self"], call["mat2"]):
        return _of_all_groups(writer, call["self"], call["mat2"], None, shape)
    return _by_columns(writer, call["self"], call["mat2"], shape)


def bmm(writer: Writer, call: Call, shape: Shape) -> Value:
    a, b = writer.stored(call["self"]), writer.stored(call["mat2"])
    return _product(
        writer, shape, a.shape[-1], lambda i, k: a.operand([i[0], i[1], k]), lambda i, k: b.operand([i[0], k, i[2]])
    )


def addmm(writer: Writer, call: Call, shape: Shape) -> Value:
    added = call["self"]
    if _takes_all_groups(writer, call["mat1"], call["mat2"]) and _is_row(writer, added, shape):
        return _of_all_groups(writer, call["mat1"], call["mat2"], added, shape)
    return _by_columns(writer, call["mat1"], call["mat2"], shape, writer.stored(added))


def _by_columns(writer: Writer, left: fx.Node, weights: fx.Node, shape: Shape, bias: Value | None = None) -> Value:
    a, b = writer.stored(left), _columns(writer, weights, shape)
    return _product(
        writer,
        shape,
        a.shape[-1],
        lambda i, k: a.operand([i[0], k]),
        lambda i, k: b.operand([k, i[1]]),
        start=None if bias is None else lambda i: vector(bias.operand(i)),
        by_terms=None if bias is not None else _by_terms(writer, a, weights, shape),
    )


def _takes_all_groups(writer: Writer, left: fx.Node, weights: fx.Node) -> bool:
    """Whether a product is one of each particle's numbers with weights, which are the same for all."""
    if writer.one_by_one or writer.is_within or writer.is_uniform(left) or not writer.is_uniform(weights):
        return False
    matrix = weights.meta["val"]
    return (
        writer.value(left).kind is Kind.VECTOR
        and is_particles(writer.value(left).shape[0])
        and matrix.dtype == writer.dtype
        and matrix.numel() >= _FEWEST_WEIGHTS
    )


def _is_row(writer: Writer, added: fx.Node, shape: Shape) -> bool:
    """Whether what is added to a product is one number for each output."""
    return writer.is_uniform(added) and added.meta["val"].dtype == writer.dtype and writer.shape(added) == (shape[-1],)


def _of_all_groups(writer: Writer, left: fx.Node, weights: fx.Node, start: fx.Node | None, shape: Shape) -> Value:
    """The product by products.h, of all groups of a tile at once."""
    terms, outputs = weights.meta["val"].shape
    writer.longest_sum, writer.groups = max(writer.longest_sum, terms), GROUPS
    writer.headers.add("products.h")
    a = writer.stored(left)
    if not writer.is_array(a):
        a = writer.filled(a.shape, [(a, lambda index: index)])
    packed = _packed(weights)
    rows, given = entries(shape[0]), "0" if start is None else writer.uniform(start)
    calls, at = [], 0
    for width, panels in _panels(outputs):
        writer.functions.add(f"PRODUCT({width})")
        ends, first = f"{at}, {at + width * panels}", f"{writer.uniform(packed)} + {at * terms}"
        calls.append(f"product_{width}(groups, {terms}, {ends}, left, made, {first}, {given});")
        at += width * panels
    across = " ".join(calls)
    if rows > 1:
        on = f"if (row < {rows - 1}) EACH_GROUP {{ left[g] += {terms}; made[g] += {outputs}; }}"
        across = f"for (int row = 0; row < {rows}; row++) {{ {across} {on} }}"
    return writer.array(shape, lambda name: f"left[g] = &{a.operand(['0', '0'])[0]}; made[g] = {name};", across=across)


def _packed(weights: fx.Node) -> fx.Node:
    """The node of weights in panels: one for all products that read them, so that a cache holds them once."""
    known = next((user for user in weights.users if user.target is in_panels), None)
    if known is not None:
        return known
    with weights.graph.inserting_after(weights):
        packed = weights.graph.call_function(in_panels, (weights,))
    packed.meta["val"] = weights.meta["val"].reshape(-1)
    return packed


def _panels(outputs: int) -> list[tuple[int, int]]:
    """(width, number) of the fewest panels that take all outputs, and are as wide as one another or one output less."""
    panels = -(-outputs // PANEL)
    width, wider = divmod(outputs, panels)
    return [(width + 1, wider), (width, panels - wider)] if wider else [(width, panels)]


def in_panels(weights: Tensor) -> Tensor:
    """Weights (terms, outputs) as products.h reads them: a few outputs of all terms, then the next few."""
    is_turned = not weights.is_contiguous() and weights.t().is_contiguous()  # as a layer's are: they lie there in a row
    flat = (weights.t() if is_turned else weights).reshape(-1)
    return flat.index_select(0, _order(*weights.shape, is_turned))


@lru_cache(maxsize=32)
def _order(terms: int, outputs: int, is_turned: bool) -> Tensor:
    """Where each number of the panels is among the weights, or these turned: to copy by places takes torch a third of
    the time that it takes to copy small pieces."""
    widths = [width for width, panels in _panels(outputs) for _ in range(panels)]
    places = torch.arange(terms * outputs, dtype=torch.int32, device="cpu")
    placed = places.view(outputs, terms).t() if is_turned else places.view(terms, outputs)
    return torch.cat([panel.reshape(-1) for panel in placed.split(widths, dim=1)])


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
    start: Callable[[Index], str] | None = None,
    by_terms: Terms | None = None,
) -> Value:
    """Σ_k left(index, k)·right(index, k), several entries along the last dimension at a time."""
    if not isinstance(terms, int):
        raise CannotCompile("a step mixes its particles: a matrix product sums over them")
    if terms == 1 and start is None:
        return _outer(shape, left, right)
    writer.longest_sum = max(writer.longest_sum, terms)
    accumulators = _ACCUMULATORS[writer.one_by_one]
    last = max((d for d, size in enumerate(shape) if size is not None), default=-1)
    size = 1 if last < 0 else entries(shape[last])
    whole = size - size % accumulators

    def first(at: Index) -> str:
        return "splat(0)" if start is None else start(at)

    def term(at: Index, k: str) -> str:
        a, b = left(at, k), right(at, k)
        a, b = (b, a) if a[1] is Kind.NUMBER else (a, b)
        return f"{vector(a)} * {number(b)}"

    def one_sum(name: str, at: Index) -> str:
        def part(first: str, number: int) -> str:
            return f"{{ {all_terms(number, term(at, f'({first} + r)'))} total += add_up(terms, {number}); }}"

        return f"{{ V total = {first(at)}; {in_blocks(terms, part)} {name}[{offset(shape, at)}] = total; }}"

    def block(name: str, index: Index, entries: int) -> str:
        if _adds_up_terms(writer, terms, entries):
            return f"for (int s = 0; s < {entries}; s++) {one_sum(name, _moved_on(index, last, 's'))}"
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
            f"{{ V sum[{entries}]; {each} sum[r] = {first(at)}; {adds}{each} {name}[{offset(shape, at)}] = sum[r]; }}"
        )

    def fill(name: str) -> str:
        text = ""
        if whole:
            ranges = {last: (0, whole, accumulators)}
            text += loops(shape, lambda index: block(name, index, accumulators), ranges)
        if size > whole:
            ranges = {last: (whole, size, accumulators)}
            text += loops(shape, lambda index: block(name, index, size - whole), ranges)
        return text

    if writer.one_by_one and not writer.is_within and shape == (None, size):
        part = lambda name, first, number: block(name, ["0", first], number)  # noqa: E731
        return writer.array(shape, fill, part=part, by_terms=by_terms)
    return writer.array(shape, fill)


def _by_terms(writer: Writer, left: Value, weights: fx.Node, shape: Shape) -> Terms | None:
    """How to add up a particle's numbers by lines of the weights turned, where a product before has read these.

    With one copy for both, by blocks, a large matrix comes to the processor once: that is what a chain waits for.
    """
    matrix, outputs = weights.meta["val"], entries(shape[-1])
    is_large = 2 * matrix.numel() * matrix.element_size() > _NEAREST_CACHE
    if not writer.one_by_one or not is_large or shape != (None, outputs) or not writer.is_array(left):
        return None
    if outputs > min(_MOST_SUMS, entries(left.shape[-1])):  # vectors of sums, in the nearest cache beside a block
        return None
    base, is_turned = _unturned(weights)
    known = next((node for node in writer.uniforms if _unturned(node) == (base, not is_turned)), None)
    if known is None or writer.shape(known) != (outputs, left.shape[-1]):
        return None
    turned = writer.value(known)
    _, reads = writer.names.reads_of(lambda: left.entry(["0", "i1"]))
    each = f"for (int s = 0; s < {outputs}; s++)"

    def add(first: str, number: int) -> str:
        return f"{each} add_products(&sums[s], &{left.entry(['0', first])}, &{turned.entry(['s', first])}, {number});"

    return Terms(
        reads[0].array,
        _BLOCK_BYTES // matrix.element_size(),
        f"W sums[{outputs}]; {each} sums[s] = (W){{0}};",
        add,
        lambda name: f"{each} {name}[s] = add_up(&sums[s], LANES);",
    )


def _unturned(node: fx.Node) -> tuple[fx.Node, bool]:
    """The matrix that one is the transposed of, if it is, and whether it is."""
    is_turned = False
    while _turns(node):
        node, is_turned = node.all_input_nodes[0], not is_turned
    return node, is_turned


def _turns(node: fx.Node) -> bool:
    name = (operation_name(node) or "").partition(".")[0].removesuffix("_copy")
    return name == "t" or (name == "permute" and list(node.args[1]) == [1, 0])  # type: ignore[arg-type]


def _outer(shape: Shape, left: Callable[[Index, str], Operand], right: Callable[[Index, str], Operand]) -> Value:
    """A product of one term, which is no sum."""
    return Value(shape, Kind.VECTOR, lambda i: f"({vector(left(i, '0'))} * {number(right(i, '0'))})", 1)


def _moved_on(index: Index, dim: int, by: str) -> Index:
    return [f"({i} + {by})" if d == dim else i for d, i in enumerate(index)]


PRODUCTS: dict[str, Callable[[Writer, Call, Shape], Value | list[Value]]] = {
    "mm.default": mm,
    "bmm.default": bmm,
    "addmm.default": addmm,
}
