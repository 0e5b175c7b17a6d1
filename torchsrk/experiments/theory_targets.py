"""The targets that plans are made for, the starts, and the bounds that apply there."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Literal

import torch
from torch import Tensor

from ..potentials import GaussianMixture, LogisticRegression, NonConvex, Potential
from ..theory import (
    Bound,
    Smoothness,
    certified,
    cheng,
    dalalyan_karagulyan,
    dalalyan_karagulyan_hessian,
    durmus_moulines,
    non_convex_constants,
    shen_lee,
    theorem_one_cheng,
    theorem_one_em,
    theorem_one_em_ito,
    theorem_one_midpoint,
    theorem_one_srk_id,
    theorem_one_srk_ld,
)
from .config import ConfigError, Count, Dimension, Positive, Range, Seed
from .scheme_targets import Quadratic, even_curvatures
from .targets import SEPARATION

TARGETS = ("gaussian", "mixture", "regression", "non-convex")
_OVERDAMPED = (dalalyan_karagulyan, dalalyan_karagulyan_hessian, durmus_moulines)
_UNDERDAMPED = (cheng, shen_lee, theorem_one_cheng, theorem_one_midpoint)
_DESCENT = 5000  # steps of gradient descent


@dataclass(frozen=True)
class Settings:
    """Chains start from a point, and from N(shift, I) along a on the mixture; the shift is in every coordinate of the
    Gaussian, along a of the mixture, and off the minimiser along the diagonal on the others."""

    errors: tuple[Positive, ...]  # ε
    targets: tuple[Literal["gaussian", "mixture", "regression", "non-convex"], ...] = TARGETS  # type: ignore[assignment]
    dim: Dimension = 10  # of the Gaussian and the mixture
    condition: Annotated[float, Range(1.0, 1e6)] = 10.0  # of the Gaussian: curvatures from 1, evenly in their logarithm
    shift: Annotated[float, Range(0.1, 20.0)] = 3.0
    per_decade: Annotated[int, Range(3, 100)] = 10  # step sizes that laws are tried at
    smallest: Annotated[float, Range(1e-4, 0.5)] = 0.01  # of these, times L
    observations: Count = 50  # of the regression, in two dimensions
    data_seed: Seed = 0
    beta: Positive = 0.33  # of the non-convex target, on a line
    gamma: Positive = 0.5

    def __post_init__(self) -> None:
        if max(self.errors) >= self.shift:
            raise ConfigError(
                f"errors: below shift ({self.shift:g}), which the start is away at least: no step is needed for "
                f"{max(self.errors):g}"
            )
        self._check_constants("non-convex", "beta, gamma", lambda: non_convex_constants(hills_of(self)))
        self._check_constants("regression", "observations", lambda: smoothness_of(self, "regression"))

    def _check_constants(self, target: str, keys: str, find: Callable[[], object]) -> None:
        """One clear error where no bound applies to a target."""
        if target not in self.targets:
            return
        try:
            find()
        except ValueError as error:
            raise ConfigError(f"{keys}: no bound applies to {target} with these: {error}") from error


def bounds_of(settings: Settings, target: str) -> list[Bound]:
    """All that apply to a target, from this start."""
    if target == "non-convex":
        hills, away = hills_of(settings), settings.shift
        constants = non_convex_constants(hills)
        start = away + math.sqrt(hills.second_moment())
        return [make(constants, start=start, radius=away) for make in (theorem_one_em_ito, theorem_one_srk_id)]
    f, start, radius = smoothness_of(settings, target), start_of(settings, target), radius_of(settings, target)
    found = [make(f, start=start) for make in _OVERDAMPED]
    found += [make(f, start=start, radius=radius) for make in (theorem_one_em, theorem_one_srk_ld)]
    return found + [make(f, start=start) for make in _UNDERDAMPED]


def potential_of(settings: Settings, target: str) -> Potential:
    """In double precision."""
    if target == "gaussian":
        curvatures = even_curvatures(settings.dim, settings.condition)
        return Quadratic(torch.zeros_like(curvatures), curvatures)
    if target == "mixture":
        return GaussianMixture(torch.full((settings.dim,), SEPARATION / math.sqrt(settings.dim), dtype=torch.float64))
    if target == "regression":
        return LogisticRegression.synthetic(settings.observations, 2, seed=settings.data_seed, dtype=torch.float64)
    return hills_of(settings)


def hills_of(settings: Settings) -> NonConvex:
    return NonConvex(beta=settings.beta, gamma=settings.gamma, dim=1)


def smoothness_of(settings: Settings, target: str) -> Smoothness:
    return certified(potential_of(settings, target))


@cache
def minimiser_of(settings: Settings) -> Tensor:
    """Of the regression's potential, (2,)."""
    potential, f = potential_of(settings, "regression"), smoothness_of(settings, "regression")
    x = torch.zeros(1, 2, dtype=torch.float64)
    for _ in range(_DESCENT):
        x = x - potential.grad(x) / f.smoothness
    return x[0]


def start_of(settings: Settings, target: str) -> float:
    """W2 between the start and the target, or a bound on it."""
    if target == "gaussian":
        spread = float((1.0 / even_curvatures(settings.dim, settings.condition)).sum())
        return math.sqrt(settings.dim * settings.shift**2 + spread)
    if target == "mixture":  # with the same normals, and a sign that is independent of them
        return math.hypot(settings.shift, SEPARATION)
    f = smoothness_of(settings, target)
    return settings.shift + math.sqrt(f.dim / f.strong_convexity)


def radius_of(settings: Settings, target: str) -> float:
    """Whose powers bound the start's moments up to the sixth."""
    if target == "gaussian":
        return settings.shift * math.sqrt(settings.dim)
    return math.sqrt(settings.shift**2 + settings.dim + 4) if target == "mixture" else settings.shift
