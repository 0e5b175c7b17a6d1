"""What writing a step's C needs: values, the storage they take, and the loops that fill it."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx

from .operations import Kind, Operand, vector
from .statements import RESULT, Body, Entry, Names, Statement, assembled
from .trace import CannotCompile, TracedStep


@dataclass(frozen=True)
class Shared:
    """The size of a dimension that counts particles and other entries at once, as (copies, particles) made one line.

    Attributes:
        entries: how many of it are a particle's own. By these alone C counts.
        before: those that change slower than the particle; the others change faster. None in a tensor whose entries
            are alike along this dimension, as one of zeros: any order is theirs.
    """

    entries: int
    before: int | None = None


Size = int | Shared | None  # None stands for the particles
Shape = tuple[Size, ...]
Index = Sequence[str]

ANOTHER_DIMENSION = "a step reshapes its particles into another dimension"


@dataclass(frozen=True)
class Value:
    """A tensor: its shape, and the C expression of its entry at an index. The particles' own index is not used.

    Attributes:
        cost: how many operations the expression holds: what is long is stored, so that texts don't grow without end.
        table: the number of the table that a tensor of places is read from.
    """

    shape: Shape
    kind: Kind
    entry: Callable[[Index], str]
    cost: int = 0
    table: int | None = None

    def operand(self, index: Index) -> Operand:
        """The entry that broadcasting puts at an index of a larger tensor."""
        own = list(index)[len(index) - len(self.shape) :]
        return self.entry(["0" if size == 1 else at for size, at in zip(self.shape, own, strict=True)]), self.kind

    def moved(self, shape: Shape, source: Callable[[Index], Index]) -> Value:
        """A tensor of another shape whose entry at an index is this one's at ``source(index)``."""
        return replace(self, shape=shape, entry=lambda index: self.entry(source(index)))

    def broadcast(self, shape: Shape) -> Value:
        """The same tensor, expanded to a larger shape."""
        return replace(self, shape=shape, entry=lambda index: self.operand(index)[0])


class Writer:
    """Collects a step's statements, the numbers they read and the tensors that torch computes for them.

    Attributes:
        one_by_one: particles run one at a time, with vectors along their entries.
        literals: the numbers in the graph, step size included: read at run time, so that they don't make a new program.
        uniforms: nodes of the graph that torch computes before a run.
        tables: those that are places in a tensor.
        checks: nodes that torch computes before a run for the error they may raise.
        bounds: (table, size, whether it may count from the end): what its places must lie within.
        longest_sum: the most terms that any sum of the step adds up.
        headers: the files of C beside vector.h that it calls.
        functions: C that stands before the step.
        groups: vectors of particles that a tile has: more than one if a product is made of all at once.
        names: what C calls the entries of arrays.
        operation: what is being written, in words.
        is_within: it writes the body of a loop, group by group.
    """

    def __init__(self, traced: TracedStep, one_by_one: bool) -> None:
        self.traced, self.one_by_one = traced, one_by_one
        self.dtype: torch.dtype = next(iter(traced.module.graph.nodes)).meta["val"].dtype
        self.literals: list[float] = []
        self.uniforms: list[fx.Node] = []
        self.tables: list[fx.Node] = []
        self.checks: list[fx.Node] = []
        self.bounds: list[tuple[int, int, bool]] = []
        self.longest_sum = 1
        self.headers: set[str] = set()
        self.functions: set[str] = set()
        self.groups = 1
        self.names = Names()
        self.operation = ""
        self.is_within = False
        self.values: dict[fx.Node, Value | list[Value]] = {}
        self._statements: list[Statement] = []
        self._numbers = itertools.count()
        # By the identity of what nodes have for a value, which many share; it is held, so that no other gets its id.
        self._shapes: dict[int, tuple[Tensor, Shape]] = {}

    # ------------------------------------------------------------------------------------------------- reading

    def shape(self, node: fx.Node) -> Shape:
        """The shape of a node's tensor; () for a node that is not one."""
        value = node.meta.get("val")
        if not isinstance(value, Tensor):
            return ()
        _, shape = self._shapes.get(id(value), (None, None))
        if shape is None:
            shape = tuple(self._size(int(size)) for size in value.shape)
            if sum(map(is_particles, shape)) > 1:
                raise CannotCompile("a step pairs its particles with one another")
            self._shapes[id(value)] = value, shape
        return shape

    def _size(self, size: int) -> Size:
        copies, rest = divmod(size, self.traced.particles)
        return size if rest or not copies else None if copies == 1 else Shared(copies)

    def laid_out(self, node: fx.Node, fills: bool) -> Shape:
        """The shape of a node's tensor, with the order that its arguments have in a dimension they share.

        ``fills`` says that the node repeats one number along that dimension, so that it needs no argument to tell.
        """
        shape = self.shape(node)
        wanted = next((size for size in shape if isinstance(size, Shared)), None)
        if wanted is None:
            return shape
        read = [value for source in node.all_input_nodes for value in self._parts(source)]
        found = {size for value in read for size in value.shape if isinstance(size, Shared)}
        orders = {size for size in found if size.entries == wanted.entries and size.before is not None}
        if len(orders) > 1:
            raise CannotCompile("a step mixes its particles: it meets them in two orders at once")
        if not orders and wanted not in found and not fills:
            raise CannotCompile(ANOTHER_DIMENSION)
        order = orders.pop() if orders else wanted
        return tuple(order if size == wanted else size for size in shape)

    def _parts(self, node: fx.Node) -> list[Value]:
        value = self.values.get(node, [])
        return value if isinstance(value, list) else [value]

    def value(self, argument: Any) -> Value:
        """An argument of an operation: a tensor made by the step, one made before the run, or a number."""
        if not isinstance(argument, fx.Node):
            if not isinstance(argument, (int, float)):
                raise CannotCompile(f"a step uses {type(argument).__name__} {argument!r} as a number")
            return self.constant(argument, ())
        if argument not in self.values:
            self.values[argument] = self._uniform(argument)
        value = self.values[argument]
        assert isinstance(value, Value)
        return value

    def stored(self, argument: Any) -> Value:
        """The same, in an array: for what is read more than once."""
        value = self.value(argument)
        return value if value.kind in (Kind.NUMBER, Kind.PLACE) else self.store(value)

    def constant(self, value: float, shape: Shape) -> Value:
        """A tensor of one number."""
        literal = self.literal(value)
        return Value(shape, Kind.NUMBER, lambda index: literal)

    def literal(self, value: float) -> str:
        """A number, by its place among the literals."""
        self.literals.append(float(value))
        return f"c[{len(self.literals) - 1}]"

    def places(self, argument: Any, size: int, from_the_end: bool = True) -> Value:
        """An argument that picks entries of a dimension of ``size``, as places from 0 on.

        They are read at every run, and their bounds checked then: see ``bounds``.
        """
        value = self.value(argument)
        if value.kind is not Kind.PLACE or value.table is None:
            raise CannotCompile("a step indexes by places that it computes itself")
        self.bounds.append((value.table, size, from_the_end))
        if not from_the_end:
            return value
        return replace(value, entry=lambda index: f"from_start({value.entry(index)}, {size})")

    def _uniform(self, node: fx.Node) -> Value:
        value, shape = node.meta["val"], self.shape(node)
        if isinstance(value, Tensor):
            if value.dtype in (torch.int64, torch.int32):
                return self._table(node, shape)
            # A tensor without dimensions takes the dtype of what it meets.
            converts = value.dtype == torch.bool or (value.dtype.is_floating_point and not shape)
            if value.dtype != self.dtype and not converts:
                raise CannotCompile(f"a step in {self.dtype} reads a tensor of {value.dtype}")
        self.uniforms.append(node)
        place = len(self.uniforms) - 1
        return Value(shape, Kind.NUMBER, lambda index: f"p[{place}][{offset(shape, index)}]")

    def _table(self, node: fx.Node, shape: Shape) -> Value:
        """Whole numbers: places in a tensor, as a rule."""
        self.tables.append(node)
        number = len(self.tables) - 1
        return self._array(f"q[{number}]", shape, Kind.PLACE, number)

    def input(self, name: str, shape: Shape) -> Value:
        """A tensor that a step is given: the state, or normals."""
        return Value(shape, Kind.VECTOR, lambda index: self.names.read(name, index[-1]))

    def is_uniform(self, argument: Any) -> bool:
        """Whether an argument is a tensor that torch computes before the run."""
        return isinstance(argument, fx.Node) and (argument not in self.values or argument in self.uniforms)

    def uniform(self, node: fx.Node) -> str:
        """Where such a tensor's numbers start."""
        self.value(node)
        return f"p[{self.uniforms.index(node)}]"

    def is_array(self, value: Value) -> bool:
        """Whether a value's entries are stored in order, one by one."""
        index = [f"i{d}" for d in range(len(value.shape))]
        text, reads = self.names.reads_of(lambda: value.entry(index))
        return [text] == [self.names.entry(entry) for entry in reads] and reads[0].place == offset(value.shape, index)

    # ------------------------------------------------------------------------------------------------- writing

    def store(self, value: Value) -> Value:
        """The value in an array of its own, unless it is one."""
        kind = Kind.MASK if value.kind is Kind.MASK else Kind.VECTOR
        text, reads = self.names.reads_of(lambda: value.entry([f"i{d}" for d in range(len(value.shape))]))
        if [text] == [self.names.entry(entry, kind is Kind.MASK) for entry in reads] or text == "t":
            return value
        return self.filled(value.shape, [(value, lambda index: index)], kind)

    def filled(
        self, shape: Shape, parts: Iterable[tuple[Value, Callable[[Index], Index]]], kind: Kind = Kind.VECTOR
    ) -> Value:
        """A new array: the entry at i of every part (value, to) is at ``to(i)``."""
        array = self._name()
        for part, to in parts:
            self._fill(array, shape, part, to, kind)
        return self._array(array, shape, kind)

    def array(self, shape: Shape, fill: Callable[[str], str], **more: Any) -> Value:
        """A new array, filled by the C that ``fill(its name)`` writes, once or again; ``more``: see Statement."""
        array = self._name()
        _, reads = self.names.reads_of(lambda: fill(array))
        self._add(Statement(array, count(shape), fill, reads, **more))
        return self._array(array, shape, Kind.VECTOR)

    def result(self, value: Value) -> None:
        """The state after the step."""
        self._fill(RESULT, value.shape, value, lambda index: index, Kind.VECTOR)

    def assemble(self) -> tuple[str, str, int]:
        """All statements as functions and C that calls them, and the vectors of storage that they need."""
        # Of one particle, vectors are made of its entries. C can't see that no entry reads another, as arrays share a
        # storage: here it is said.
        return assembled(self._statements, self.names, '_Pragma("omp simd") ' if self.one_by_one else "")

    def within(self) -> Writer:
        """A writer of the body of a loop, that knows what this one does and shares what it reads."""
        inner = copy.copy(self)
        inner._statements, inner.values, inner.is_within = [], dict(self.values), True
        return inner

    def body(self) -> Body:
        """What was written of the body of a loop."""
        return Body(self._statements, self.names)

    def looped(self, vectors: int, fill: Callable[[str], tuple[Callable[[], str], tuple[Entry, ...]]]) -> None:
        """A new array, filled by a loop: from the array's name to its C, and what that reads."""
        array = self._name()
        write, reads = fill(array)
        self._add(Statement(array, vectors, lambda name: write(), reads))

    def _name(self) -> str:
        return f"t{next(self._numbers)}"

    def _array(self, name: str, shape: Shape, kind: Kind, table: int | None = None) -> Value:
        def entry(index: Index) -> str:
            return self.names.read(name, offset(shape, index), kind is Kind.MASK)

        return Value(shape, kind, entry, table=table)

    def _add(self, statement: Statement) -> None:
        self._statements.append(replace(statement, operation=self.operation))

    def _fill(self, array: str, shape: Shape, part: Value, to: Callable[[Index], Index], kind: Kind) -> None:
        index, heads = loop_heads(part.shape)

        def write(name: str) -> str:
            return part.entry(index) if kind is Kind.MASK else vector((part.entry(index), part.kind))

        _, reads = self.names.reads_of(lambda: write(array))
        place = offset(shape, to(index))
        self._add(Statement(array, count(shape), write, reads, tuple(heads), place, kind is Kind.MASK))


def loops(shape: Shape, body: Callable[[Index], str], ranges: dict[int, tuple[int, int, int]] | None = None) -> str:
    """``body(index)`` for every index of a shape; ``ranges`` gives (start, stop, step) where it is not all of it."""
    index, heads = loop_heads(shape, ranges)
    return f"{''.join(heads)}{body(index)} "


def loop_heads(shape: Shape, ranges: dict[int, tuple[int, int, int]] | None = None) -> tuple[list[str], list[str]]:
    """The index that loops over a shape go through, and the loops' heads."""
    index, heads = [], []
    for d, size in enumerate(shape):
        start, stop, step = (ranges or {}).get(d, (0, entries(size), 1))
        if entries(size) == 1 and start == 0:
            index.append("0")
        else:
            index.append(f"i{d}")
            heads.append(f"for (int i{d} = {start}; i{d} < {stop}; i{d} += {step}) ")
    return index, heads


def is_particles(size: Size) -> bool:
    """Whether a dimension numbers the particles, alone or with others."""
    return not isinstance(size, int)


def entries(size: Size) -> int:
    """How many entries of a dimension are a particle's own."""
    return 1 if size is None else size.entries if isinstance(size, Shared) else size


def count(shape: Iterable[Size]) -> int:
    """Entries a particle."""
    return math.prod(map(entries, shape))


def strides(shape: Shape) -> list[int]:
    """Of an array that stores the shape in row-major order, without the particles."""
    return [count(shape[d + 1 :]) for d in range(len(shape))]


def offset(shape: Shape, index: Index) -> str:
    """The place of an entry in such an array."""
    terms = [
        at if stride == 1 else f"{at} * {stride}"
        for size, at, stride in zip(shape, index, strides(shape), strict=True)
        if size is not None and at != "0"
    ]
    return " + ".join(terms) or "0"
