"""Libraries that are imported when they are first used.

Each brings KeOps along where that is installed, which then tells everyone without a GPU that there is none.
"""

from __future__ import annotations

import os
from typing import Any

from ..extras import missing


def transport() -> Any:
    """POT."""
    os.environ.setdefault("KEOPS_VERBOSE", "0")
    try:
        import ot
    except ImportError as error:
        raise missing("POT", "metrics") from error
    return ot


def assignment() -> Any:
    """lapx's Jonker-Volgenant solver for dense square matrices."""
    try:
        from lap import lapjvr
    except ImportError as error:
        raise missing("lapx", "metrics") from error
    return lapjvr


def samples_loss() -> Any:
    """geomloss's SamplesLoss."""
    os.environ.setdefault("KEOPS_VERBOSE", "0")
    from geomloss import SamplesLoss

    return SamplesLoss
