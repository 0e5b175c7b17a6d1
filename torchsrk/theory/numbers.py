"""What constants have to be: numbers, and not NaN, a string, a truth value or a tensor."""

from __future__ import annotations

import math


def is_number(value: object) -> bool:
    """Whether this is a finite int or float."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def check_positive(**values: object) -> None:
    """One clear error for the first that is not."""
    for name, value in values.items():
        if not (is_number(value) and value > 0):  # type: ignore[operator]
            raise ValueError(f"{name} is a positive number; got {value!r}")


def check_from_zero(**values: object) -> None:
    """One clear error for the first that is below 0, or no number."""
    for name, value in values.items():
        if not (is_number(value) and value >= 0):  # type: ignore[operator]
            raise ValueError(f"{name} is a number from 0 on; got {value!r}")


def check_count(**values: object) -> None:
    """One clear error for the first that is no positive integer."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} is a positive integer; got {value!r}")
