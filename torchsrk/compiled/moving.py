"""What a step reads that is made of the places drawn for it, as the rows of a minibatch are, or of its time.

To the C of a step these are tensors like any others that are there before a run. Torch makes them for some steps at a
time, so that a long run takes no more memory than a short one, and every step is pointed to its own.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from .calls import operation_name
from .evaluation import Evaluation
from .problem import Places
from .products import in_panels
from .trace import TracedStep

_BYTES = 1 << 22  # of what is made at a time: more would be slower to read, and less to make
_MOST_STEPS = 1 << 12

# What gives the same bits for one step as for many at once: it moves numbers, or rounds each result by itself once.
_EXACT = {
    *("add", "sub", "rsub", "mul", "div", "neg", "abs", "eq", "ne", "lt", "le", "gt", "ge", "where", "_to"),
    *("index", "index_select", "select", "slice", "view", "_unsafe_view", "expand", "permute", "transpose", "t"),
    *("unsqueeze", "squeeze", "clone", "alias", "detach", "cat", "stack", "unbind", "logical_not", "bitwise_not"),
}
_EXACT_FUNCTIONS = (in_panels, operator.getitem)


class Moving:
    """Tensors of a graph that are made of drawn places, for the steps of a run.

    Args:
        nodes: of the graph, of which those are taken that depend on ``places``. ``spans`` cuts steps into those that
            are made ready together.
        constants: what they are made of beside.
    """

    def __init__(
        self, traced: TracedStep, nodes: Iterable[fx.Node], places: Sequence[Places], constants: Sequence[Tensor]
    ) -> None:
        made = _made_of_places(traced)
        self._places, self._constants = places, constants
        self.nodes = [node for node in dict.fromkeys(nodes) if node in made]
        self._evaluation = Evaluation(traced, self.nodes)
        self._at_once = _are_exact(self.nodes, made)
        forms = [node.meta["val"] for node in self.nodes]
        bytes_ = sum(form.numel() * form.element_size() for form in forms if isinstance(form, Tensor))
        self.spans = at_most(max(1, min(_MOST_STEPS, _BYTES // max(1, bytes_))))

    def made(self, first: int, last: int) -> dict[fx.Node, Tensor]:
        """The tensors of all nodes for the steps from one to another, (steps, ...)."""
        drawn = [places.of(first, last) for places in self._places]
        if self._at_once:
            values: Any = torch.func.vmap(self._of_one)(*drawn)
        else:
            each = [self._of_one(*of_step) for of_step in zip(*drawn, strict=True)]
            values = map(torch.stack, zip(*each, strict=True))
        return dict(zip(self.nodes, values, strict=True))

    def _of_one(self, *drawn: Tensor) -> tuple[Tensor, ...]:
        made = self._evaluation([*drawn, *self._constants])
        return tuple(torch.as_tensor(value) for value in made)


def at_most(together: int) -> Callable[[int, int], Iterator[tuple[int, int]]]:
    """How steps from one to another are cut into those that are made ready together."""

    def spans(first: int, last: int) -> Iterator[tuple[int, int]]:
        for start in range(first, last, together):
            yield start, min(last, start + together)

    return spans


def pointers(nodes: Sequence[fx.Node], fixed: Sequence[Tensor], made: Mapping[fx.Node, Tensor], steps: int) -> Tensor:
    """Where C finds the tensors of nodes, (steps, nodes): what is made for every step, and the others as they are."""
    found = torch.tensor([tensor.data_ptr() for tensor in fixed], dtype=torch.int64).repeat(steps, 1)
    for place, node in enumerate(nodes):
        if node in made:
            apart = made[node][0].numel() * made[node].element_size()
            found[:, place] = made[node].data_ptr() + apart * torch.arange(steps)
    return found


def _made_of_places(traced: TracedStep) -> set[fx.Node]:
    placeholders = [node for node in traced.module.graph.nodes if node.op == "placeholder"]
    made = set(placeholders[traced.inputs :][: traced.places])
    for node in traced.module.graph.nodes:
        if not made.isdisjoint(node.all_input_nodes):
            made.add(node)
    return made


def _are_exact(nodes: Sequence[fx.Node], made: set[fx.Node]) -> bool:
    """Whether all operations between what is drawn and the nodes are exact."""
    waiting, seen = list(nodes), set[fx.Node]()
    while waiting:
        node = waiting.pop()
        if node in seen or node not in made:
            continue
        seen.add(node)
        name = (operation_name(node) or "").partition(".")[0].removesuffix("_copy")
        if node.op == "call_function" and node.target not in _EXACT_FUNCTIONS and name not in _EXACT:
            return False
        waiting += node.all_input_nodes
    return True
