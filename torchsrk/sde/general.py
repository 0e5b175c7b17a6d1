"""An SDE from its two coefficients."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .arguments import check_arguments
from .base import BaseSDE, Time, check_output
from .noise_types import noise_type_named


class SDE(BaseSDE):
    """dX = b(X) dt + σ(X) dB from networks or functions.

    Args:
        drift: x (..., dim) to (..., dim).
        diffusion: x to σ, in the form its noise type wants; for additive noise also a number or a (dim, brownian)
            tensor (an ``nn.Parameter`` is trained).
        noise_type: "additive" σ no function of x; "diagonal" (..., dim), entry i a function of x_i alone; "scalar"
            (..., dim, 1); "isotropic" (...), σ = s(x)·I; "general" (..., dim, brownian). A diffusion that is seen to
            be no function of that kind is refused when it is used, by a spot check: σ is compared at a few of the
            states where a run begins and ends, at the first use of an SDE, the second, fourth, eighth and so on.
        time_dependent: drift and diffusion are called as (t, x) instead of (x).
        columns: for "general" noise, an optional way to evaluate only what SRK-ID needs: points (..., brownian, dim) to
            (..., brownian, dim), row i being column i of σ at point i. Without it σ is evaluated whole at each point.
    """

    def __init__(
        self,
        drift: Callable[..., Tensor],
        diffusion: Callable[..., Tensor] | Tensor | float,
        noise_type: str,
        *,
        time_dependent: bool = False,
        columns: Callable[..., Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.noise = noise_type_named(noise_type)
        if not callable(drift):
            raise TypeError(f"drift is a callable or nn.Module; got {type(drift).__name__}")
        if not callable(diffusion):
            diffusion = self._constant(diffusion)
        if columns is not None and not (callable(columns) and noise_type == "general"):
            raise TypeError("columns is a callable that goes with noise_type='general'")
        for name, function in (("drift", drift), ("diffusion", diffusion), ("columns", columns)):
            if function is not None and not isinstance(function, _Constant):
                check_arguments(name, function, time_dependent)
        self.time_dependent = time_dependent
        self.drift_function = drift
        self.diffusion_function = diffusion
        self.columns_function = columns
        self.noise_varies = time_dependent and not isinstance(diffusion, _Constant)

    def drift(self, t: Time, x: Tensor) -> Tensor:
        value = self.drift_function(t, x) if self.time_dependent else self.drift_function(x)
        valid = isinstance(value, Tensor) and value.shape == x.shape
        check_output(value, x, valid=valid, what="drift", expected="the shape of x")
        return value

    def sigma(self, t: Time, x: Tensor) -> Tensor:
        value = self.diffusion_function(t, x) if self.time_dependent else self.diffusion_function(x)
        valid = isinstance(value, Tensor) and self.noise.is_valid(value, x)
        expected = f"{self.noise.returns} for {self.noise.name} noise"
        check_output(value, x, valid=valid, what="diffusion", expected=expected)
        return value

    def sum_columns(self, t: Time, points: Tensor) -> Tensor:
        if self.columns_function is None:
            return super().sum_columns(t, points)
        value = self.columns_function(t, points) if self.time_dependent else self.columns_function(points)
        valid = isinstance(value, Tensor) and value.shape == points.shape
        check_output(value, points, valid=valid, what="columns", expected="the shape of its points")
        return value.sum(-2)

    def extra_repr(self) -> str:
        return f"noise_type={self.noise.name!r}, time_dependent={self.time_dependent}"

    def _constant(self, value: Tensor | float) -> Callable[..., Tensor]:
        if self.noise.name != "additive":
            raise TypeError(
                f"diffusion is a callable or nn.Module for {self.noise.name} noise; a constant {type(value).__name__} "
                "is additive noise"
            )
        return _Constant(value)


class _Constant(torch.nn.Module):
    """A constant σ: a number in x's dtype, a parameter if it was one, else a buffer."""

    value: Tensor | float

    def __init__(self, value: Tensor | float) -> None:
        super().__init__()
        if isinstance(value, Tensor) and value.ndim not in (0, 2):
            raise ValueError(f"a constant diffusion is a number or a (dim, brownian) matrix; got {tuple(value.shape)}")
        if isinstance(value, Tensor) and not isinstance(value, torch.nn.Parameter):
            self.register_buffer("value", value)
        else:
            self.value = value

    def forward(self, *time_and_state: Tensor) -> Tensor:
        if isinstance(self.value, Tensor):
            return self.value
        x = time_and_state[-1]
        return x.new_full((), self.value)
