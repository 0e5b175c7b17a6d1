"""Whether a tensor is spread over processes; importing this imports no more of torch than was there."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def is_sharded(x: Any) -> TypeGuard[DTensor]:
    """Whether x is a DTensor: who has one has imported them."""
    tensors = sys.modules.get("torch.distributed.tensor")
    return tensors is not None and isinstance(x, tensors.DTensor)
