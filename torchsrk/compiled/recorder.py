"""The graph of a function of tensors, by running it: the quick way.

torch's own tracer imports its compiler, and takes about a millisecond an operation, on tensors without data. Here
tensors have data, of a few hundred particles, and every operation is noted as it runs. What the function would do
otherwise at other values is not seen by running it, so a function that looks at the value of what it computes from its
inputs is refused. It may look at what it computes from constants alone: these are then a part of the graph.
"""

from __future__ import annotations

import itertools
import operator
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .calls import by_identity
from .decomposed import SIMPLER

_BY_VALUE = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_MASKS = (torch.bool, torch.uint8)
_MARK = "_torchsrk_recorded"  # an attribute of tensors, which holds the recorder and the node that made them
# What gives the tensor that it is given, if that has the form asked for.
_VIEWS = {
    *(torch.ops.aten.alias.default, torch.ops.aten.detach.default),
    *(torch.ops.aten.expand.default, torch.ops.aten.view.default),
}
_OF = "made of"  # what a node tells: the places of the constants it is made of, or None if it is of other things too


Read = Callable[[Tensor], bool]


class ReadsValues(Exception):
    """What a function does depends on the value of a tensor it has computed."""


class WritesElsewhere(Exception):
    """A function writes to a tensor that it has not made."""


def record(
    function: Callable[..., Any],
    inputs: Sequence[Tensor],
    decompositions: dict[Any, Callable[..., Any]],
    read: Read,
    constant: int = 0,
) -> tuple[fx.Graph, list[Tensor]]:
    """The graph of ``function(*inputs)``, and the tensors it reads beside: they are the graph's last inputs.

    Args:
        read: told of tensors whose values the function looks at; False if it may not.
        constant: so many of the inputs, the last ones, have values that the function may look at.

    Raises:
        ReadsValues: the function looks at values of others.
        WritesElsewhere: it is about to write to what it has not made.
    """
    recorder = _Recorder(decompositions, read)
    variable = len(inputs) - constant
    given = [recorder.input(tensor, place >= variable) for place, tensor in enumerate(inputs)]
    with recorder:
        result = function(*given)
    recorder.graph.output(tuple(map(recorder.node, result)) if isinstance(result, tuple) else recorder.node(result))
    recorder.end()
    return recorder.graph, recorder.constants


def is_recorded(value: Tensor) -> bool:
    """Whether a recorder made the tensor."""
    return hasattr(value, _MARK)


@by_identity
def looks_at_values(function: Any) -> bool:
    """Whether an operation gives numbers, or a form, that depend on values; an index does by its masks alone."""
    return not _BY_VALUE.isdisjoint(function.tags)


def constants_of(value: Tensor) -> list[Tensor] | None:
    """The constants that a recorded tensor is made of; None if it is made of anything else."""
    recorder, node = getattr(value, _MARK)
    places = node.meta[_OF]
    return None if places is None else [recorder.constants[place] for place in sorted(places)]


class _Facts(NamedTuple):
    """What there is to know of an operation. To ask torch every time would take longer than to run it."""

    simpler: Callable[..., tuple[Any, tuple[Any, ...]]] | None  # see SIMPLER
    decomposition: Callable[..., Any] | None
    looks_at_values: bool
    is_settled: bool  # its results are of its arguments alone
    is_view: bool  # it may give what it is given, in the same form
    written: tuple[tuple[int, str], ...]  # the places and names of arguments that it writes to


_set_args, _set_kwargs = fx.Node.args.fset, fx.Node.kwargs.fset  # type: ignore[attr-defined]


def add_node(graph: fx.Graph, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> fx.Node:
    """A new one, of a name that no other has. This is what ``graph.create_node`` does without looking for another name,
    for symbols in the arguments and for hooks: each takes longer than all the rest."""
    node = fx.Node(graph, name, "call_function", target, (), {})
    graph._insert(node)
    graph._find_nodes_lookup_table.insert(node)
    graph._len += 1
    _set_args(node, args)
    if kwargs:
        _set_kwargs(node, kwargs)
    return node


class _Recorder(TorchDispatchMode):
    def __init__(self, decompositions: dict[Any, Callable[..., Any]], read: Read) -> None:
        super().__init__()
        self._read = read
        self.graph = fx.Graph()
        self.constants: list[Tensor] = []
        self._decompositions = decompositions
        self._constant_nodes: dict[int, fx.Node] = {}
        self._last_input: fx.Node | None = None
        self._numbers = itertools.count()
        self._made_on: dict[int, list[weakref.ref[Tensor]]] = {}  # a storage: more than one are views of one another
        self._facts_of = by_identity(self._looked_up)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # it would be imported for nothing, and asked at every operation

    def input(self, tensor: Tensor, is_constant: bool = False) -> Tensor:
        """A copy that stands for an input of the graph."""
        copy = tensor.clone()
        self._last_input = self._made(self.graph.placeholder(f"input_{next(self._numbers)}"), copy)
        self._last_input.meta[_OF] = frozenset() if is_constant else None
        return copy

    def end(self) -> None:
        """Let go of what was noted of every tensor: nothing more is recorded, and Python would look through it all."""
        self._made_on.clear()

    def node(self, tensor: Tensor) -> fx.Node:
        """What made a tensor; one that nothing here has made is a constant."""
        recorder, node = getattr(tensor, _MARK, (None, None))
        if recorder is self:
            return node  # type: ignore[return-value]
        if id(tensor) not in self._constant_nodes:
            if self._is_in_memory_of_another(tensor):  # by ``data``, say, which no mode sees
                raise ReadsValues
            assert self._last_input is not None
            with self.graph.inserting_after(self._last_input):
                self._last_input = self.graph.placeholder(f"constant_{len(self.constants)}")
            self._last_input.meta["val"] = _form(tensor)
            self._last_input.meta[_OF] = frozenset((len(self.constants),))
            self._constant_nodes[id(tensor)] = self._last_input
            self.constants.append(tensor)  # and kept, so that no other one gets its id
        return self._constant_nodes[id(tensor)]

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        facts = self._facts_of(function)
        if facts.simpler is not None:
            function, args = facts.simpler(*args, **kwargs)
            facts, kwargs = self._facts_of(function), {}
        if facts.is_view:
            made = function(*args, **kwargs)
            if self._is_as_given(made, args[0]):
                self._mark(getattr(args[0], _MARK)[1], made)
                return made
        if facts.decomposition is not None:
            with self:
                made = facts.decomposition(*args, **kwargs)
            if made is not NotImplemented:
                return made
        if facts.looks_at_values and not picks_by_number(function, args) and not self._may_read(args, kwargs):
            raise ReadsValues
        if facts.written and not self._has_made_all(facts.written, args, kwargs):
            raise WritesElsewhere
        node_args = tuple(map(self._as_node, args))
        node_kwargs = {name: self._as_node(value) for name, value in kwargs.items()}
        made = function(*args, **kwargs)
        made = made.clone() if isinstance(made, Tensor) and made._is_zerotensor() else made
        target = function
        if facts.written:
            pure = _without_writing(function)
            tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
            same = all(tensor.dtype == args[0].dtype for tensor in tensors)
            if pure is not None and made is args[0] and same and self._is_alone(made):
                target = pure
        node = self._node(target, node_args, node_kwargs, facts.is_settled)
        if target is function:
            self._note(node, made)
            if facts.written:
                self._change(facts.written, args, kwargs, node.meta[_OF])
        else:
            self._made(node, made)  # from here on, it is what this operation makes
        return made

    def _node(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], is_settled: bool = True) -> fx.Node:
        node = add_node(self.graph, target, args, kwargs, f"o{next(self._numbers)}")
        node.meta[_OF] = _of_all(node._input_nodes) if is_settled else None
        return node

    def _looked_up(self, function: Any) -> _Facts:
        composed = function.decompose if function._can_decompose() else None
        looks = looks_at_values(function)
        is_settled = torch.Tag.nondeterministic_seeded not in function.tags and "empty" not in function._schema.name
        decomposition = self._decompositions.get(function, composed)
        is_view, written = function in _VIEWS, _written(function)
        return _Facts(SIMPLER.get(function), decomposition, looks, is_settled, is_view, written)

    def _is_as_given(self, made: Tensor, given: Tensor) -> bool:
        """Whether what a view gives is a tensor that was made here, as it is: no operation of its own then."""
        same = made.shape == given.shape and made.stride() == given.stride()
        return same and getattr(given, _MARK, (None,))[0] is self

    def _is_alone(self, tensor: Tensor) -> bool:
        """Whether the tensor was made here and shares its memory with none that was."""
        return getattr(tensor, _MARK, (None,))[0] is self and len(self._held_on(tensor)) == 1

    def _is_in_memory_of_another(self, tensor: Tensor) -> bool:
        """Whether a tensor that nothing here has made shares its memory with one that was."""
        return bool(self._held_on(tensor))

    def _held_on(self, tensor: Tensor) -> list[Tensor]:
        """What was made here, is still there, and has the memory of a tensor: one that is gone may have left its place
        to another's memory."""
        storage = tensor.untyped_storage()._cdata
        held = (ref() for ref in self._made_on.get(storage, ()))
        return [other for other in held if other is not None and other.untyped_storage()._cdata == storage]

    def _as_node(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self.node(value)
        return [self._as_node(part) for part in value] if isinstance(value, (list, tuple)) else value

    def _may_read(self, args: Any, kwargs: Any) -> bool:
        return all(self._read(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor))

    def _has_made_all(self, written: tuple[tuple[int, str], ...], args: Any, kwargs: Any) -> bool:
        return all(getattr(target, _MARK, (None,))[0] is self for target in _targets(written, args, kwargs))

    def _change(self, written: tuple[tuple[int, str], ...], args: Any, kwargs: Any, of: frozenset[int] | None) -> None:
        """What was written to, and all that has its memory, is from here on made of more."""
        for target in _targets(written, args, kwargs):
            for other in self._held_on(target):
                meta = getattr(other, _MARK)[1].meta
                meta[_OF] = None if of is None or meta[_OF] is None else meta[_OF] | of

    def _note(self, node: fx.Node, made: Any) -> None:
        if isinstance(made, Tensor):
            if getattr(made, _MARK, (None,))[0] is not self:  # else it wrote to that tensor, and functionalising tells
                self._made(node, made)
            else:
                node.meta["val"] = _form(made)
        elif isinstance(made, (tuple, list)):
            node.meta["val"] = None
            for place, part in enumerate(made):
                if isinstance(part, Tensor):
                    self._made(self._node(operator.getitem, (node, place), {}), part)

    def _made(self, node: fx.Node, tensor: Tensor) -> fx.Node:
        node.meta["val"] = _form(tensor)
        self._mark(node, tensor)
        return node

    def _mark(self, node: fx.Node, tensor: Tensor) -> None:
        """Note what node a tensor is of."""
        attributes = tensor.__dict__
        if _MARK not in attributes:
            storage = tensor.untyped_storage()._cdata
            self._made_on.setdefault(storage, []).append(weakref.ref(tensor))
        attributes[_MARK] = self, node


def picks_by_number(function: Any, args: Any) -> bool:
    """Whether an operation is an index without a mask: what that gives has the same form for all values."""
    is_index = function in (torch.ops.aten.index.Tensor, torch.ops.aten._unsafe_index.Tensor)
    return is_index and not any(places is not None and places.dtype in _MASKS for places in args[1])


def _of_all(nodes: Iterable[fx.Node]) -> frozenset[int] | None:
    """The places of the constants that any of the nodes is made of; None if one is made of other things too."""
    places: frozenset[int] = frozenset()
    for node in nodes:
        of = node.meta[_OF]
        if of is None:
            return None
        places = of if of >= places else places | of
    return places


def _targets(written: tuple[tuple[int, str], ...], args: Any, kwargs: Any) -> list[Tensor]:
    """The tensors that an operation writes to."""
    given = [args[place] if place < len(args) else kwargs.get(name) for place, name in written]
    return [target for target in tree_leaves(given) if isinstance(target, Tensor)]


def _written(function: Any) -> tuple[tuple[int, str], ...]:
    arguments = enumerate(function._schema.arguments)
    return tuple((place, a.name) for place, a in arguments if a.alias_info is not None and a.alias_info.is_write)


@cache
def _without_writing(function: Any) -> Any:
    """The operation that gives what another one writes to its first argument; None if there is none alike."""
    name, overload = function._schema.name.removeprefix("aten::"), function._overloadname
    packet = getattr(torch.ops.aten, name[:-1], None) if name.endswith("_") and not name.endswith("__") else None
    pure = getattr(packet, overload, None) if packet is not None else None
    if pure is None or pure._schema.is_mutable:
        return None
    same = [argument.name for argument in pure._schema.arguments] == [a.name for a in function._schema.arguments]
    return pure if same and function._schema.arguments[0].name == "self" else None


def _form(tensor: Tensor) -> Tensor:
    return _empty(tuple(tensor.shape), tensor.stride(), tensor.dtype)


@cache
def _empty(shape: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor of that form without data."""
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():
        return torch.empty_strided(shape, stride, dtype=dtype, device="meta")
