"""What exact samplers of the targets share."""

from __future__ import annotations

import math
from collections.abc import Sequence


def draw_shape(shape: Sequence[int], dim: int) -> tuple[int, tuple[int, ...]]:
    """The number of draws and the shape of the result, after a check of what was asked."""
    shape = tuple(shape)
    if any(not isinstance(size, int) or size < 0 for size in shape):
        raise ValueError(f"a sample shape is a tuple of non-negative integers; got {shape}")
    return math.prod(shape), (*shape, dim)
