"""The targets that schemes are compared on, each with its means and its principal axes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

import torch
from torch import Tensor

from ..brownian.noise import Stream, derive_seed, fill_normal
from ..potentials import Banana, LogisticRegression, Potential
from .base import Context
from .config import ConfigError, Count, Dimension, Positive, Range, Seed, nearest
from .targets import mixture, regression

_NEWTON_STEPS = 30
_ROUNDS, _CHUNK = (16_000, 128_000), 4_000  # draws of the regression's importance sampling
KINDS = ("mixture", "regression", "gaussian", "banana")
_SEED = 11  # of a run's seeds, the one for these draws


@dataclass(frozen=True)
class Target:
    """A target, what is to be reached there, and with how many particles it is told.

    ``tolerance`` is of W2 on the Gaussian, whose laws are known; elsewhere of the worst relative error of a second
    moment about the true mean, its two parts (variance, squared error of the mean) included. ``particles`` make pairs
    with a chain on a Gaussian of known law; where there is none, ``many`` are taken.
    """

    kind: str
    dim: Dimension
    tolerance: Annotated[float, Range(1e-4, 1.0)]
    particles: Annotated[int, Range(100, 10**8)]
    many: Annotated[int, Range(100, 10**8)]
    timed: bool = True
    start: Annotated[float, Range(0.1, 20.0)] = 3.0  # standard deviations off, along every principal axis
    time: Annotated[float, Range(3.0, 1000.0)] = 10.0  # that chains are followed; the last third is taken as their law
    observations: Count = 1000  # of the regression
    data_seed: Seed = 0
    condition: Annotated[float, Range(1.0, 1e6)] = (
        100.0  # of the Gaussian: curvatures from 1, evenly in their logarithm
    )
    spread: Positive = 1.0  # of the banana

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(
                f"kind: expected one of {', '.join(KINDS)}; got {self.kind!r}{nearest(self.kind, KINDS)}. Errors "
                "are told here from moments that are known of these, and a potential of your own, registered or not, "
                "brings none along: `torchsrk sample` draws from it, and says how far a step's law is off"
            )
        if self.kind == "banana" and self.dim != 2:
            raise ConfigError(f"dim: a banana has 2; got {self.dim}")


class Quadratic(Potential):
    """f(x) = ½(x - μ)ᵀP(x - μ), of P (dim, dim) or its diagonal (dim,)."""

    dim: int
    center: Tensor
    precision: Tensor

    def __init__(self, center: Tensor, precision: Tensor) -> None:
        super().__init__()
        self.register_buffer("center", center)
        self.register_buffer("precision", precision)
        self.dim = len(center)
        curvatures = precision if precision.ndim == 1 else torch.linalg.eigvalsh(precision.double())
        self.strong_convexity, self.smoothness = float(curvatures.min()), float(curvatures.max())
        self.hessian_lipschitz = self.third_derivative_lipschitz = 0.0

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * (self.grad(x) * (x - self.center)).sum(-1)

    def grad(self, x: Tensor) -> Tensor:
        apart = x - self.center
        return apart * self.precision if self.precision.ndim == 1 else apart @ self.precision


@dataclass(frozen=True)
class Case:
    """A target and its truth.

    Attributes:
        mean: (dim,), and ``axes`` (dim, dim), the principal axes as columns, ``curvatures`` (dim,) one over the
            variances along them: all in double precision.
        groups: (dim, groups), averages over axes that are alike by symmetry.
        companion: the Gaussian of the same moments, which chains are coupled with; None where that would not help.
        is_dear: the target's gradient costs far more than the companion's.
        is_gaussian: the target is its axes' Gaussian.
    """

    potential: Potential
    mean: Tensor
    axes: Tensor
    curvatures: Tensor
    groups: Tensor
    companion: Quadratic | None = None
    is_dear: bool = False
    is_gaussian: bool = False

    @property
    def softest(self) -> float:
        return float(self.curvatures.min())

    @property
    def stiffest(self) -> float:
        return float(self.curvatures.max())

    def modes(self) -> Quadratic:
        """The Gaussian of the same moments along its axes, in double precision on the CPU."""
        return Quadratic(torch.zeros_like(self.curvatures), self.curvatures)

    def start(self, deviations: float) -> Tensor:
        """(dim,): so many standard deviations off along every axis."""
        return self.mean + self.axes @ (deviations * self.curvatures.rsqrt())

    def standardized(self, x: Tensor) -> Tensor:
        """Points (..., dim) along the axes, in standard deviations."""
        scaled = self.axes * self.curvatures.sqrt()
        return (x - self.mean.to(x)) @ scaled.to(x)


def case_of(target: Target, context: Context) -> Case:
    """The target, on the context's device and in its dtype."""
    kinds = {"mixture": _mixture, "regression": _regression, "gaussian": _gaussian, "banana": _banana}
    return kinds[target.kind](target, context)


def _mixture(target: Target, context: Context) -> Case:
    """Second moments are 1, and 1 + ‖a‖² along a: across a all axes are alike."""
    potential = mixture(target.dim, context)
    shift = potential.shift.double().cpu()
    values, axes = torch.linalg.eigh(torch.eye(target.dim, dtype=torch.float64) + shift.outer(shift))
    groups = torch.zeros(target.dim, min(target.dim, 2), dtype=torch.float64)
    groups[-1, -1] = 1.0
    groups[:-1, 0] = 1.0 / max(1, target.dim - 1)
    return _with_companion(potential, torch.zeros_like(shift), _signed(axes), 1.0 / values, groups, context)


def even_curvatures(dim: int, condition: float) -> Tensor:
    """(dim,), from 1 to the condition number, evenly in their logarithm."""
    return condition ** (torch.arange(dim, dtype=torch.float64) / max(1, dim - 1))


def _gaussian(target: Target, context: Context) -> Case:
    curvatures, identity = even_curvatures(target.dim, target.condition), torch.eye(target.dim, dtype=torch.float64)
    potential = Quadratic(torch.zeros_like(curvatures), curvatures).to(context.device, context.dtype)
    return Case(potential, torch.zeros_like(curvatures), identity, curvatures, identity, is_gaussian=True)


def _banana(target: Target, context: Context) -> Case:
    """No Gaussian moves as this does: chains are on their own."""
    potential, identity = Banana(target.spread), torch.eye(2, dtype=torch.float64)
    mean, variance = (torch.tensor(pair, dtype=torch.float64) for pair in (potential.mean(), potential.variance()))
    return Case(potential, mean, identity, 1.0 / variance, identity)


def _regression(target: Target, context: Context) -> Case:
    potential = regression(target.observations, target.dim, target.data_seed, context)
    mean, covariance, _ = regression_moments(target, context.seed)
    values, axes = torch.linalg.eigh(covariance)
    identity = torch.eye(target.dim, dtype=torch.float64)
    return _with_companion(potential, mean, _signed(axes), 1.0 / values, identity, context, is_dear=True)


def _with_companion(
    potential: Potential,
    mean: Tensor,
    axes: Tensor,
    curvatures: Tensor,
    groups: Tensor,
    context: Context,
    *,
    is_dear: bool = False,
) -> Case:
    companion = Quadratic(mean, (axes * curvatures) @ axes.mT).to(context.device, context.dtype)
    return Case(potential, mean, axes, curvatures, groups, companion, is_dear)


def _signed(axes: Tensor) -> Tensor:
    """With a largest entry that is positive, so that a start does not depend on who decomposes."""
    largest = axes.gather(0, axes.abs().argmax(0, keepdim=True))
    return axes * largest.sign()


@lru_cache(maxsize=4)
def regression_moments(target: Target, seed: int) -> tuple[Tensor, Tensor, float]:
    """Mean and covariance of the posterior in double precision, and the share of the draws that the weights leave.

    By importance sampling, from the Gaussian at the mode and then from that of the moments found. The posterior is so
    near to it that weights hardly vary: what is sampled is the difference from the Gaussian's own moments.
    """
    posterior = LogisticRegression.synthetic(
        target.observations, target.dim, seed=target.data_seed, dtype=torch.float64
    )
    mean = torch.zeros(target.dim, dtype=torch.float64)
    for _ in range(_NEWTON_STEPS):
        curvature = _hessian(posterior, mean)
        mean = mean - torch.linalg.solve(curvature, posterior.grad(mean))
    covariance, share = torch.linalg.inv(curvature), 0.0
    for number, draws in enumerate(_ROUNDS):
        seed_of_round = derive_seed(seed, _SEED + number)
        mean, covariance, share = _reweighted(posterior, mean, covariance, draws, seed_of_round)
    return mean, covariance, share


def _reweighted(
    posterior: LogisticRegression, mean: Tensor, covariance: Tensor, draws: int, seed: int
) -> tuple[Tensor, Tensor, float]:
    """The posterior's moments from draws of a Gaussian, in pairs of opposites."""
    normals = torch.empty(draws // 2, len(mean), dtype=torch.float64)
    fill_normal(normals, seed=seed, stream=Stream.EXACT_DRAW)
    normals = torch.cat((normals, -normals))
    apart = normals @ torch.linalg.cholesky(covariance).mT
    energy = torch.cat([posterior(mean + part) for part in apart.split(_CHUNK)])
    excess = energy - 0.5 * normals.square().sum(-1)
    weights = (excess.min() - excess).exp()
    weights = weights / weights.mean()
    shift = (weights.unsqueeze(-1) * apart).mean(0)
    change = ((weights - 1.0).unsqueeze(-1) * apart).mT @ apart / draws
    return mean + shift, covariance + change - shift.outer(shift), float(1.0 / weights.square().mean())


def _hessian(posterior: LogisticRegression, x: Tensor) -> Tensor:
    """Σ p(1 - p)xxᵀ + αΣ_X."""
    chance = torch.sigmoid(posterior.features @ x)
    weighted = posterior.features * (chance * (1.0 - chance)).unsqueeze(-1)
    return posterior.features.mT @ weighted + posterior.alpha * posterior.covariance
