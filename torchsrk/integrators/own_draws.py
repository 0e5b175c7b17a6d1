"""Random numbers that a step of a user's scheme draws by itself: they don't follow from (seed, particle, step)."""

from __future__ import annotations

import sys
import warnings
from contextlib import AbstractContextManager, nullcontext
from types import FrameType, TracebackType
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from .base import Integrator
from .wrapped import Wrapped

_DRAW_NOTHING: set[type[Integrator]] = set()  # schemes of the user's that were looked at


def told_of_draws(scheme: Integrator) -> AbstractContextManager[Any]:
    """Within, where a scheme makes a step: a warning in the end if it draws. Schemes of this package, which draw
    nothing, and those that were seen to draw nothing, are not watched: it takes time."""
    while isinstance(scheme, Wrapped):
        scheme = scheme.scheme
    own = type(scheme).__module__.startswith("torchsrk.")
    if own or type(scheme) in _DRAW_NOTHING or torch._C._are_functorch_transforms_active():
        return nullcontext()
    return _Draws(scheme)


class _Draws(TorchDispatchMode):
    """Notes random operations, as the tracer of compiled steps tells them, unless a module draws: dropout or a
    minibatch of the SDE's are its own business."""

    def __init__(self, scheme: Integrator) -> None:
        super().__init__()
        self._scheme, self._drawn = scheme, ""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # it would be imported for nothing, and asked at every operation

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in function.tags and not _is_a_modules(sys._getframe(1), self._scheme):
            self._drawn = str(function)
        made = function(*args, **(kwargs or {}))
        # Zeros that nobody has written yet: handing them on would end the process.
        return made.clone() if isinstance(made, torch.Tensor) and made._is_zerotensor() else made

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if self._drawn:
            warnings.warn(
                f"{type(self._scheme).__name__}.step draws random numbers of its own, by {self._drawn}: they do not "
                "follow from (seed, particle, step), so that runs can't be repeated, resumed or coupled. The increment "
                "has noise for a step: W, and by needs = Needs.BETWEEN normals Z, by Needs.UNIFORM a uniform u",
                RuntimeWarning,
                stacklevel=4,
            )
        elif error is None:
            _DRAW_NOTHING.add(type(self._scheme))


def _is_a_modules(frame: FrameType | None, scheme: Integrator) -> bool:
    """Whether a module's method is nearer than the scheme's on the way to where an operation was asked for."""
    while frame is not None:
        owner = frame.f_locals.get("self")
        if owner is scheme:
            return False
        if isinstance(owner, nn.Module):
            return True
        frame = frame.f_back
    return False
