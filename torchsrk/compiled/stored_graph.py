"""Graphs and formulas as plain data, to be kept on disk: names of known operations, and numbers."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, fx

from ..derived import FUNCTIONS, STEP_SIZE, Formula
from .evaluation import order_of
from .products import in_panels
from .recorded import Held
from .recorder import add_node
from .trace import TracedStep

_FUNCTIONS: dict[str, Callable[..., Any]] = {"getitem": operator.getitem, "in_panels": in_panels}
# What an operation is given beside numbers and tensors, by the name of its kind; each is an attribute of torch.
_KINDS = {"dtype": torch.dtype, "layout": torch.layout, "memory_format": torch.memory_format}
_OPERATORS = {"neg", "pos", "abs", "add", "sub", "mul", "truediv", "pow", "radd", "rsub", "rmul", "rtruediv", "rpow"}


class CannotStore(Exception):
    """There is something that is not known to be data."""


def graph_to_data(traced: TracedStep, wanted: Sequence[fx.Node]) -> dict[str, Any]:
    """What computes the nodes that are ``wanted`` from the constants of a trace."""
    placeholders = [node for node in traced.module.graph.nodes if node.op == "placeholder"]
    constants = placeholders[traced.inputs :]
    order = order_of(wanted, set(constants))
    places = {node: place for place, node in enumerate((*placeholders, *order))}
    forms = {node: _form(node) for node in wanted}
    calls = [
        [_target_name(n.target), _to_data(n.args, places), _to_data(n.kwargs, places), forms.get(n)] for n in order
    ]
    return {
        "particles": traced.particles,
        "inputs": traced.inputs,
        "places": traced.places,
        "constants": len(constants),
        "forms": [_form(node) for node in placeholders],
        "calls": calls,
        "wanted": [places[node] for node in wanted],
    }


def graph_from_data(data: dict[str, Any], constants: Sequence[Tensor]) -> tuple[TracedStep, list[fx.Node]]:
    """A trace that has no more in it than what computes the wanted nodes, and these."""
    graph, nodes = fx.Graph(), list[fx.Node]()
    for place, form in enumerate(data["forms"]):
        nodes.append(graph.placeholder(f"input_{place}"))
        _set_form(nodes[-1], form)
    for name, args, kwargs, form in data["calls"]:
        target, given, named = _target(name), _from_data(args, nodes), _from_data(kwargs, nodes)
        nodes.append(add_node(graph, target, tuple(given), named, f"o{len(nodes)}"))
        _set_form(nodes[-1], form)
    if len(constants) != data["constants"] or len(data["forms"]) != data["inputs"] + data["constants"]:
        raise CannotStore("there are other constants than those of the trace")
    held = TracedStep(Held(graph), data["particles"], data["inputs"], tuple(constants), (), data["places"])  # type: ignore[arg-type]
    return held, [nodes[place] for place in data["wanted"]]


def formulas_to_data(formulas: Iterable[Formula | None]) -> dict[str, Any]:
    """Formulas, what is in several of them once."""
    table: list[Any] = []
    known: dict[int, int] = {}

    def place(formula: Formula) -> int:
        if id(formula) not in known:
            given = [["formula", place(p)] if isinstance(p, Formula) else _part(p) for p in formula.given]
            known[id(formula)] = len(table)
            table.append([formula.what, given])
        return known[id(formula)]

    wanted = [None if formula is None else place(formula) for formula in formulas]
    return {"table": table, "wanted": wanted}


def formulas_from_data(data: dict[str, Any]) -> tuple[Formula | None, ...]:
    made: list[Formula] = []

    def part(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        kind, told = value
        return made[told] if kind == "formula" else _function(told)

    for what, given in data["table"]:
        if what not in {"step size", "call", "entry", "attribute", *_OPERATORS}:
            raise CannotStore(f"no formula is a {what}")
        if what == "attribute" and not (given[0].isidentifier() and given[0][0] != "_"):
            raise CannotStore(f"no number is named {given[0]}")
        made.append(STEP_SIZE if what == "step size" else Formula(what, tuple(map(part, given))))
    return tuple(None if place is None else made[place] for place in data["wanted"])


def _part(value: Any) -> Any:
    """Of a formula: a number, a name, or a function of torchsrk's own."""
    if isinstance(value, bool) or type(value) in (int, str) or value is None:
        return value
    if isinstance(value, float):
        return float.__pos__(value)
    name = f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"
    if callable(value) and _function(name) is value:
        return ["function", name]
    raise CannotStore(f"a formula of a {type(value).__name__}")


def _function(name: str) -> Callable[..., Any]:
    if not name.startswith(("torchsrk.", "math.")) or name not in FUNCTIONS:
        raise CannotStore(f"no known function is named {name}")
    return FUNCTIONS[name]


def _target_name(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload) and target.namespace == "aten" and not target._schema.is_mutable:
        return f"{target._schema.name.removeprefix('aten::')}.{target._overloadname}"
    name = next((name for name, function in _FUNCTIONS.items() if function is target), None)
    if name is None:
        raise CannotStore(f"the operation {target}")
    return name


@cache
def _target(name: str) -> Callable[..., Any]:
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    packet, _, overload = name.partition(".")
    found = getattr(getattr(torch.ops.aten, packet, None), overload, None)
    if not isinstance(found, torch._ops.OpOverload) or found._schema.is_mutable:
        raise CannotStore(f"no operation is named {name}")
    return found


def _to_data(value: Any, places: dict[fx.Node, int]) -> Any:
    if value is None or isinstance(value, (bool, str)) or type(value) is int:
        return value
    if isinstance(value, float):
        return float.__pos__(value)
    if isinstance(value, fx.Node):
        return {"node": places[value]}
    if isinstance(value, (list, tuple)):
        return [_to_data(part, places) for part in value]
    if isinstance(value, dict):
        return {"named": {name: _to_data(part, places) for name, part in value.items()}}
    kind = next((name for name, of in _KINDS.items() if isinstance(value, of)), None)
    if kind is not None:
        return {kind: str(value).removeprefix("torch.")}
    if value == torch.device("cpu"):
        return {"device": "cpu"}
    raise CannotStore(f"an operation is given a {type(value).__name__}")


def _from_data(data: Any, nodes: Sequence[fx.Node]) -> Any:
    if isinstance(data, list):
        return [_from_data(part, nodes) for part in data]
    if not isinstance(data, dict):
        return data
    ((kind, told),) = data.items()
    if kind == "node":
        return nodes[told]
    if kind == "named":
        return {name: _from_data(part, nodes) for name, part in told.items()}
    if kind == "device":
        return torch.device("cpu")
    found = getattr(torch, told)
    if not isinstance(found, _KINDS[kind]):
        raise CannotStore(f"no {kind} is named {told}")
    return found


def _form(node: fx.Node) -> Any:
    """The shape and dtype of what a node gives."""
    value = node.meta.get("val")
    return [list(value.shape), str(value.dtype).removeprefix("torch.")] if isinstance(value, Tensor) else None


def _set_form(node: fx.Node, form: Any) -> None:
    if form is not None:
        shape, dtype = form
        found = getattr(torch, dtype)
        if not isinstance(found, torch.dtype) or math.prod(shape) < 0:
            raise CannotStore(f"no tensor is {form}")
        node.meta["val"] = _empty(tuple(shape), found)


@cache
def _empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")
