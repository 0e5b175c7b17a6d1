"""From the graph of a step to operations on single numbers.

A tensor is held as the numbers of its entries, in an int64 tensor of its shape. So torch itself runs whatever moves
entries and computes nothing, on those, and what is written down here are the operations that compute. The step is
traced with a few particles, each with numbers of its own: one that read another's, or did something else, would show.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from .calls import Call, operation_name
from .evaluation import evaluate
from .likeness import merge_alike
from .lowering import CONSTANTS, cut_shapes, is_small_integer
from .matrices import CHECKS
from .moves import MOVES
from .operations import POINTWISE, Entrywise, Kind, Operand, mask, vector
from .scalars import Scalars
from .trace import CannotCompile, TracedStep
from .unrolled_rules import COUNTS, OWN_POINTWISE, PUTS, RULES, added, power
from .wholes import may_compute

# Moves whose places are tensors: they are part of the program, which is made anew when they change.
_BY_PLACES = {"index.Tensor": 1, "gather.default": 2, "index_select.default": 2}


class Unrolled:
    """A step of one particle, and what it reads.

    Attributes:
        scalars, results: all numbers, and those of the state after the step.
        literals: the numbers in the graph, read at run time.
        uniforms: nodes that torch computes before a run.
        checks: nodes that torch computes for the error they may raise.
        places: tensors whose values the program is made of.
        longest_sum: the most terms that any sum adds up.
    """

    def __init__(self, traced: TracedStep, inputs: Sequence[str]) -> None:
        self.traced, self.scalars = traced, Scalars(traced.particles)
        self.literals: list[float] = []
        self.uniforms: list[fx.Node] = []
        self.checks: list[fx.Node] = []
        self.places: list[Tensor] = []
        self.longest_sum = 1
        self.results: list[int] = []
        self._values: dict[fx.Node, Any] = {}
        graph = traced.module.graph
        cut_shapes(graph)
        merge_alike(graph)
        placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        self.dtype: torch.dtype = placeholders[0].meta["val"].dtype
        self._begin(placeholders[: traced.inputs], inputs)
        self._made_here = set(self._values)
        for node in graph.nodes:
            if node.op == "output":
                self._end(node)
            elif node.op == "call_function":
                self._run(node)

    def _begin(self, nodes: Sequence[fx.Node], names: Sequence[str]) -> None:
        *tensors, time = nodes
        for node, name in zip(tensors, names, strict=True):
            rows, width = node.meta["val"].shape
            entries = [
                [self.scalars.leaf(f"{name}{i}_of{row}", Kind.VECTOR, row, f"{name}{i}") for i in range(width)]
                for row in range(rows)
            ]
            self._values[node] = torch.tensor(entries, dtype=torch.int64).reshape(rows, width)
        self._values[time] = torch.tensor(self.scalars.leaf("t", Kind.VECTOR))

    def _end(self, node: fx.Node) -> None:
        result = node.args[0]
        (result,) = result if isinstance(result, (tuple, list)) else (result,)
        rows = self.value(result).tolist()
        self.results = rows[0]
        for row, numbers in enumerate(rows):
            found = [self.scalars[number] for number in numbers]
            if any(scalar.particles - {row} for scalar in found):
                raise CannotCompile("a step mixes its particles")
            if [scalar.form for scalar in found] != [self.scalars[number].form for number in self.results]:
                raise CannotCompile("a step is not the same for all particles")

    # ------------------------------------------------------------------------------------------------- reading

    def value(self, argument: Any) -> Tensor:
        """The numbers of an argument's entries."""
        if not isinstance(argument, fx.Node):
            if not isinstance(argument, (int, float)):
                raise CannotCompile(f"a step uses {type(argument).__name__} {argument!r} as a number")
            return torch.tensor(self.literal(argument))
        if argument not in self._values:
            self._values[argument] = self._before_the_run(argument)
        return self._values[argument]

    def literal(self, value: float) -> int:
        self.literals.append(float(value))
        return self.scalars.leaf(f"c{len(self.literals) - 1}", Kind.NUMBER)

    def _before_the_run(self, node: fx.Node) -> Any:
        """A tensor that does not depend on the state: torch computes it, but what it moves after that is moved here. So
        what is spread over the particles is the same for all of them."""
        source = node.args[0] if node.target is operator.getitem else None
        if isinstance(source, fx.Node) and operation_name(source) in MOVES:
            return self.value(source)[node.args[1]]  # type: ignore[index]
        value, name = node.meta.get("val"), operation_name(node) or ""
        first = value[0] if isinstance(value, (tuple, list)) else value
        if name in MOVES and isinstance(first, Tensor) and first.dtype == self.dtype:
            return self._moved(node, name)
        return self._uniform(node)

    def _uniform(self, node: fx.Node) -> Tensor:
        value = node.meta["val"]
        shape = tuple(value.shape) if isinstance(value, Tensor) else ()
        if isinstance(value, Tensor):
            converts = value.dtype == torch.bool or (value.dtype.is_floating_point and not shape)
            if value.dtype != self.dtype and not converts:
                raise CannotCompile(f"a step in {self.dtype} reads a tensor of {value.dtype}")
        self.uniforms.append(node)
        name, size = f"p{len(self.uniforms) - 1}", math.prod(shape)
        numbers = [self.scalars.leaf(f"{name}_{place}", Kind.NUMBER) for place in range(size)]
        return torch.tensor(numbers, dtype=torch.int64).reshape(shape)

    def _known(self, node: fx.Node) -> Tensor:
        """The values of a tensor of places, as they are: whatever they are made of becomes part of the program."""
        if node in self._made_here:
            raise CannotCompile("a step indexes by places that it computes itself")
        placeholders = [node for node in self.traced.module.graph.nodes if node.op == "placeholder"]
        given = dict(zip(placeholders[self.traced.inputs :], self.traced.constants, strict=True))
        waiting = [node]
        while waiting:
            source = waiting.pop()
            waiting += source.all_input_nodes
            if source in given:
                self.places.append(given[source])
        (value,) = evaluate(self.traced, (node,), self.traced.constants)
        return value.cpu()

    # ------------------------------------------------------------------------------------------------- computing

    def _run(self, node: fx.Node) -> None:
        if node.target is operator.getitem:
            if node.args[0] in self._made_here:
                self._values[node] = self._values[node.args[0]][node.args[1]]  # type: ignore[index]
                self._made_here.add(node)
            return
        name = operation_name(node) or ""
        depends = any(source in self._made_here for source in node.all_input_nodes)
        if name in CHECKS:
            self.checks += [] if depends else [node]
            return
        if name in CONSTANTS:
            self._values[node] = self._constant(node)
        elif depends or self._has_particles(node):
            self._values[node] = self._computed(node, name)
        else:
            return  # torch computes it before the run, if it is read
        self._made_here.add(node)

    def _has_particles(self, node: fx.Node) -> bool:
        """Whether a tensor that depends on no particle is spread over all of them."""
        value = node.meta.get("val")
        return isinstance(value, Tensor) and self.traced.particles in value.shape and value.dtype == self.dtype

    def _constant(self, node: fx.Node) -> Tensor:
        fill, value = node.meta["fill"], node.meta["val"]
        if isinstance(fill, fx.Node):
            return self.value(fill).expand(value.shape)
        exact = torch.tensor(fill, dtype=torch.float64 if isinstance(fill, float) else None).to(value.dtype).item()
        return torch.full(tuple(value.shape), self.literal(float(exact)))

    def _computed(self, node: fx.Node, name: str) -> Any:
        self._check_dtype(node, name)
        if name in _BY_PLACES or name in MOVES:
            return self._moved(node, name)
        call = Call(node)
        if name == "pow.Tensor_Scalar" and is_small_integer(call["exponent"]):
            exponent = int(call["exponent"])
            value = self.entrywise(lambda x: power(x, exponent), self.value(call["self"]))
        elif name in OWN_POINTWISE or name in POINTWISE:
            value = self._pointwise(call, OWN_POINTWISE.get(name) or POINTWISE[name])
        elif name == "_to_copy.default":
            value = self._converted(call)
        elif name in RULES:
            value = RULES[name](self, call)
        elif name in PUTS:
            value = self._put(call, *PUTS[name])
        else:
            raise CannotCompile(f"a step uses {node.target}, which has no Triton form here")
        if call.unread():
            raise CannotCompile(f"a step uses {node.target} with {', '.join(call.unread())}, which has no Triton form")
        return value

    def _check_dtype(self, node: fx.Node, name: str) -> None:
        found = node.meta.get("val")
        for value in found if isinstance(found, (tuple, list)) else (found,):
            dtype = value.dtype if isinstance(value, Tensor) else self.dtype
            moves = name in MOVES or name in COUNTS or name.startswith("where.") or name in PUTS or name in _BY_PLACES
            whole = dtype == torch.int64 and (moves or may_compute(node, self.dtype))
            if dtype not in (self.dtype, torch.bool) and not whole:
                raise CannotCompile(f"a step in {self.dtype} computes {node.target} in {dtype}")

    def _moved(self, node: fx.Node, name: str) -> Any:
        """torch's own way to move the entries, with their numbers for values."""

        def numbers(source: fx.Node) -> Tensor:
            return self.value(source)

        args = [
            fx.map_arg(argument, self._known if place == _BY_PLACES.get(name) else numbers)
            for place, argument in enumerate(node.args)
        ]
        kwargs = {key: fx.map_arg(value, numbers) for key, value in node.kwargs.items() if key != "value"}
        if name == "constant_pad_nd.default":
            args[2:] = [self.literal(float(Call(node)["value"]))]
        return node.target(*args, **kwargs)  # type: ignore[operator]

    def _put(self, call: Call, where: Callable[..., Tensor], argument: str, adds: bool) -> Tensor:
        """A tensor with entries of another written over some of its own, or added to them."""
        whole = self.value(call["self"])
        index = fx.map_arg(call["indices" if argument == "values" else "index"], self._known)
        places = torch.arange(whole.numel()).reshape(whole.shape)
        found = where(places, call.get("dim"), index)
        adds = adds or bool(call.get("accumulate"))
        if adds and call.get("alpha") not in (None, 1):
            raise CannotCompile(f"a step uses {call.node.target} with a factor, which has no Triton form here")
        given = self.value(call[argument])
        part = given.expand(found.shape) if given.ndim < found.ndim or argument == "values" else given
        part = part[tuple(slice(size) for size in found.shape)]
        numbers = whole.reshape(-1).tolist()
        for place, number in zip(found.reshape(-1).tolist(), part.reshape(-1).tolist(), strict=True):
            numbers[place] = self.scalar(added, numbers[place], number) if adds else number
        return torch.tensor(numbers, dtype=torch.int64).reshape(whole.shape)

    def _pointwise(self, call: Call, rule: Entrywise) -> Tensor:
        given = [call.get(argument) for argument in rule.arguments]
        if rule.arguments[-1] == "alpha" and given[-1] == 1:
            given.pop()
        words = {word: call[word] for word in rule.words}
        there = [place for place, argument in enumerate(given) if argument is not None]

        def build(*operands: Operand) -> Operand:
            every: list[Operand | None] = [None] * len(given)
            for place, operand in zip(there, operands, strict=True):
                every[place] = operand
            return rule.build(*every, **words)

        return self.entrywise(build, *(self.value(given[place]) for place in there))

    def entrywise(self, build: Callable[..., Operand], *tensors: Tensor) -> Tensor:
        """An operation of the entries that broadcasting puts together."""
        spread = torch.broadcast_tensors(*tensors)
        rows = zip(*(tensor.reshape(-1).tolist() for tensor in spread), strict=True)
        return torch.tensor([self.scalar(build, *row) for row in rows], dtype=torch.int64).reshape(spread[0].shape)

    def scalar(self, build: Callable[..., Operand], *numbers: int) -> int:
        """The same of single numbers."""
        operands = [self.scalars.named(number, place) for place, number in enumerate(numbers)]
        return self.scalars.made(build(*operands), numbers)

    def tree(self, build: Callable[..., Operand], numbers: Sequence[int]) -> int:
        """All numbers taken together by pairs, and pairs of pairs: few rounding errors, and short waits."""
        self.longest_sum = max(self.longest_sum, len(numbers))
        while len(numbers) > 1:
            pairs = [self.scalar(build, a, b) for a, b in zip(numbers[::2], numbers[1::2], strict=False)]
            numbers = [*pairs, *numbers[2 * len(pairs) :]]
        return numbers[0]

    def _converted(self, call: Call) -> Tensor:
        source, dtype = self.value(call["self"]), call.node.meta["val"].dtype
        if dtype == self.dtype:
            return self.entrywise(lambda x: (vector(x), Kind.VECTOR), source)
        if dtype == torch.bool:
            return self.entrywise(lambda x: (mask(x), Kind.MASK), source)
        raise CannotCompile(f"a step in {self.dtype} converts to {dtype}")
