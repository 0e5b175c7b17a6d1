"""Schemes around a scheme."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..brownian.increment import Increment, Needs
from ..sde.base import BaseSDE
from .base import Integrator


class Wrapped(Integrator):
    """Another scheme with something changed about it. What generic code reads of it is that of the scheme within."""

    gradients_per_step = 1  # of an instance, as all facts below, that of its scheme

    def __init__(self, scheme: Integrator) -> None:
        if not isinstance(scheme, Integrator):
            given = f"the class {scheme.__name__}" if isinstance(scheme, type) else type(scheme).__name__
            raise TypeError(f"scheme is an Integrator, an instance such as EulerMaruyama(); got {given}")
        self.scheme, self.substeps = scheme, scheme.substeps

    def compose(self, sde: BaseSDE, first: Increment, second: Increment) -> Increment:
        return self.scheme.compose(sde, first, second)

    def tallies(self, state: Tensor) -> dict[str, Tensor]:
        return self.scheme.tallies(state)

    def required(self, sde: BaseSDE) -> Needs:
        return self.scheme.required(sde)

    def check(self, sde: BaseSDE) -> None:
        self.scheme.check(sde)

    def __getattribute__(self, name: str) -> Any:
        if name in _FACTS:
            return getattr(super().__getattribute__("scheme"), name)
        return super().__getattribute__(name)


_FACTS = frozenset(
    (
        *("name", "strong_order", "strong_order_additive", "law_order", "noise_types", "serves", "needs"),
        *("position_needs", "differentiable", "equal_steps", "gradients_per_step", "is_for"),
    )
)
