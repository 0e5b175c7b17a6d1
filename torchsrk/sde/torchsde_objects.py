"""SDEs written for torchsde, taken as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .base import BaseSDE, Time, check_output
from .noise_types import noise_type_named

_NOISE_TYPES = ("additive", "diagonal", "scalar", "general")


class TorchsdeSDE(BaseSDE):
    """An object with torchsde's ``f(t, y)``, ``g(t, y)`` (or ``f_and_g``), ``noise_type`` and ``sde_type = "ito"``.

    ``integrate``, ``sample`` and ``Chain`` make one of such an object themselves. It is called as torchsde calls it:
    with a tensor t and points (batch, dim), whatever the shape of the particles.

    Args:
        written: the object.
    """

    def __init__(self, written: Any) -> None:
        super().__init__()
        if getattr(written, "sde_type", None) != "ito":
            raise ValueError(
                f"{type(written).__name__} has sde_type {getattr(written, 'sde_type', None)!r}, and the schemes here "
                "solve Itô SDEs: rewrite it as one, by adding ½Σ(∂σ)σ to the drift, with sde_type = 'ito'"
            )
        if written.noise_type not in _NOISE_TYPES:
            raise ValueError(f"torchsde has noise types {', '.join(_NOISE_TYPES)}; got {written.noise_type!r}")
        self.noise = noise_type_named(written.noise_type)
        self.written = written

    def drift(self, t: Time, x: Tensor) -> Tensor:
        value = self._called("f", 0, t, x)
        valid = isinstance(value, Tensor) and value.shape == (x.shape[:-1].numel(), x.shape[-1])
        check_output(value, x, valid=valid, what="f", expected="(batch, dim)")
        return value.reshape(x.shape)

    def sigma(self, t: Time, x: Tensor) -> Tensor:
        value, batch = self._called("g", 1, t, x), x.shape[:-1]
        rank = 1 if self.noise.name == "diagonal" else 2
        valid = isinstance(value, Tensor) and value.ndim == 1 + rank and len(value) == batch.numel()
        if valid:
            value = value.reshape(*batch, *value.shape[1:])
        valid = valid and self.noise.is_valid(value, x)
        expected = "(batch, dim)" if rank == 1 else "(batch, dim, brownian)"
        check_output(value, x, valid=valid, what="g", expected=f"{expected} for {self.noise.name} noise")
        return value

    def _called(self, name: str, place: int, t: Time, x: Tensor) -> Tensor:
        """f or g, of its own or from f_and_g."""
        points, time = x.reshape(-1, x.shape[-1]), torch.as_tensor(t, dtype=x.dtype, device=x.device)
        alone: Callable[..., Tensor] | None = getattr(self.written, name, None)
        return alone(time, points) if alone is not None else self.written.f_and_g(time, points)[place]


def as_sde(given: Any) -> BaseSDE:
    """An SDE from itself or from an object that torchsde takes; one clear error for anything else.

    Args:
        given: a BaseSDE, which comes back as it is, or an object written for torchsde.
    """
    if isinstance(given, BaseSDE):
        return given
    if isinstance(given, type):
        raise TypeError(f"expected an SDE, and {given.__name__} is a class: make one of it, {given.__name__}(...)")
    has_terms = all(callable(getattr(given, name, None)) for name in ("f", "g"))
    if hasattr(given, "noise_type") and (has_terms or callable(getattr(given, "f_and_g", None))):
        return TorchsdeSDE(given)
    raise TypeError(
        f"expected an SDE, Langevin or ItoDiffusion, or an object with torchsde's f, g, noise_type and sde_type; got "
        f"{type(given).__name__}. For a potential: Langevin(potential)."
    )
