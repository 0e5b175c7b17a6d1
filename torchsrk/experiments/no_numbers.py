"""NaN among what was measured: told, so that no table has it unnoticed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from .base import Result

_MOST_TOLD = 10


def no_numbers(results: Mapping[str, Result]) -> list[str]:
    """A line for every case and number that is NaN, up to a few."""
    found = [
        f"NOT A NUMBER: {name} of {unit} is NaN"
        for unit, result in results.items()
        for name, value in result.items()
        if any(map(_is_nan, _parts(value)))
    ]
    rest = len(found) - _MOST_TOLD
    return [*found[:_MOST_TOLD], *([f"NOT A NUMBER: {rest} more"] if rest > 0 else [])]


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for part in value:
            yield from _parts(part)
    else:
        yield value


def _is_nan(value: Any) -> bool:
    if isinstance(value, Tensor):
        return bool(value.isnan().any())
    return isinstance(value, float) and math.isnan(value)
