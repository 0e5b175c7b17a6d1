"""What a computation reads from outside: which tensors, in which state, and the random numbers it draws."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import ref

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from .transforms import below_transforms, is_transformed

# They don't read values. Left out for speed: half of the calls are such.
_DESCRIPTIONS = {
    *(getattr(Tensor, name).__get__ for name in ("shape", "dtype", "device", "ndim", "requires_grad")),
    *(Tensor.size, Tensor.dim, Tensor.numel, Tensor.is_floating_point),
}


class Reads(TorchFunctionMode):
    """Notes which tensors are read within and were not made there, and which generators are drawn from.

    Tensors are held weakly. One that dies with the computation was made by it, out of sight: a scripted function's
    result, say.
    """

    def __init__(self, generators: Iterable[torch.Generator]) -> None:
        super().__init__()
        self._made: dict[int, ref[Tensor]] = {}
        self._read: dict[int, tuple[ref[Tensor], int]] = {}
        self._states = {id(generator): (generator, generator.get_state()) for generator in generators}
        self.drawn: list[tuple[torch.Generator, Tensor]] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in _DESCRIPTIONS:
            return function(*args, **kwargs)
        self.note(args)
        self.note(kwargs.values())
        result = function(*args, **kwargs)
        for value in (result,) if isinstance(result, Tensor) else _tensors(result):
            if not _holds(self._read.get(id(value)), value):
                self._made[id(value)] = ref(value)
        return result

    def note(self, values: Iterable[Any]) -> None:
        """The values are read."""
        for value in values:
            if isinstance(value, Tensor):
                self._note_tensor(value)
            elif isinstance(value, (tuple, list)):
                self.note(value)
            elif isinstance(value, dict):
                self.note(value.values())
            elif isinstance(value, torch.Generator) and id(value) not in self._states:
                self._states[id(value)] = value, value.get_state()

    def _note_tensor(self, value: Tensor) -> None:
        if is_transformed():
            value = below_transforms(value)
        key = id(value)
        if key in self._made and self._made[key]() is value:
            return
        if not _holds(self._read.get(key), value):
            self._read[key] = ref(value), version_of(value)

    def tensors(self) -> list[Tensor]:
        """What was read and is still there."""
        return [value for held, _ in self._read.values() if (value := held()) is not None]

    def made(self) -> set[int]:
        """The ids of what was made within and is still there."""
        return {key for key, held in self._made.items() if held() is not None}

    def changed(self) -> list[Tensor]:
        """What has been changed in place since it was read."""
        return [value for value in self.tensors() if version_of(value) != self._read[id(value)][1]]

    def close(self) -> None:
        """Keep the tensors that are still there, and the ``drawn`` generators with their states before."""
        self._made.clear()
        self._read = {key: entry for key, entry in self._read.items() if entry[0]() is not None}
        self.drawn = [pair for pair in self._states.values() if not torch.equal(pair[0].get_state(), pair[1])]
        self._states.clear()


class Replaced(TorchFunctionMode):
    """Within, every torch function is given others in the place of some tensors.

    Attributes:
        leaves: the tensors that need a gradient and begin a graph, by id: the others, and those made within.
    """

    def __init__(self, tensors: Sequence[Tensor], others: Sequence[Tensor]) -> None:
        super().__init__()
        self._others = {id(tensor): other for tensor, other in zip(tensors, others, strict=True)}
        self.leaves = {id(other): other for other in others}

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in _DESCRIPTIONS:
            return function(*args, **kwargs)
        args = tuple(map(self._swapped, args))
        kwargs = {name: self._swapped(value) for name, value in kwargs.items()} if kwargs else kwargs
        result = function(*args, **kwargs)
        made = args[0] if result is None and args else result  # x.requires_grad = True returns nothing
        if isinstance(made, Tensor) and made.requires_grad and made.is_leaf:
            self.leaves[id(made)] = made
        return result

    def _swapped(self, value: Any) -> Any:
        if type(value) in (tuple, list):
            return type(value)(map(self._swapped, value))
        if type(value) is dict:
            return {name: self._swapped(part) for name, part in value.items()}
        return self._others.get(id(value), value)


class HiddenReadError(RuntimeError):
    """A tensor that needs a gradient is read where it can't be followed."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}, so that recompute=True can't have its gradient. Such are the tensors of scripted functions and "
            "of torch.autograd.Function: make them parameters of the SDE, or use recompute=False"
        )


def graph_ends(outputs: Iterable[Tensor], stops: Container[Any] = ()) -> tuple[list[Tensor], set[Any]]:
    """The leaves of the outputs' graph, and which of the edges ``stops``, (node, output number), it leads to."""
    leaves, met = [], set()
    stack: list[Any] = [value.grad_fn for value in outputs if value.grad_fn is not None]
    seen = set(stack)
    while stack:
        node = stack.pop()
        if _is_leaf(node):
            leaves.append(node.variable)
        for edge in node.next_functions:
            if edge in stops:
                met.add(edge)
            elif edge[0] is not None and edge[0] not in seen:
                seen.add(edge[0])
                stack.append(edge[0])
    return leaves, met


def read_directly(outputs: Iterable[Tensor], outside: Sequence[Tensor], leaves: Container[int]) -> list[int]:
    """Which of the outside tensors the outputs' graph ends at, though others took their place: by number.

    Not all calls show a mode their tensors: scripted code, ``torch.autograd.Function``, what torch.func wraps. Any
    other end raises, but for ``leaves``, by id.
    """
    by_id = {id(value): number for number, value in enumerate(outside)}
    by_edge = {(value.grad_fn, value.output_nr): number for number, value in enumerate(outside) if not value.is_leaf}
    ends, edges = graph_ends(outputs, by_edge)
    for leaf in ends:
        if id(leaf) not in by_id and id(leaf) not in leaves:
            raise HiddenReadError(f"a tensor of shape {tuple(leaf.shape)} is read out of sight")
    direct = {by_edge[edge] for edge in edges} | {by_id[id(leaf)] for leaf in ends if id(leaf) in by_id}
    _check_separate([outside[number] for number in direct])
    return sorted(direct)


def _check_separate(tensors: list[Tensor]) -> None:
    """What is read directly has partial derivatives only if none is made from another; and hooks would act twice."""
    if any(value._backward_hooks for value in tensors):
        raise HiddenReadError("a tensor that has hooks is read out of sight")
    known = {id(value) if value.is_leaf else value.grad_fn for value in tensors}
    stack: list[Any] = [
        edge[0] for value in tensors if value.grad_fn is not None for edge in value.grad_fn.next_functions
    ]
    seen: set[Any] = {None}
    while len(tensors) > 1 and stack:
        node = stack.pop()
        if node in known or (_is_leaf(node) and id(node.variable) in known):
            raise HiddenReadError("a tensor and one made from it are both read out of sight")
        if node not in seen:
            seen.add(node)
            stack += [edge[0] for edge in node.next_functions]


def _is_leaf(node: Any) -> bool:
    return type(node).__name__ == "AccumulateGrad"


def generators_of(device: torch.device) -> list[torch.Generator]:
    """Those that are drawn from where none is named."""
    if device.type != "cuda":
        return [torch.default_generator]
    index = torch.cuda.current_device() if device.index is None else device.index
    return [torch.default_generator, torch.cuda.default_generators[index]]


@contextmanager
def drawn_again(states: list[tuple[torch.Generator, Tensor]]) -> Iterator[None]:
    """Within, the generators give what they gave from these states on; afterwards they go on from where they were."""
    now = [(generator, generator.get_state()) for generator, _ in states]
    try:
        for generator, state in states:
            generator.set_state(state)
        yield
    finally:
        for generator, state in now:
            generator.set_state(state)


def version_of(value: Tensor) -> int:
    """It counts the tensor's changes in place."""
    return 0 if value.is_inference() else value._version


def _holds(entry: tuple[ref[Tensor], int] | None, value: Tensor) -> bool:
    # An id is given to another tensor after the first one's death.
    return entry is not None and entry[0]() is value


def _tensors(values: Any) -> Iterator[Tensor]:
    if isinstance(values, (tuple, list)):
        for value in values:
            if isinstance(value, Tensor):
                yield value
            else:
                yield from _tensors(value)
