"""Places along a dimension, all counted from its start."""

from __future__ import annotations

from typing import Any

from torch import fx

from .calls import operation_name

# Of operations with places: where among the arguments the dimension is, and where the places are.
_PICKS, _SLICES = (1, {2: "index"}), (1, {2: "start", 3: "end"})
_PLACES: dict[str, tuple[int, dict[int, str]]] = {
    **dict.fromkeys(("select.int", "select_copy.int"), _PICKS),
    **dict.fromkeys(("slice.Tensor", "slice_copy.Tensor"), _SLICES),
    "select_scatter.default": (2, {3: "index"}),
    "slice_scatter.default": (2, {3: "start", 4: "end"}),
}


def count_from_the_start(graph: fx.Graph) -> None:
    """Make places that are counted from the end ones that are counted from the start: along a loop, -2, -1, 0 and 1 are
    not evenly apart, and in C a negative one lies outside of the array."""
    for node in graph.nodes:
        name = operation_name(node)
        if name in _PLACES:
            at, places = _PLACES[name]
            dim = node.args[at] if len(node.args) > at else node.kwargs.get("dim", 0)
            size = node.args[0].meta["val"].shape[dim]
            moved = {k: _from_the_start(place, size) if k in places else place for k, place in enumerate(node.args)}
            node.args = tuple(moved.values())
            named = places.values()
            node.kwargs = {k: _from_the_start(v, size) if k in named else v for k, v in node.kwargs.items()}


def _from_the_start(place: Any, size: int) -> Any:
    return max(0, place + size) if isinstance(place, int) and place < 0 else place
