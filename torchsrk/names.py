"""Names that were mistyped."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

_CLOSE = 0.7  # of difflib's ratio: one wrong letter of three makes another word


def nearest(given: Any, known: Sequence[Any], close_to: float = _CLOSE) -> str:
    """Which of the known names was meant, in words, if one is close."""
    close = difflib.get_close_matches(str(given), [str(name) for name in known], n=1, cutoff=close_to)
    return f" (did you mean {close[0]}?)" if close else ""
