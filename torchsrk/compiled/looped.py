"""Repeats of a graph as loops in C: a round is written once, and what other nodes read of it is kept for all rounds.

Where a loop over a series makes a step of tens of thousands of operations, C without one would take minutes to
compile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from .calls import operation_name
from .moves import overwrite, own
from .operations import Kind, vector
from .repeats import Repeat, find_repeats, leaves, with_leaves
from .rounds import Advancing, Fixed, Moving, Numbers, Rounds, columns_of
from .statements import Body, Entry, Names
from .trace import CannotCompile
from .writer import Index, Shape, Shared, Value, Writer, count, loops, offset

_FEWEST_ROUNDS = 8
_MOST_PEELED = 4  # rounds before the loop whose values are kept beside its own
_MOST_SCRATCH = 1 << 14  # vectors of temporaries in a round: they are on the stack
_ADVANCES = {
    *("select.int", "select_copy.int", "slice.Tensor", "slice_copy.Tensor", "select_scatter.default"),
    "slice_scatter.default",
}
_PICKS = ("select.int", "select_copy.int")
_UNBINDS = ("unbind.int", "unbind_copy.int")

Lower = Callable[[Writer, fx.Node], Value | list[Value]]


@dataclass(frozen=True)
class _Kept:
    """Where the values of a node are kept: ``start`` in the loop's array, and how many rounds of them.

    Attributes:
        slots: with those of the rounds before the loop; or fewer, of which a round takes that of an earlier one.
    """

    start: int
    shape: Shape
    slots: int
    is_mask: bool

    def value(self, names: Names, array: str, slot: str, in_turns: bool) -> Value:
        at, size = f"(({slot}) % {self.slots})" if in_turns else f"({slot})", count(self.shape)

        def entry(index: Index) -> str:
            text = names.read(array, f"{self.start} + {at} * {size} + {offset(self.shape, index)}")
            return f"({text} != 0)" if self.is_mask else text

        return Value(self.shape, Kind.MASK if self.is_mask else Kind.VECTOR, entry)


class Loop:
    """A repeat that is written as a loop."""

    def __init__(self, program: LoopedProgram, rounds: Rounds) -> None:
        self.program, self.rounds, self.repeat = program, rounds, rounds.repeat
        self.peeled = min(rounds.peeled, _MOST_PEELED)
        self.kept: dict[int, _Kept] = {}
        self.array = ""

    # --------------------------------------------------------------------------------------------- what is read

    def locate(self, place: int) -> tuple[int, int] | None:
        """The number of a node in its round and its slot, that of the first kept round being 0."""
        round_, number = divmod(place - self.repeat.first, self.repeat.period)
        slot = round_ + self.peeled
        return (number, slot) if 0 <= slot < self.repeat.rounds + self.peeled else None

    def read(self, number: int, slot: str) -> Value:
        kept = self.kept[number]
        return kept.value(self.program.names, self.array, slot, kept.slots < self.repeat.rounds + self.peeled)

    def _own(self, argument: Moving) -> tuple[int, int] | None:
        """Of what moves on with the rounds: its number in its round, and how many rounds before it was made."""
        lag, number = divmod(argument.place - self.repeat.first, self.repeat.period)
        is_own = argument.by == self.repeat.period and 0 <= -lag <= self.peeled
        return (number, -lag) if is_own else None

    def limits(self) -> tuple[int, int] | None:
        """The rounds, counted from this loop's first, for which all that is read can be; None if there are none."""
        first, last = 0, self.repeat.rounds
        for argument in self._moving():
            if self._own(argument) is not None or self.program.family(argument, self.repeat.rounds) is not None:
                continue
            lag = -((argument.place - self.repeat.first) // self.repeat.period)
            if argument.by == self.repeat.period and 0 < lag <= _MOST_PEELED:
                first = max(first, lag - self.peeled)  # what the first rounds read is none of the loop's own
                continue
            loop = self.program.loop_at(argument.place + argument.by * (self.repeat.rounds // 2))
            if loop is None or argument.by % loop.repeat.period:
                return None
            fits = [loop.locate(argument.place + argument.by * r) is not None for r in range(self.repeat.rounds)]
            first = max(first, next(r for r, fit in enumerate(fits) if fit))
            last = min(last, 1 + next(r for r, fit in reversed(list(enumerate(fits))) if fit))
        return (first, last) if last - first >= _FEWEST_ROUNDS else None

    def _moving(self) -> list[Moving]:
        return [
            argument
            for number, arguments in enumerate(self.rounds.arguments)
            if self.node(number) in self.program.made_here
            for argument in arguments
            if isinstance(argument, Moving)
        ]

    def is_writable(self) -> bool:
        """Whether there is C for all that differs between rounds."""
        for number, arguments in enumerate(self.rounds.arguments):
            node = self.node(number)
            if node not in self.program.made_here:
                continue
            name = operation_name(node)
            for argument in arguments:
                if isinstance(argument, Advancing) and name not in _ADVANCES and not self._picks_part(node):
                    return False
                if isinstance(argument, Fixed) and self._is_inside(argument.value):
                    return False
                if isinstance(argument, Moving):
                    own_ = self._own(argument)
                    if own_ and own_[1] and not isinstance(self.node(own_[0]).meta["val"], Tensor):
                        return False
        return True

    def _is_inside(self, value: Any) -> bool:
        place = self.program.places.get(value, -1) if isinstance(value, fx.Node) else -1
        return self.repeat.first <= place < self.repeat.end

    def _picks_part(self, node: fx.Node) -> bool:
        source = node.args[0] if node.args else None
        return operation_name(node) is None and isinstance(source, fx.Node) and operation_name(source) in _UNBINDS

    def node(self, number: int, round_: int = 0) -> fx.Node:
        return self.program.nodes[self.repeat.place(number, round_)]

    # ------------------------------------------------------------------------------------------------- writing

    def lower(self, writer: Writer, lower_node: Lower) -> None:
        """Write the loop; the nodes that others read have values then."""
        total = self._plan(writer)
        self._store_what_is_fixed(writer)

        def write_starts() -> str:
            return "".join(
                loops(
                    kept.shape,
                    self._stored(self.read(number, str(slot)), writer.value(self.node(number, slot - self.peeled))),
                )
                for number, kept in self.kept.items()
                for slot in range(self.peeled)
            )

        def fill(name: str) -> tuple[Callable[[], str], tuple[Entry, ...]]:
            self.array = name
            _, read_first = writer.names.reads_of(write_starts)
            body = self._body(writer, lower_node)
            if body.size > _MOST_SCRATCH:
                raise CannotCompile(
                    f"a round of a step's loop keeps {body.size} numbers a particle, more than {_MOST_SCRATCH}"
                )
            storage = f"V scratch[{max(1, body.size)}]; V *const work = scratch; (void)work;"
            head = f"for (int it = 0; it < {self.repeat.rounds}; it++) {{ {storage}\n"
            return lambda: f"{{ {write_starts()} {head}{body} }} }}", (*read_first, *body.reads)

        writer.looped(total, fill)
        for number in self.kept:
            for round_ in range(self.repeat.rounds):
                writer.values[self.node(number, round_)] = self.read(number, str(round_ + self.peeled))

    def _stored(self, to: Value, value: Value) -> Callable[[Index], str]:
        def body(index: Index) -> str:
            target = to.entry(index)
            target = target[1 : target.rindex(" != 0")] if to.kind is Kind.MASK else target
            return f"{target} = {vector(value.operand(index))};"

        return body

    def _plan(self, writer: Writer) -> int:
        """Which nodes are kept, and where; the size of it all."""
        total, all_slots = 0, self.repeat.rounds + self.peeled
        for number in range(self.repeat.period):
            node = self.node(number)
            if node not in self.program.made_here:
                continue
            lag = max((own_[1] for own_ in map(self._own, self._moving()) if own_ and own_[0] == number), default=0)
            readers = self._rounds_read_later(number)
            early = self._is_read_early(number)
            if not lag and not readers and not early:
                continue
            if not isinstance(node.meta["val"], Tensor):
                raise CannotCompile("a step's loop reads several results of an operation in another round")
            in_turns = not early and all(r == self.repeat.rounds - 1 for r in readers)
            slots = min(all_slots, lag + 1) if in_turns else all_slots
            shape = _own_shape(writer, node)
            self.kept[number] = _Kept(total, shape, slots, node.meta["val"].dtype == torch.bool)
            total += slots * count(shape)
        return max(1, total)

    def _is_read_early(self, number: int) -> bool:
        """Whether a value of the rounds before the loop is read after it: by another loop, through this one's array."""
        users = (user for p in range(1, self.peeled + 1) for user in self.node(number, -p).users)
        return any(self.program.places.get(user, -1) >= self.repeat.end for user in users)

    def _rounds_read_later(self, number: int) -> list[int]:
        """The rounds whose value of a node is read after the loop."""
        first, end, period = self.repeat.place(number, 0), self.repeat.end, self.repeat.period
        return [r for r, last in enumerate(self.program.last_read[first:end:period]) if last >= end]

    def _store_what_is_fixed(self, writer: Writer) -> None:
        for number, arguments in enumerate(self.rounds.arguments):
            for argument in arguments if self.node(number) in self.program.made_here else ():
                if isinstance(argument, Fixed) and argument.value in self.program.made_here:
                    value = writer.values[argument.value]
                    writer.values[argument.value] = value if isinstance(value, list) else writer.stored(argument.value)

    def _body(self, writer: Writer, lower_node: Lower) -> Body:
        inner = writer.within()
        graph, made = fx.Graph(), dict[int, fx.Node]()
        for number in range(self.repeat.period):
            node = self.node(number)
            if node not in self.program.made_here:
                continue
            given = [
                self._argument(inner, graph, made, leaf, argument)
                for leaf, argument in zip(leaves(node), self.rounds.arguments[number], strict=True)
            ]
            args, kwargs = with_leaves(node, given)
            made[number] = graph.create_node(node.op, node.target, args, kwargs)
            made[number].meta = dict(node.meta)
        for number, node in made.items():
            inner.values[node] = self._lowered(inner, node, number, lower_node)
        writer.longest_sum = max(writer.longest_sum, inner.longest_sum, self.repeat.rounds)  # what a series adds up
        return inner.body()

    def _argument(self, inner: Writer, graph: fx.Graph, made: dict[int, fx.Node], leaf: Any, argument: Any) -> Any:
        """What stands for an argument in the graph of a round."""
        if isinstance(argument, (Fixed, Advancing)):
            return leaf
        if isinstance(argument, Numbers):
            first = len(inner.literals)
            for value in argument.values:
                inner.literal(value)
            return self._role(inner, graph, Value((), Kind.NUMBER, lambda index: f"c[{first} + it]"), None)
        own_ = self._own(argument)
        if own_ is not None and own_[1] == 0 and own_[0] in made:
            return made[own_[0]]
        if own_ is not None and self.node(own_[0]) in self.program.made_here:
            number, lag = own_
            return self._role(inner, graph, self.read(number, f"it + {self.peeled - lag}"), self.node(number))
        family = self.program.family(argument, self.repeat.rounds)
        if family is not None:
            return self._role(inner, graph, family(inner), self.program.nodes[argument.place])
        loop = self.program.loop_at(argument.place)
        assert loop is not None
        located = loop.locate(argument.place)
        assert located is not None
        number, slot = located
        by = argument.by // loop.repeat.period
        return self._role(inner, graph, loop.read(number, f"{slot} + {by} * it"), self.program.nodes[argument.place])

    def _role(self, inner: Writer, graph: fx.Graph, value: Value, like: fx.Node | None) -> fx.Node:
        node = graph.placeholder(f"role_{len(graph.nodes)}")
        node.meta["val"] = like.meta["val"] if like is not None else 0.0
        inner.values[node] = value
        return node

    def _lowered(self, inner: Writer, node: fx.Node, number: int, lower_node: Lower) -> Value | list[Value]:
        advancing = [a for a in self.rounds.arguments[number] if isinstance(a, Advancing)]
        value = self._advanced(inner, node, number) if advancing else lower_node(inner, node)
        if number not in self.kept:
            return value
        assert isinstance(value, Value)
        if value.kind is Kind.PLACE:
            raise CannotCompile("a step's loop computes places")
        to = self.read(number, f"it + {self.peeled}")
        inner.array((), lambda name: loops(to.shape, self._stored(to, value)))
        return to

    def _advanced(self, inner: Writer, node: fx.Node, number: int) -> Value:
        """An operation whose place moves on with the rounds."""
        rules = zip(leaves(node), self.rounds.arguments[number], strict=True)
        texts = [_place(rule) if isinstance(rule, Advancing) else leaf for leaf, rule in rules]
        args, kwargs = with_leaves(node, texts)
        shape, name = _own_shape(inner, node), operation_name(node)
        if kwargs:
            raise CannotCompile(f"a step's loop uses {node.target} with {kwargs}")
        if name is None or name in _PICKS:
            source, dim, at = (args[0], args[1], args[2]) if name else (args[0].args[0], _dim_of(args[0]), args[1])
            return _picked(inner.value(source), dim, at, shape)
        if name == "select_scatter.default":
            whole, part, dim, at = (*map(inner.value, args[:2]), args[2] % len(shape), args[3])
            own(shape[dim])
            return overwrite(inner, whole, part, shape, lambda i: [*i[:dim], at, *i[dim:]])
        return self._advanced_slice(inner, name, args, shape)

    def _advanced_slice(self, inner: Writer, name: str, args: Any, shape: Shape) -> Value:
        is_scatter = name.startswith("slice_scatter")
        rest = args[2:] if is_scatter else args[1:]
        dim, start, _, step = (*rest, 1) if len(rest) == 3 else rest
        dim %= len(shape)

        def moved(index: Index) -> list[str]:
            return [f"({start} + {step} * {a})" if d == dim else a for d, a in enumerate(index)]

        if not isinstance(start, str):
            raise CannotCompile("a step's loop takes slices of other lengths in every round")
        own(shape[dim])
        if is_scatter:
            return overwrite(inner, inner.value(args[0]), inner.value(args[1]), shape, moved)
        return inner.value(args[0]).moved(shape, moved)


def _own_shape(writer: Writer, node: fx.Node) -> Shape:
    shape = writer.shape(node)
    if any(isinstance(size, Shared) for size in shape):
        raise CannotCompile("a step's loop reshapes its particles into another dimension")
    return shape


def _place(rule: Any) -> str:
    return f"({rule.start} + {rule.by} * it)"


def _dim_of(unbind: fx.Node) -> int:
    return unbind.args[1] if len(unbind.args) > 1 else unbind.kwargs.get("dim", 0)  # type: ignore[return-value]


def _picked(source: Value, dim: int, at: str, shape: Shape) -> Value:
    dim %= len(source.shape)
    own(source.shape[dim])
    return source.moved(shape, lambda index: [*index[:dim], at, *index[dim:]])


class LoopedProgram:
    """The nodes of a graph, with the loops among them."""

    def __init__(self, nodes: Sequence[fx.Node], made_here: set[fx.Node], names: Names) -> None:
        self.nodes, self.made_here, self.names = list(nodes), made_here, names
        self.places = {node: place for place, node in enumerate(self.nodes)}
        self.loops: dict[int, Loop] = {}
        self._given = [leaves(node) for node in self.nodes]
        self.last_read = self._last_read()
        for found in find_repeats(self.nodes, self._given):
            loop = self._loop(found)
            if loop is not None:
                self.loops[loop.repeat.first] = loop

    def _last_read(self) -> list[int]:
        """The place of the last node that reads each, or -1."""
        last = [-1] * len(self.nodes)
        for place, given in enumerate(self._given):
            for leaf in given:
                if isinstance(leaf, fx.Node):
                    last[self.places[leaf]] = place
        return last

    def _loop(self, found: Repeat) -> Loop | None:
        first, last = 0, found.rounds
        if not any(node in self.made_here for node in self.nodes[found.first : found.first + found.period]):
            return None
        columns = columns_of(found, self._given, self.places)
        for _ in range(3):
            rounds = Rounds(found, columns, self.places, first, last)
            if rounds.repeat.rounds < _FEWEST_ROUNDS:
                return None
            loop = Loop(self, rounds)
            limits = loop.limits() if loop.is_writable() else None
            if limits is None:
                return None
            if limits == (0, rounds.repeat.rounds):
                return loop
            first, last = rounds.peeled + limits[0], rounds.peeled + limits[1]
        return None

    def loop_at(self, place: int) -> Loop | None:
        """The loop that has a node, or that keeps it from the rounds before."""
        return next((loop for loop in self.loops.values() if loop.locate(place) is not None), None)

    def family(self, argument: Moving, rounds: int) -> Callable[[Writer], Value] | None:
        """How to read nodes outside of all loops, one a round: if they pick from one tensor, or are known before."""
        members = [self.nodes[argument.place + argument.by * r] for r in range(rounds)]
        if not any(member in self.made_here for member in members):
            return lambda writer: _stacked(writer, members)
        picks = [_pick(member) for member in members]
        first, second = picks[0], picks[1]
        if first is None or second is None:
            return None
        source, dim, start = first
        by = second[2] - start
        if any(loop.repeat.first <= self.places[source] < loop.repeat.end for loop in self.loops.values()):
            return None
        if any(pick != (source, dim, start + by * r) for r, pick in enumerate(picks)) or source not in self.made_here:
            return None
        shape = members[0]
        return lambda writer: _picked(writer.value(source), dim, f"({start} + {by} * it)", writer.shape(shape))


def _pick(node: fx.Node) -> tuple[fx.Node, int, int] | None:
    """(tensor, dimension, place) of a node that picks from a tensor by a place from 0 on."""
    name = operation_name(node)
    if name in _PICKS and not node.kwargs and node.args[2] >= 0:  # type: ignore[operator]
        return node.args  # type: ignore[return-value]
    source = node.args[0] if name is None and len(node.args) == 2 else None
    if isinstance(source, fx.Node) and operation_name(source) in _UNBINDS:
        return source.args[0], _dim_of(source), node.args[1]  # type: ignore[return-value]
    return None


def _stacked(writer: Writer, members: Sequence[fx.Node]) -> Value:
    """Tensors that torch computes before the run, one a round, handed over as one."""
    like = members[0].meta["val"]
    if not isinstance(like, Tensor) or like.dtype in (torch.int64, torch.int32):
        raise CannotCompile("a step's loop reads other places in every round")
    with members[-1].graph.inserting_after(members[-1]):
        node = members[-1].graph.call_function(torch.ops.aten.stack.default, (list(members),))
    node.meta["val"] = torch.empty((len(members), *like.shape), dtype=like.dtype, device="meta")
    value = writer.value(node)
    return value.moved(value.shape[1:], lambda index: ["it", *index])
