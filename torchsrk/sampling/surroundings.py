"""What a run happens in: its precision, and a progress bar."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from ..integrators import Integrator


def full_precision(x: Tensor) -> AbstractContextManager[None]:
    """Within: no autocast and no inference mode. Neither reaches the threads that blocks run on, and noise rounded to
    sixteen bits has another law. A network may open an autocast region of its own."""
    is_full = not torch.is_autocast_enabled(x.device.type) and not torch.is_inference_mode_enabled()
    return nullcontext() if is_full else _full_precision(x)


@contextmanager
def _full_precision(x: Tensor) -> Iterator[None]:
    with torch.autocast(x.device.type, enabled=False):
        if not torch.is_inference_mode_enabled():
            yield
            return
        with torch.inference_mode(False), torch.no_grad():
            yield


def progress_bar(total: int, show: bool, scheme: Integrator, step_size: float) -> AbstractContextManager[Any]:
    if not show:
        return nullcontext(_NoBar())
    from tqdm import tqdm

    name = scheme.name or type(scheme).__name__
    return tqdm(total=total, desc=f"{name}, h = {step_size:g}", unit="step", leave=None)


class _NoBar:
    """A progress bar that is not shown."""

    def update(self, steps: int) -> None: ...

    def set_postfix_str(self, text: str) -> None: ...
