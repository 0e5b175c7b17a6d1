"""From the graph of a step to C.

Every tensor that depends on the state is kept as vectors over the particles of a tile: (particles, 20) is 20 vectors. A
tensor that does not (weights, data) is computed by torch before the run and handed over as numbers. Cheap chains of
entrywise operations are written as one expression; a tensor that is read more than once is stored.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass

import torch
from torch import Tensor, fx

from .moves import MOVES
from .operations import POINTWISE, Kind, Operand, integer_power, vector
from .sums import SUMS
from .trace import CannotCompile, TracedStep
from .writer import Index, Shape, Value, Writer, count, loops, operation_name

_LARGEST_POWER = 8
_FILLS = {"zeros_like": 0.0, "zeros": 0.0, "new_zeros": 0.0, "ones_like": 1.0, "ones": 1.0, "new_ones": 1.0}
_COUNTS = {"where", "sum"}  # whose whole numbers, ones and their sums, a REAL holds exactly
_CONSTANTS = {*_FILLS, "full", "full_like", "new_full", "scalar_tensor"}

_SIGNATURE = """\
static void step(const V *restrict x, const V *const *noise, const V t, const REAL *restrict c,
                 const REAL *const *restrict p, V *restrict work, V *restrict out)
"""


@dataclass(frozen=True)
class StepCode:
    """The C of a step and what it reads beside the state.

    Attributes:
        source: the function ``step`` of driver.c.
        workspace: vectors of temporary storage it uses.
        literals, uniforms: see Writer.
    """

    source: str
    workspace: int
    literals: tuple[float, ...]
    uniforms: tuple[fx.Node, ...]


def lower(traced: TracedStep, accumulators: int) -> StepCode:
    """The C of a traced step.

    Raises:
        CannotCompile: an operation has no C form, or the step mixes particles.
    """
    writer = Writer(traced, accumulators)
    graph = traced.module.graph
    _cut_shapes(graph)
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    noise = [f"n{k}" for k in range(len(placeholders) - 2)]
    names = dict(zip(placeholders, ("x", *noise, "t"), strict=True))
    made_here: set[fx.Node] = set()
    for node in graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise CannotCompile(f"a step draws random numbers of its own, by {node.target}")
        depends = any(source in made_here for source in node.all_input_nodes)
        if node.op == "placeholder":
            writer.values[node] = _input(names[node], writer.shape(node))
        elif node.op == "output":
            _output(writer, node)
        elif depends or operation_name(node) in _CONSTANTS or None in writer.shape(node):
            writer.values[node] = _lower_node(writer, node)
        else:
            continue  # torch computes it
        made_here.add(node)
    statements, workspace = writer.assemble()
    unpacked = "".join(f"    const V *restrict const {name} = noise[{k}];\n" for k, name in enumerate(noise))
    unused = "".join(f"(void){name}, " for name in (*noise, "t", "c", "p"))
    body = f"{unpacked}    {unused}(void)work;\n{statements}"
    source = f"{writer.tables()}\n{_SIGNATURE}{{\n{body}}}\n"
    return StepCode(source, workspace, tuple(writer.literals), tuple(writer.uniforms))


def _cut_shapes(graph: fx.Graph) -> None:
    """``full_like(y)`` reads y's shape alone: y itself may be a sum over particles that nothing else needs."""
    for node in graph.nodes:
        name = operation_name(node)
        if name in _CONSTANTS:
            given = [a for a in node.args if isinstance(a, (int, float))]
            node.meta["fill"] = _FILLS[name] if name in _FILLS else given[-1] if given else None
            if name.endswith("_like") or name.startswith("new_"):
                node.args = ()
    graph.eliminate_dead_code()


def _input(name: str, shape: Shape) -> Value:
    return Value(shape, Kind.VECTOR, lambda index: name if name == "t" else f"{name}[{index[-1]}]")


def _output(writer: Writer, node: fx.Node) -> None:
    result = node.args[0]
    (result,) = result if isinstance(result, (tuple, list)) else (result,)
    assert isinstance(result, fx.Node)
    value = writer.value(result)
    writer.write(loops(value.shape, lambda index: f"out[{index[-1]}] = {vector(value.operand(index))};"))


def _lower_node(writer: Writer, node: fx.Node) -> Value | list[Value]:
    if node.target is operator.getitem:
        parts, place = writer.values[node.args[0]], node.args[1]  # type: ignore[index]
        assert isinstance(parts, list)
        return parts[place]  # type: ignore[index]
    name, shape = operation_name(node) or "", writer.shape(node)
    if name in _CONSTANTS and isinstance(node.meta["fill"], (int, float)):
        return writer.constant(node.meta["fill"], shape)
    rule = SUMS.get(name) or MOVES.get(name)
    if rule is None and name not in POINTWISE and name != "_to_copy":
        raise CannotCompile(f"a step uses {node.target}, which has no C form here")
    value = node.meta["val"]
    exempt = name in _COUNTS or name in MOVES  # a move computes nothing: places go through
    if isinstance(value, Tensor) and value.dtype not in (writer.dtype, torch.bool) and not exempt:
        raise CannotCompile(f"a step in {writer.dtype} computes {node.target} in {value.dtype}")
    if rule is not None:
        return rule(writer, node, shape)
    return (
        _converted(writer, node, shape)
        if name == "_to_copy"
        else _kept(writer, node, _entrywise(writer, node, name, shape))
    )


def _entrywise(writer: Writer, node: fx.Node, name: str, shape: Shape) -> Value:
    if node.kwargs.get("rounding_mode"):
        raise CannotCompile("a step divides with rounding, which has no C form here")
    if name == "pow" and _is_small_integer(node.args[1]):
        base, exponent = writer.value(node.args[0]), int(node.args[1])  # type: ignore[arg-type]
        return Value(shape, Kind.VECTOR, lambda index: integer_power(base.operand(index), exponent)[0])
    operands = [None if argument is None else writer.value(argument) for argument in node.args]
    named = {key: writer.value(a) for key, a in node.kwargs.items() if key == "alpha" and a != 1}

    def build(index: Index) -> Operand:
        arguments = [None if value is None else value.operand(index) for value in operands]
        return POINTWISE[name](*arguments, **{key: value.operand(index) for key, value in named.items()})

    return Value(shape, build(["0"] * len(shape))[1], lambda index: build(index)[0])


def _is_small_integer(exponent: object) -> bool:
    return isinstance(exponent, (int, float)) and float(exponent).is_integer() and abs(exponent) <= _LARGEST_POWER


def _converted(writer: Writer, node: fx.Node, shape: Shape) -> Value:
    source, dtype = writer.value(node.args[0]), node.meta["val"].dtype
    if dtype == writer.dtype:
        return Value(shape, Kind.VECTOR, lambda index: vector(source.operand(index)))
    if dtype == torch.bool and source.kind is Kind.MASK:
        return source
    raise CannotCompile(f"a step in {writer.dtype} converts to {dtype}")


def _kept(writer: Writer, node: fx.Node, value: Value) -> Value:
    """Stored, unless its one reader takes each entry once."""
    (user,) = node.users if len(node.users) == 1 else (None,)
    if user is not None:
        name = operation_name(user)
        if name in ("sum", "mean", "amax", "amin") or (
            name in POINTWISE and count(writer.shape(user)) == count(value.shape)
        ):
            return value
    return writer.store(value)
