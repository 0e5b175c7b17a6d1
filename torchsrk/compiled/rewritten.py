"""Calls that a trace can't follow, as others that it can: masks and classes of data, running products.

How many entries a mask picks is known where the mask has data. That makes its values a part of the program, as those of
any tensor that a step reads numbers from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

_LONGEST_PRODUCT = 128


def rewritten(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], read: Callable[[Tensor], bool]) -> Any:
    """What a call gives, or NotImplemented if it is to be made as it is.

    Args:
        read: notes that a tensor's values are read; False if it has none.
    """
    rewrite = _REWRITES.get(name)
    return NotImplemented if rewrite is None else rewrite(read, *args, **kwargs)


def _picked(read: Callable[[Tensor], bool], x: Any, index: Any) -> Any:
    places = _as_places(index, read)
    return NotImplemented if places is None else x[places]


def _written(read: Callable[[Tensor], bool], x: Any, index: Any, value: Any) -> Any:
    places = _as_places(index, read)
    if places is None:
        return NotImplemented
    x[places] = value
    return None


def _as_places(index: Any, read: Callable[[Tensor], bool]) -> tuple[Any, ...] | None:
    """An index with the places that its masks pick in their stead; None if there is no mask to replace."""
    parts = index if isinstance(index, tuple) else (index,)
    masks = [part for part in parts if _is_mask(part)]
    if not all(map(read, masks)) or not (masks or any(map(_is_list_of_booleans, parts))):
        return None
    places: list[Any] = []
    for part in parts:
        if _is_mask(part):
            with _disable_current_modes():
                places += part.nonzero(as_tuple=True)
        elif _is_list_of_booleans(part):
            places.append([place for place, is_picked in enumerate(part) if is_picked])
        else:
            places.append(part)
    return tuple(places)


def _is_mask(part: Any) -> bool:
    return isinstance(part, Tensor) and part.dtype == torch.bool and part.ndim > 0


def _is_list_of_booleans(part: Any) -> bool:
    return isinstance(part, list) and bool(part) and all(isinstance(entry, bool) for entry in part)


def _selected(read: Callable[[Tensor], bool], input: Any, mask: Any) -> Any:
    has_its_form = isinstance(input, Tensor) and input.shape[input.ndim - mask.ndim :] == mask.shape and mask.ndim
    places = _as_places((..., mask), read) if has_its_form else None
    return NotImplemented if places is None else input[places].flatten()


def _running_product(read: Callable[[Tensor], bool], input: Any, dim: Any = None, **kwargs: Any) -> Any:
    """One factor at a time: the derivative that torch has picks by masks of what it finds zero."""
    if kwargs or not isinstance(dim, int) or not isinstance(input, Tensor) or not input.is_floating_point():
        return NotImplemented
    if not input.ndim or not 1 <= input.shape[dim] <= _LONGEST_PRODUCT or not input.requires_grad:
        return NotImplemented
    first, *factors = input.unbind(dim)
    products = [first]
    for factor in factors:
        products.append(products[-1] * factor)
    return torch.stack(products, dim)


def _one_hot(read: Callable[[Tensor], bool], input: Any, num_classes: int = -1) -> Any:
    """torch looks at the largest class: of data, that is known."""
    if not isinstance(input, Tensor) or not read(input):
        return NotImplemented
    with _disable_current_modes():
        return torch.nn.functional.one_hot(input, num_classes)


def _inverted(read: Callable[[Tensor], bool], input: Any) -> Any:
    """The other entries, of a mask of data."""
    if not isinstance(input, Tensor) or input.dtype != torch.bool or not input.ndim or not read(input):
        return NotImplemented
    with _disable_current_modes():
        return ~input


def _product(read: Callable[[Tensor], bool], input: Any, other: Any = None, **kwargs: Any) -> Any:
    """As torch makes it of two lists of matrices, or of one matrix and a list, without its views before and after: a
    filter has such products in every round."""
    if kwargs or not (isinstance(input, Tensor) and isinstance(other, Tensor)):
        return NotImplemented
    if not 2 <= input.ndim <= 3 == other.ndim:
        return NotImplemented
    if input.ndim == 2:
        if input.requires_grad:  # torch puts the list's matrices one after another then
            return NotImplemented
        input = input.expand(len(other), *input.shape)
    if input.shape[0] != other.shape[0] or torch._C._functorch.peek_interpreter_stack() is not None:
        return NotImplemented
    return torch.bmm(input, other)


_REWRITES: dict[str, Callable[..., Any]] = {
    "__getitem__": _picked,
    "__setitem__": _written,
    "masked_select": _selected,
    "cumprod": _running_product,
    "one_hot": _one_hot,
    **dict.fromkeys(("matmul", "__matmul__"), _product),
    **dict.fromkeys(("__invert__", "bitwise_not", "logical_not"), _inverted),
}
