"""What integrators ask of an SDE dX = b dt + σ dB."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from ..brownian.increment import asked_for
from .noise_types import NoiseType
from .terms import Term

Time = float | Tensor
Normals = Callable[[Tensor], Tensor]  # standard normals of the shape, dtype and device of what it is given


class BaseSDE(nn.Module, ABC):
    """An Itô SDE. Also speaks torchsde: ``torchsde.sdeint`` accepts any of these as it is.

    Attributes:
        noise_varies: σ may depend on time; False where it is known not to spares evaluations of it.
        needs_exact_time: the drift is made of a time that float32 is too short for.
    """

    sde_type = "ito"
    noise: NoiseType
    dim: int | None = None
    noise_varies: bool = True
    needs_exact_time: bool = False

    @abstractmethod
    def drift(self, t: Time, x: Tensor) -> Tensor:
        """b(t, x), (..., dim)."""

    @abstractmethod
    def sigma(self, t: Time, x: Tensor) -> Tensor:
        """σ(t, x), in the form of its noise type."""

    def brownian_dim(self, x: Tensor) -> int:
        """The number of Brownian motions that drive particles at positions like x."""
        device = x.device.type
        can_cast = torch.amp.is_autocast_available(device)
        with torch.no_grad(), torch.autocast(device, enabled=False) if can_cast else nullcontext():
            point = x[(slice(0, 1),) * (x.ndim - 1)]
            return self.noise.brownian_dim(self.sigma(0.0, point), point)

    def start(self, x: Tensor, normals: Normals) -> Tensor:
        """The state (..., width) of particles at x (..., dim): x itself, unless there is more to it, as a velocity."""
        return x

    def position(self, state: Tensor) -> Tensor:
        """Where particles of a state are, (..., dim)."""
        return state

    def doubt_at_start(self, x: Tensor) -> str | None:
        """Before a run of particles like x: why this SDE can't be what was meant, if that shows."""
        return None

    def check_end(self, t: float) -> None:
        """Before a run that ends at a time: raise if there is nothing so late."""

    def doubt_at_end(self, t: float) -> str | None:
        """After a run that ends at a time: why that is not where it was to end, if that is known."""
        return None

    def drift_at(self, t: Time, x: Tensor) -> Term:
        """b(t, x), to be added."""
        return Term(1.0, self.drift(t, x))

    def noise_at(self, t: Time, x: Tensor) -> Callable[[Tensor], Term]:
        """v to σ(t, x)v, to be added; σ is evaluated once."""
        sigma = self.sigma(t, x)
        return lambda v: Term(1.0, self.noise.product(sigma, asked_for(v)))

    def sum_columns(self, t: Time, points: Tensor) -> Tensor:
        """Σ_i σ_i(points_i), (..., dim), for the stages that the noise type's ``offsets`` made."""
        return self.noise.sum_columns(self.sigma(t, points))

    @property
    def noise_type(self) -> str:
        """The noise type in torchsde's words; ``noise.name`` is ours."""
        return self.noise.torchsde_name

    def f(self, t: Time, y: Tensor) -> Tensor:
        """The drift, as torchsde calls it."""
        return self.drift(t, y)

    def g(self, t: Time, y: Tensor) -> Tensor:
        """The diffusion, as torchsde wants it: the diagonal if diagonal, else the matrix."""
        sigma = self.sigma(t, y)
        return sigma if self.noise_type == "diagonal" else self.noise.matrix(sigma, y)


def check_output(value: object, x: Tensor, *, valid: bool, what: str, expected: str) -> None:
    """One clear error for a coefficient that returned something else."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{what} must return a tensor; it returned {type(value).__name__}")
    if not valid:
        raise ValueError(
            f"{what} must return {expected}: for x of shape {tuple(x.shape)} it returned shape {tuple(value.shape)}"
        )
    if value.dtype != x.dtype or value.device != x.device:
        raise TypeError(
            f"{what} returned {value.dtype} on {value.device} for x in {x.dtype} on {x.device}: move one to the other "
            "with .to(...)"
        )
