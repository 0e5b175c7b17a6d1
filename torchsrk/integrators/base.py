"""What an integrator is: one step, deterministic in the increment, and the facts that generic code reads."""

from __future__ import annotations

import inspect
import os
import sys
from abc import ABC, abstractmethod
from functools import cache
from types import FunctionType
from typing import ClassVar

from torch import Tensor

from ..brownian.increment import Increment, Needs
from ..names import nearest
from ..sde.base import BaseSDE, Normals, Time

_REGISTRY: dict[str, type[Integrator]] = {}

EVERY_NOISE = ("additive", "diagonal", "scalar", "isotropic", "general")


class Integrator(ABC):
    """A one-step scheme. Small, stateless and final: it remembers nothing between steps but the state.

    A state is one tensor (..., width). Its first entries are the SDE's own, x or (q, v); after them a scheme may keep
    more, such as a gradient. What a user sees is the position.

    Attributes:
        name: what ``integrator="..."`` takes; without one a scheme is passed as an instance.
        strong_order: the mean-square order over the noise types served, additive noise aside; None where there is none.
        strong_order_additive: the mean-square order for additive noise.
        law_order: the order in h at which the law at stationarity errs; infinite if it does not, None if not known.
        noise_types: the noise types served.
        serves: the classes of SDE served.
        needs: what a step asks for of the noise; see ``required`` for commutative noise.
        position_needs: what ``position`` asks for of the next step's noise.
        differentiable: gradients reach through a step; not through accepting or rejecting.
        equal_steps: the state stands on all steps having one length.
        gradients_per_step: evaluations of the drift in a step.
        substeps: how many increments a step reads, of steps that are as many times shorter: see ``Increment.apart``.
    """

    name: ClassVar[str] = ""
    strong_order: ClassVar[float | None] = None
    strong_order_additive: ClassVar[float | None] = None
    law_order: ClassVar[float | None] = None
    noise_types: ClassVar[tuple[str, ...]] = ("additive",)
    serves: ClassVar[tuple[type[BaseSDE], ...]] = (BaseSDE,)
    needs: ClassVar[Needs] = Needs.INCREMENT
    position_needs: ClassVar[Needs] = Needs.NOTHING
    differentiable: ClassVar[bool] = True
    equal_steps: ClassVar[bool] = False
    gradients_per_step: ClassVar[int]
    substeps: int = 1

    def __init_subclass__(cls) -> None:
        _check_facts(cls)
        if not vars(cls).get("name"):
            return
        known = _REGISTRY.get(cls.name, cls)
        # The same class may be defined again, as a notebook's cell does, and a file that is run under two names.
        if _home(known) != _home(cls):
            raise ValueError(
                f"{cls.__name__}: the name {cls.name!r} is that of {known.__module__}.{known.__qualname__}, and what "
                "asks for it must not get another scheme: choose another name, or none and pass instances"
            )
        _REGISTRY[cls.name] = cls

    def init(self, sde: BaseSDE, t: Time, x: Tensor, dt: float, normals: Normals) -> Tensor:
        """The state (..., width) of particles at positions x (..., dim), before steps of length dt.

        ``normals(like)`` draws standard normals of a tensor's shape; a scheme calls it once at most.
        """
        return sde.start(x, normals)

    @abstractmethod
    def step(self, sde: BaseSDE, t: Time, state: Tensor, increment: Increment) -> Tensor:
        """The state at t + increment.dt from the state (..., width) at t."""

    def position(self, sde: BaseSDE, t: Time, state: Tensor, increment: Increment | None) -> Tensor:
        """Positions (..., dim) of a state at t. ``increment`` is the next step's, if ``position_needs`` asks for it."""
        return sde.position(state)

    def compose(self, sde: BaseSDE, first: Increment, second: Increment) -> Increment:
        """The increment of one step twice as long that follows the path of two: by it two step sizes share a path."""
        return first.then(second)

    def tallies(self, state: Tensor) -> dict[str, Tensor]:
        """What a state has counted so far, (...) each, such as proposals accepted: a run reports it for each step."""
        return {}

    def required(self, sde: BaseSDE) -> Needs:
        """What the scheme needs for this SDE: commutative noise needs no Lévy area."""
        return self.needs & ~Needs.LEVY_AREA if sde.noise.commutative else self.needs

    def check(self, sde: BaseSDE) -> None:
        """Raise if this scheme does not serve the SDE, naming those that do."""
        if self.is_for(sde):
            return
        asked = " or ".join(kind.__name__ for kind in self.serves if kind is not BaseSDE)
        wanted = [f"an SDE of class {asked}"] if asked else []
        if len(self.noise_types) < len(EVERY_NOISE):
            wanted.append(f"{' and '.join(self.noise_types)} noise")
        able = sorted(name for name, scheme in _REGISTRY.items() if name and scheme.is_for(sde))
        raise ValueError(
            f"{type(self).__name__} serves {' with '.join(wanted)}, and this {type(sde).__name__} has {sde.noise.name} "
            f"noise. Schemes that serve it: {', '.join(map(repr, able))}."
        )

    @classmethod
    def is_for(cls, sde: BaseSDE) -> bool:
        """Whether the scheme serves an SDE."""
        return isinstance(sde, cls.serves) and sde.noise.name in cls.noise_types

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({given})"


def registered() -> dict[str, type[Integrator]]:
    """Every scheme that has a name, by it."""
    return dict(_REGISTRY)


def integrator_named(integrator: Integrator | str) -> Integrator:
    """An integrator from itself or from its name."""
    if isinstance(integrator, Integrator):
        return integrator
    if isinstance(integrator, str) and integrator in _REGISTRY:
        return _by_name(_REGISTRY[integrator])
    if isinstance(integrator, type) and issubclass(integrator, Integrator):
        made = _made(integrator)
        raise ValueError(f"{integrator.__name__} is a class: pass an instance, {made} instead of {integrator.__name__}")
    meant = nearest(integrator.lower(), list(_REGISTRY)) if isinstance(integrator, str) else ""
    names = ", ".join(map(repr, sorted(_REGISTRY)))
    raise ValueError(f"unknown integrator {integrator!r}{meant}; choose from {names}, or pass an instance")


def _home(scheme: type[Integrator]) -> tuple[str, str]:
    """Where a class is written."""
    file = getattr(sys.modules.get(scheme.__module__), "__file__", None)
    return (scheme.__module__ if file is None else os.path.realpath(file)), scheme.__qualname__


def _by_name(scheme: type[Integrator]) -> Integrator:
    if _missing(scheme):
        raise TypeError(
            f"{scheme.name!r} alone does not say what {scheme.__name__} takes: pass an instance, {_made(scheme)}, or "
            "give its arguments defaults"
        )
    return scheme()


def _made(scheme: type[Integrator]) -> str:
    """How an instance is made, in code."""
    return f"{scheme.__name__}({', '.join(f'{name}=...' for name in _missing(scheme))})"


@cache
def _missing(scheme: type[Integrator]) -> list[str]:
    """The arguments without defaults; looked up once: Python reads a signature's text anew every time."""
    given = inspect.signature(scheme).parameters.values()
    return [each.name for each in given if each.default is each.empty and each.kind not in _TAKES_NONE]


_TAKES_NONE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _check_facts(scheme: type[Integrator]) -> None:
    """One clear error where a class is defined, for what generic code would stumble over later."""
    _check_spelling(scheme)
    if not isinstance(scheme.name, str):
        raise TypeError(f"{scheme.__name__}: name is a string, as integrator= takes it; got {scheme.name!r}")
    types = scheme.noise_types
    if not isinstance(types, tuple) or not types or not set(types) <= set(EVERY_NOISE):
        raise ValueError(
            f'{scheme.__name__}: noise_types is a tuple of the noise types served, as ("additive",), of '
            f"{', '.join(map(repr, EVERY_NOISE))}; got {types!r}"
        )
    if not isinstance(scheme.needs, (Needs, property)):
        raise TypeError(f"{scheme.__name__}: needs is as Needs.INCREMENT or Needs.LEVY_AREA; got {scheme.needs!r}")
    count = getattr(scheme, "gradients_per_step", None)
    counts = isinstance(count, property) or (isinstance(count, int) and not isinstance(count, bool) and count >= 0)
    if "step" in vars(scheme) and not counts:
        raise TypeError(
            f"{scheme.__name__} defines a step, and not what it costs: set gradients_per_step, how often a step "
            f"evaluates the drift, an integer{'' if count is None else f'; got {count!r}'}"
        )


def _check_spelling(scheme: type[Integrator]) -> None:
    """Refuse a name that is almost one of those which generic code reads, and would never be read."""
    own = vars(scheme)
    known = [name for name in {**vars(Integrator), **Integrator.__annotations__} if name[0] != "_"]
    for name in own:
        # Beside `step` a helper may be called `steps`, and beside `substeps` one `substep`.
        meant = nearest(name, [other for other in known if other not in own], _MISSPELT)
        is_helper = isinstance(own[name], FunctionType) and any(
            name.startswith(other) or other.startswith(name) for other in known
        )
        if name[0] != "_" and name not in known and meant and not is_helper:
            raise TypeError(
                f"{scheme.__name__}: nobody reads {name} of a scheme{meant}: spell it so, or begin a name of your own "
                f"with an underscore, as _{name}"
            )


_MISSPELT = 0.85  # "need" for "needs", and not "order" for "law_order"
