"""What torch computes before a run: the nodes of a step's graph that depend on no state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from .calls import by_identity
from .trace import TracedStep, plainly


class Evaluation:
    """Nodes that depend on no input of a step but what is ``given``: in which order torch computes them and what they
    are made of, found once for all evaluations."""

    def __init__(self, traced: TracedStep, nodes: Iterable[fx.Node], given: Iterable[fx.Node] = ()) -> None:
        placeholders = [node for node in traced.module.graph.nodes if node.op == "placeholder"]
        self._constants, self._wanted = placeholders[traced.inputs :], list(nodes)
        self._calls = [_call_of(node) for node in order_of(self._wanted, {*self._constants, *given})]

    def __call__(self, constants: Sequence[Tensor], given: Mapping[fx.Node, Any] | None = None) -> list[Any]:
        """Their tensors and numbers, from constants as they are."""
        known: dict[Any, Any] = dict(zip(self._constants, constants, strict=True))
        known.update(given or {})
        with torch.no_grad():
            for node, function, args, kwargs, is_flat in self._calls:
                if is_flat:
                    args = [known[arg] if type(arg) is fx.Node else arg for arg in args]
                else:
                    args, kwargs = fx.map_arg((args, kwargs), known.__getitem__)
                known[node] = plainly(function, *args, **kwargs)
        return [known[node] for node in self._wanted]


def evaluate(
    traced: TracedStep,
    nodes: Iterable[fx.Node],
    constants: Sequence[Tensor],
    given: Mapping[fx.Node, Any] | None = None,
) -> list[Any]:
    """The tensors and numbers of nodes, evaluated this once."""
    return Evaluation(traced, nodes, given or ())(constants, given)


def order_of(wanted: Iterable[fx.Node], known: set[fx.Node]) -> list[fx.Node]:
    """The nodes to compute, each after those it reads."""
    order: list[fx.Node] = []
    seen, waiting = set(known), list(wanted)[::-1]  # no recursion: the nodes of a long series hang together in a chain
    while waiting:
        node = waiting[-1]
        missing = [] if node in seen else [source for source in node.all_input_nodes if source not in seen]
        waiting += missing
        if missing:
            continue
        if node not in seen:
            seen.add(node)
            order.append(node)
        waiting.pop()
    return order


def _call_of(node: fx.Node) -> tuple[fx.Node, Callable[..., Any], Sequence[Any], dict[str, Any], bool]:
    """A node with the function it calls and its arguments, and whether all nodes among these are to be seen at once."""
    is_flat = sum(isinstance(arg, fx.Node) for arg in node.args) == len(nodes_in((node.args, node.kwargs)))
    return node, _as_view(node.target), node.args, dict(node.kwargs), is_flat


def nodes_in(arguments: Any) -> list[fx.Node]:
    """Every node among arguments, as often as it is there."""
    found: list[fx.Node] = []
    fx.map_arg(arguments, found.append)
    return found


@by_identity
def _as_view(target: Any) -> Callable[..., Any]:
    """The operation itself, or the one that gives a view where it copies: torch.func.vmap knows views alone."""
    if not isinstance(target, torch._ops.OpOverload) or not target._schema.name.endswith("_copy"):
        return target
    packet = getattr(torch.ops.aten, target._schema.name.removeprefix("aten::").removesuffix("_copy"), None)
    view = getattr(packet, target._overloadname, None)
    return target if view is None else view
