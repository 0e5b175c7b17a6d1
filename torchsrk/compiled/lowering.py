"""From the graph of a step to C.

Every tensor that depends on the state is kept as vectors over the particles of a tile: (particles, 20) is 20 vectors. A
tensor that does not (weights, data) is computed by torch before the run and handed over as numbers. Cheap chains of
entrywise operations are written as one expression; a tensor that is read more than once is stored.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import fx

from .calls import Call, operation_name
from .evaluation import nodes_in
from .fused import fuse_into_products
from .indexing import INDEXING
from .joins import joined
from .likeness import merge_alike
from .looped import LoopedProgram
from .matrices import CHECKS, MATRICES
from .moves import MOVES, view
from .operations import POINTWISE, Kind, Operand, integer_power, vector
from .order import ORDER
from .placed import stack_what_is_placed
from .places import count_from_the_start
from .products import PRODUCTS
from .sums import SUMS
from .trace import CannotCompile, TracedStep, drop_unread
from .wholes import may_compute
from .writer import Index, Shape, Value, Writer, count, entries, is_particles

_LARGEST_POWER = 8
_MOST_UNROLLED = 10_000  # nodes that are written one by one
_MANY_NODES = 1_500  # of a graph in which loops are looked for
_LONGEST_EXPRESSION = 24  # operations in one C expression
_LARGEST_WHOLE = 1 << 20  # of whole numbers in a REAL: float32 holds them and a few sums of them exactly
_FILLS = {
    **dict.fromkeys(("zeros_like.default", "zeros.default", "new_zeros.default"), 0.0),
    **dict.fromkeys(("ones_like.default", "ones.default", "new_ones.default"), 1.0),
    # Whatever is there: it is written over.
    **dict.fromkeys(("empty_like.default", "empty.memory_format", "new_empty.default", "empty_strided.default"), 0.0),
    **dict.fromkeys(("new_empty_strided.default", "empty_permuted.default"), 0.0),
}
CONSTANTS = {*_FILLS, "full.default", "full_like.default", "new_full.default", "scalar_tensor.default"}
_RULES = {**SUMS, **PRODUCTS, **MATRICES, **ORDER, **MOVES, **INDEXING}
# What may have whole numbers or conditions for results: they move or choose them, and compute nothing.
_CHOOSES = {*MOVES, *INDEXING, *ORDER, "where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar"}
_READS_ONCE = {name for name in SUMS if name.partition(".")[0] in ("sum", "mean", "amax", "amin", "prod", "any", "all")}


@dataclass(frozen=True)
class StepCode:
    """The C of a step and what it reads beside the state.

    Attributes:
        source: the function ``step`` of driver.c.
        workspace: vectors of temporary storage it uses.
        literals, uniforms, tables, checks, bounds, longest_sum, groups, headers, one_by_one: see Writer.
    """

    source: str
    workspace: int
    literals: tuple[float, ...]
    uniforms: tuple[fx.Node, ...]
    tables: tuple[fx.Node, ...]
    checks: tuple[fx.Node, ...]
    bounds: tuple[tuple[int, int, bool], ...]
    longest_sum: int
    groups: int
    headers: tuple[str, ...]
    one_by_one: bool

    def is_like(self, other: StepCode) -> bool:
        """Whether both say the same, of whatever numbers."""
        return (self.source, self.workspace, self.bounds) == (other.source, other.workspace, other.bounds)


def lower(traced: TracedStep, one_by_one: bool) -> StepCode:
    """The C of a traced step, with loops where a long one repeats itself.

    Raises:
        CannotCompile: an operation has no C form, or the step mixes particles.
    """
    writer = Writer(traced, one_by_one)
    made_here = begin(writer)
    graph = traced.module.graph
    stack_what_is_placed(graph)
    if len(graph.nodes) > _MANY_NODES:
        _lower_long(writer, list(graph.nodes), made_here)
        return finish(writer)
    fuse_into_products(graph, _made_here(writer, graph.nodes, made_here), fixed=not traced.places, one_copy=one_by_one)
    for node in list(graph.nodes):
        if node.op == "output":
            _output(writer, node)
        else:
            lower_one(writer, node, made_here)
    return finish(writer)


def _lower_long(writer: Writer, nodes: Sequence[fx.Node], inputs: set[fx.Node]) -> None:
    """Write a graph in which a round of what repeats itself is written once."""
    made_here = _made_here(writer, nodes, inputs)
    program = LoopedProgram(nodes, made_here, writer.names)
    _check_length(len(nodes), sum(loop.repeat.end - loop.repeat.first for loop in program.loops.values()))
    place = 0
    while place < len(nodes):
        loop = program.loops.get(place)
        if loop is not None:
            loop.lower(writer, _lower_node)
            place = loop.repeat.end
            continue
        node, place = nodes[place], place + 1
        writer.operation = _in_words(writer, node)
        if node.op == "output":
            _output(writer, node)
        elif node in made_here and node not in inputs:
            stacked = joined(writer, node, program) if program.loops else None
            writer.values[node] = _lower_node(writer, node) if stacked is None else stacked
    checks = [node for node in nodes if operation_name(node) in CHECKS]
    writer.checks += [node for node in checks if not made_here.intersection(node.all_input_nodes)]
    if made_here.intersection((*writer.uniforms, *writer.tables)):
        raise CannotCompile("a step has an unexpected form: a loop reads what another one does not keep")


def _check_length(operations: int, in_loops: int) -> None:
    if operations - in_loops > _MOST_UNROLLED:
        raise CannotCompile(
            f"a step makes {operations} operations, of which {operations - in_loops} are no rounds of a loop that all "
            f"do the same; more than {_MOST_UNROLLED} would take the C compiler minutes. Operations on whole tensors, "
            "as cumsum or a product of matrices, in the place of a loop over numbers are fewer"
        )


def _made_here(writer: Writer, nodes: Iterable[fx.Node], inputs: set[fx.Node]) -> set[fx.Node]:
    """What C computes; the rest is torch's to compute before a run."""
    made = set(inputs)
    for node in nodes:
        name = operation_name(node)
        is_made = name in CONSTANTS or is_of_particles(writer, node) or not made.isdisjoint(node.all_input_nodes)
        if is_made and name not in CHECKS and node.op != "output":
            made.add(node)
    return made


def begin(writer: Writer) -> set[fx.Node]:
    """Name the inputs of a step. What is returned are the nodes that the step makes, so far."""
    graph = writer.traced.module.graph
    cut_shapes(graph)
    count_from_the_start(graph)
    if len(graph.nodes) <= _MANY_NODES:  # in a long one the rounds of a loop are to stay alike
        merge_alike(graph)
    placeholders = [node for node in graph.nodes if node.op == "placeholder"][: writer.traced.inputs]
    names = ("x", *_noise(writer), "t")
    for node, name in zip(placeholders, names, strict=True):
        shape = writer.shape(node)
        writer.values[node] = writer.input(name, shape) if shape else Value((), Kind.VECTOR, lambda index: "t")
    return set(placeholders)


def lower_one(writer: Writer, node: fx.Node, made_here: set[fx.Node]) -> None:
    """Write what a node of the graph computes, unless torch computes it before the run."""
    if node in made_here:
        return
    writer.operation = _in_words(writer, node)
    depends = any(source in made_here for source in node.all_input_nodes)
    if operation_name(node) in CHECKS:
        writer.checks += [] if depends else [node]
    elif depends or operation_name(node) in CONSTANTS or is_of_particles(writer, node):
        writer.values[node] = _lower_node(writer, node)
        made_here.add(node)


def finish(writer: Writer) -> StepCode:
    """The C of all that was written."""
    noise = _noise(writer)
    functions, statements, workspace = writer.assemble()
    inputs = "".join(f" INPUT({name}, noise[{k}])" for k, name in enumerate(noise))
    before = "\n".join((*sorted(writer.functions), f"#define INPUTS INPUT(x, x){inputs} STORAGE"))
    source = f"\n{before}\n{functions}static void step(ARGUMENTS)\n{{\n    UNUSED\n{statements}}}\n"
    reads = (
        tuple(writer.literals),
        tuple(writer.uniforms),
        tuple(writer.tables),
        tuple(writer.checks),
        tuple(writer.bounds),
    )
    return StepCode(
        source, workspace, *reads, writer.longest_sum, writer.groups, tuple(sorted(writer.headers)), writer.one_by_one
    )


def _in_words(writer: Writer, node: fx.Node) -> str:
    """The operation and its result's shape, such as "tanh (particles, 64)"."""
    if node.op == "output":
        return "the state after the step"
    name = (operation_name(node) or "").partition(".")[0]
    sizes = ("particles" if size is None else str(entries(size)) for size in writer.shape(node)) if name else ()
    return f"{name} ({', '.join(sizes)})" if name else ""


def _noise(writer: Writer) -> list[str]:
    return [f"n{k}" for k in range(writer.traced.inputs - 2)]


def is_of_particles(writer: Writer, node: fx.Node) -> bool:
    return node.op != "placeholder" and any(map(is_particles, writer.shape(node)))


def cut_shapes(graph: fx.Graph) -> None:
    """``full_like(y)`` reads y's shape alone: y itself may be a sum over particles that nothing else needs."""
    for node in graph.nodes:
        name = operation_name(node)
        if name in CONSTANTS:
            call = Call(node)
            fill = (
                _FILLS[name] if name in _FILLS else call.get("s" if name == "scalar_tensor.default" else "fill_value")
            )
            node.meta["fill"] = fill
            if not isinstance(fill, fx.Node):
                node.args, node.kwargs = (), {}
    drop_unread(graph)


def _output(writer: Writer, node: fx.Node) -> None:
    writer.operation = _in_words(writer, node)
    result = node.args[0]
    (result,) = result if isinstance(result, (tuple, list)) else (result,)
    assert isinstance(result, fx.Node)
    writer.result(writer.value(result))


def _lower_node(writer: Writer, node: fx.Node) -> Value | list[Value]:
    if node.target is operator.getitem:
        parts, place = writer.values[node.args[0]], node.args[1]  # type: ignore[index]
        assert isinstance(parts, list)
        return parts[place]  # type: ignore[index]
    name = operation_name(node) or ""
    if name in CONSTANTS:
        return _constant(writer, node, writer.laid_out(node, fills=True))
    rule = _RULES.get(name)
    if rule is None and name not in POINTWISE and name != "_to_copy.default":
        if not node.all_input_nodes and is_of_particles(writer, node):
            raise CannotCompile("a step depends on the number of particles")
        raise CannotCompile(f"a step uses {node.target}, which has no C form here")
    call = Call(node)
    # A view has an order of its own, and what is expanded along a dimension is alike along it.
    shape = writer.shape(node) if rule is view else writer.laid_out(node, fills=name.startswith("expand"))
    if rule is not None:
        value = rule(writer, call, shape)
    elif name == "_to_copy.default":
        value = _converted(writer, call, shape)
    else:
        value = _kept(writer, node, _entrywise(writer, call, name, shape))
    if call.unread():
        raise CannotCompile(f"a step uses {node.target} with {', '.join(call.unread())}, which has no C form here")
    return value if isinstance(value, list) else _of_its_dtype(writer, node, name, value)


def _of_its_dtype(writer: Writer, node: fx.Node, name: str, value: Value) -> Value:
    """The value in the form that its dtype asks for: numbers of the step's precision, or conditions."""
    dtype = node.meta["val"].dtype
    if dtype == writer.dtype:
        if value.kind is not Kind.MASK:
            return value
        return replace(value, kind=Kind.VECTOR, entry=lambda index: vector((value.entry(index), Kind.MASK)))
    if dtype == torch.bool and value.kind in (Kind.MASK, Kind.NUMBER):
        return value
    # A product of conditions is one as well: that is how torch writes isfinite.
    if dtype == torch.bool and value.kind is Kind.VECTOR and (name in _CHOOSES or name == "mul.Tensor"):
        return replace(value, kind=Kind.MASK, entry=lambda index: f"({value.entry(index)} != 0)")
    if dtype == torch.int64 and value.kind is Kind.VECTOR and may_compute(node, writer.dtype):
        return value
    if dtype == torch.int64 and (name in _CHOOSES or name.startswith("sum.") or name == "_to_copy.default"):
        return value
    raise CannotCompile(f"a step in {writer.dtype} computes {node.target} in {dtype}")


def _constant(writer: Writer, node: fx.Node, shape: Shape) -> Value:
    fill, dtype = node.meta["fill"], node.meta["val"].dtype
    if isinstance(fill, fx.Node):  # a number that torch computes before the run
        if fill in writer.values or dtype != writer.dtype:
            raise CannotCompile(f"a step uses {node.target} with a number it computes, which has no C form here")
        return writer.value(fill).broadcast(shape)
    takes_any = dtype.is_floating_point and not shape  # it has no dimensions: its dtype is that of what it meets
    if dtype not in (writer.dtype, torch.bool, torch.int64) and not takes_any:
        raise CannotCompile(f"a step in {writer.dtype} makes a tensor of {dtype}")
    # As torch has it: 0.7 is 0 as a whole number, and true as a condition.
    exact = torch.tensor(fill, dtype=torch.float64 if isinstance(fill, float) else None).to(dtype).item()
    if dtype == torch.int64 and abs(exact) > _LARGEST_WHOLE:
        raise CannotCompile(f"a step uses the whole number {exact}")
    return writer.constant(exact, shape)


def _entrywise(writer: Writer, call: Call, name: str, shape: Shape) -> Value:
    rule = POINTWISE[name]
    if name == "pow.Tensor_Scalar" and is_small_integer(call["exponent"]):
        base, exponent = writer.value(call["self"]), int(call["exponent"])
        build = lambda index: integer_power(base.operand(index), exponent)  # noqa: E731
        return Value(shape, Kind.VECTOR, lambda index: build(index)[0], base.cost + 1)
    given = [call.get(argument) for argument in rule.arguments]
    if rule.arguments[-1] == "alpha" and given[-1] == 1:
        given.pop()
    words = {word: call[word] for word in rule.words}
    operands = [None if argument is None else writer.value(argument) for argument in given]

    def entry(index: Index) -> Operand:
        return rule.build(*(None if value is None else value.operand(index) for value in operands), **words)

    cost = 1 + sum(value.cost for value in operands if value is not None)
    return Value(shape, entry(["0"] * len(shape))[1], lambda index: entry(index)[0], cost)


def is_small_integer(exponent: object) -> bool:
    return isinstance(exponent, (int, float)) and float(exponent).is_integer() and abs(exponent) <= _LARGEST_POWER


def _converted(writer: Writer, call: Call, shape: Shape) -> Value:
    source, dtype = writer.value(call["self"]), call.node.meta["val"].dtype
    if dtype == writer.dtype:
        return replace(source, shape=shape, kind=Kind.VECTOR, entry=lambda index: vector(source.operand(index)))
    if dtype == torch.bool and source.kind is Kind.MASK:
        return source
    if dtype == torch.int64 and source.kind is Kind.VECTOR:  # a whole number in a REAL, whatever its size
        return replace(source, shape=shape, entry=lambda index: f"v_whole({vector(source.operand(index))})")
    raise CannotCompile(f"a step in {writer.dtype} converts to {dtype}")


def _kept(writer: Writer, node: fx.Node, value: Value) -> Value:
    """Stored, unless it is short and its one reader takes each entry once."""
    readers = [user for user in node.users for argument in nodes_in((user.args, user.kwargs)) if argument is node]
    if len(readers) == 1 and value.cost <= _LONGEST_EXPRESSION:
        reader, name = readers[0], operation_name(readers[0])
        is_as_large = name in POINTWISE and count(writer.shape(reader)) == count(value.shape)
        if is_as_large or name in _READS_ONCE or reader.op == "output":
            return value
    return writer.store(value)
