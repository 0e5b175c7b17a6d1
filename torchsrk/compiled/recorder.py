"""The graph of a function of tensors, by running it: the quick way, for steps of thousands of operations.

torch's own tracer takes about a millisecond an operation, on tensors without data. Here tensors have data, of a few
hundred particles, and every operation is noted as it runs. What the function would do otherwise at other values is not
seen by running it, so a function that looks at the value of anything it computes is refused.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

_BY_VALUE = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_MARK = "_torchsrk_recorded"  # an attribute of tensors, which holds the recorder and the node that made them


class ReadsValues(Exception):
    """What a function does depends on the value of a tensor it has computed."""


def record(
    function: Callable[..., Any], inputs: Sequence[Tensor], decompositions: dict[Any, Callable[..., Any]]
) -> tuple[fx.Graph, list[Tensor]]:
    """The graph of ``function(*inputs)``, and the tensors it reads beside: they are the graph's last inputs.

    Raises:
        ReadsValues: the function looks at values.
    """
    recorder = _Recorder(decompositions)
    given = [recorder.input(tensor) for tensor in inputs]
    with recorder:
        result = function(*given)
    recorder.graph.output(recorder.node(result))
    return recorder.graph, recorder.constants


def is_recorded(value: Tensor) -> bool:
    """Whether a recorder made the tensor."""
    return hasattr(value, _MARK)


class _Recorder(TorchDispatchMode):
    def __init__(self, decompositions: dict[Any, Callable[..., Any]]) -> None:
        super().__init__()
        self.graph = fx.Graph()
        self.constants: list[Tensor] = []
        self._decompositions = decompositions
        self._constant_nodes: dict[int, fx.Node] = {}
        self._last_input: fx.Node | None = None
        self._numbers = itertools.count()

    def input(self, tensor: Tensor) -> Tensor:
        """A copy that stands for an input of the graph."""
        copy = tensor.clone()
        self._last_input = self._made(self.graph.placeholder(f"input_{next(self._numbers)}"), copy)
        return copy

    def node(self, tensor: Tensor) -> fx.Node:
        """What made a tensor; one that nothing here has made is a constant."""
        recorder, node = getattr(tensor, _MARK, (None, None))
        if recorder is self:
            return node  # type: ignore[return-value]
        if id(tensor) not in self._constant_nodes:
            assert self._last_input is not None
            with self.graph.inserting_after(self._last_input):
                self._last_input = self.graph.placeholder(f"constant_{len(self.constants)}")
            self._last_input.meta["val"] = _form(tensor)
            self._constant_nodes[id(tensor)] = self._last_input
            self.constants.append(tensor)  # and kept, so that no other one gets its id
        return self._constant_nodes[id(tensor)]

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        decomposition = self._decompositions.get(function) or (function.decompose if _is_composed(function) else None)
        if decomposition is not None:
            with self:
                made = decomposition(*args, **kwargs)
            if made is not NotImplemented:
                return made
        if function.tags and not _BY_VALUE.isdisjoint(function.tags) and self._reads_recorded(args, kwargs):
            raise ReadsValues
        node_args, node_kwargs = tree_map_only(Tensor, self.node, (args, kwargs))
        made = function(*args, **kwargs)
        made = made.clone() if isinstance(made, Tensor) and made._is_zerotensor() else made
        self._note(self.graph.call_function(function, node_args, node_kwargs), made)
        return made

    def _reads_recorded(self, args: Any, kwargs: Any) -> bool:
        found: list[Tensor] = []
        tree_map_only(Tensor, found.append, (args, kwargs))
        return any(map(is_recorded, found))

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
                    self._made(self.graph.call_function(operator.getitem, (node, place)), part)

    def _made(self, node: fx.Node, tensor: Tensor) -> fx.Node:
        node.meta["val"] = _form(tensor)
        setattr(tensor, _MARK, (self, node))
        return node



@cache
def _is_composed(function: Any) -> bool:
    """Whether torch writes an operation by others at every call."""
    return function._can_decompose()


def _form(tensor: Tensor) -> Tensor:
    return _empty(tuple(tensor.shape), tensor.stride(), tensor.dtype)


@cache
def _empty(shape: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor of that form without data."""
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():
        return torch.empty_strided(shape, stride, dtype=dtype, device="meta")
