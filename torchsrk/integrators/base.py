"""What an integrator is: one step, deterministic in the increment, and the facts that generic code reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor

from ..brownian.increment import Increment, Needs
from ..sde.base import BaseSDE, Time

_REGISTRY: dict[str, type[Integrator]] = {}


class Integrator(ABC):
    """A one-step scheme. Small, stateless and final: it draws nothing and remembers nothing.

    Attributes:
        name: what ``integrator="..."`` takes; without one a scheme is passed as an instance.
        strong_order: the mean-square order over the noise types served, additive noise aside.
        strong_order_additive: the mean-square order for additive noise.
        noise_types: the noise types served.
        needs: what the scheme asks of the Brownian path; see ``required`` for commutative noise.
        gradients_per_step: evaluations of the drift in a step.
    """

    name: ClassVar[str] = ""
    strong_order: ClassVar[float]
    strong_order_additive: ClassVar[float]
    noise_types: ClassVar[tuple[str, ...]]
    needs: ClassVar[Needs]
    gradients_per_step: ClassVar[int]

    def __init_subclass__(cls) -> None:
        if "name" in vars(cls):
            _REGISTRY[cls.name] = cls

    @abstractmethod
    def step(self, sde: BaseSDE, t: Time, x: Tensor, increment: Increment) -> Tensor:
        """The state at t + increment.dt from the state x (..., dim) at t."""

    def required(self, sde: BaseSDE) -> Needs:
        """What the scheme needs for this SDE: commutative noise needs no Lévy area."""
        if self.needs is Needs.LEVY_AREA and sde.noise.commutative:
            return Needs.INCREMENT
        return self.needs

    def check(self, sde: BaseSDE) -> None:
        """Raise if this scheme does not serve the SDE's noise, naming those that do."""
        if sde.noise.name not in self.noise_types:
            able = sorted(scheme.name for scheme in _REGISTRY.values() if sde.noise.name in scheme.noise_types)
            raise ValueError(
                f"{type(self).__name__} serves {' and '.join(self.noise_types)} noise, and this {type(sde).__name__} "
                f"has {sde.noise.name} noise. Schemes that serve it: {', '.join(map(repr, able))}."
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def integrator_named(integrator: Integrator | str) -> Integrator:
    """An integrator from itself or from its name."""
    if isinstance(integrator, Integrator):
        return integrator
    if isinstance(integrator, str) and integrator in _REGISTRY:
        return _REGISTRY[integrator]()
    raise ValueError(
        f"unknown integrator {integrator!r}; choose from {', '.join(map(repr, sorted(_REGISTRY)))}, or pass an instance"
    )
