"""Names that were mistyped."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

_CLOSE = 0.7  # of difflib's ratio: one wrong letter of three makes another word


def nearest(given: Any, known: Sequence[Any], close_to: float = _CLOSE) -> str:
    """Which of the known names was meant, in words, if one is close."""
    return nearest_of(given, {str(name): name for name in known}, close_to)


def nearest_of(given: Any, known: Mapping[str, Any], close_to: float = _CLOSE) -> str:
    """The same, where what is known is shown in another way than it is compared."""
    close = difflib.get_close_matches(str(given), known, n=1, cutoff=close_to)
    return f" (did you mean {known[close[0]]}?)" if close else ""
