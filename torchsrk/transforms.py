"""torch.func's transformations (grad, jvp, vmap), as seen by code that runs under them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def is_transformed() -> bool:
    """Whether the caller runs under a transformation."""
    return torch._C._are_functorch_transforms_active()


def below_transforms(value: Tensor) -> Tensor:
    """The tensor that transformations have wrapped: it has values that can be read, of all entries of a vmap."""
    while torch._C._functorch.is_functorch_wrapped_tensor(value):
        value = torch._C._functorch.get_unwrapped(value)
    return value


@contextmanager
def outside_transforms() -> Iterator[None]:
    """Within, what is made is made once, for all entries of a vmap, and is an ordinary tensor."""
    if not is_transformed():
        yield
        return
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

    with temporarily_clear_interpreter_stack():
        yield


def spread(x: Tensor) -> Tensor:
    """x as a tensor of its own in every entry of the vmaps around: what is made from it can be written over."""
    if not is_transformed():
        return x
    from torch._functorch.pyfunctorch import VmapInterpreter, retrieve_all_functorch_interpreters

    for level in retrieve_all_functorch_interpreters():
        if isinstance(level, VmapInterpreter):
            with outside_transforms():
                zeros = torch.zeros(level.batch_size(), dtype=x.dtype, device=x.device)
            x = x + torch._C._functorch._add_batch_dim(zeros, 0, level.level())
    return x
