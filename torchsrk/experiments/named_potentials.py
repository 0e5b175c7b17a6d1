"""Potentials that a YAML file names, each with its numbers; a name that is not here is refused, so that no file chooses
what is imported."""

from __future__ import annotations

from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

import torch

from ..potentials import Banana, NonConvex, Potential
from .base import Context
from .config import ConfigError, Count, Dimension, OneOf, Positive, Range, Seed, build, plain, read_yaml
from .scheme_targets import Quadratic, even_curvatures
from .targets import mixture, regression


class _Named(Protocol):
    def potential(self, context: Context) -> Potential: ...


@dataclass(frozen=True)
class _Mixture:
    """½N(a, I) + ½N(-a, I), ‖a‖² = ½."""

    dim: Dimension = 20

    def potential(self, context: Context) -> Potential:
        return mixture(self.dim, context)


@dataclass(frozen=True)
class _Regression:
    """Bayesian logistic regression on synthetic data."""

    dim: Dimension = 20
    observations: Count = 1000
    data_seed: Seed = 0

    def potential(self, context: Context) -> Potential:
        return regression(self.observations, self.dim, self.data_seed, context)


@dataclass(frozen=True)
class _Gaussian:
    """With curvatures from 1 to the condition number."""

    dim: Dimension = 20
    condition: Annotated[float, Range(1.0, 1e6)] = 100.0

    def potential(self, context: Context) -> Potential:
        curvatures = even_curvatures(self.dim, self.condition).to(context.device, context.dtype)
        return Quadratic(torch.zeros_like(curvatures), curvatures)


@dataclass(frozen=True)
class _Banana:
    spread: Positive = 1.0

    def potential(self, context: Context) -> Potential:
        return Banana(self.spread)


@dataclass(frozen=True)
class _NonConvex:
    """The paper's target with heavy tails."""

    dim: Dimension = 3
    beta: Positive = 2.0
    gamma: Positive = 0.5

    def potential(self, context: Context) -> Potential:
        return NonConvex(beta=self.beta, gamma=self.gamma, dim=self.dim)


_KINDS: dict[str, type[_Named]] = {
    "mixture": _Mixture,
    "regression": _Regression,
    "gaussian": _Gaussian,
    "banana": _Banana,
    "non-convex": _NonConvex,
}
NAMES = tuple(_KINDS)


def register_potential(name: str, kind: type[_Named]) -> None:
    """Let YAML files name a potential of the user's own, for ``torchsrk sample FILE.yaml --import MODULE``.

    ``kind`` is a frozen dataclass: its fields are the file's other keys, and ``potential(context)`` makes the potential
    in ``context.dtype`` and on ``context.device``.
    """
    if not is_dataclass(kind) or not hasattr(kind, "potential"):
        raise TypeError(f"{kind!r} is no dataclass with a method potential(context)")
    if name in NAMES:
        raise ValueError(f"{name!r} is the name of one of torchsrk's own potentials: choose another")
    _KINDS[name] = kind


def _names() -> tuple[str, ...]:
    return tuple(_KINDS)


def potential_in(file: Path, context: Context) -> tuple[Potential, dict[str, Any]]:
    """The potential that a file names by its key ``target``, and all of its settings."""
    written = read_yaml(file)
    if "target" not in written:
        raise ConfigError(f"{file}: target: this key is missing: it is one of {', '.join(_KINDS)}")
    kind = written.pop("target")
    try:
        name = build(Annotated[str, OneOf(_names)], kind, file=str(file), key="target")
    except ConfigError as error:
        is_code = isinstance(kind, str) and ":" in kind
        hint = ". A config can't run code: give MODULE:NAME to the command itself" if is_code else ""
        raise ConfigError(f"{error}{hint}") from None
    settings = build(_KINDS[name], written, file=str(file))
    return settings.potential(context), {"target": name, **plain(settings)}
