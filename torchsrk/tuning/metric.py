"""The Fisher metric of an ensemble: the shape of the target, from positions and gradients.

On a Gaussian the gradient is g = Λ(x - μ) at every particle, converged or not, so that C_g = ΛC_xΛ, and the solution of
ΣC_gΣ = C_x is the covariance Λ⁻¹, exactly, from dim + 1 particles that may be anywhere. Away from Gaussians Σ is what
makes x - μ and Σg most alike (the least Fisher divergence from a Gaussian), which is also how one form of it is chosen
over another: by how alike they are on particles that it was not made from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..potentials.affine import Diagonal, LowRank, Scale, Triangular
from ..sampling.signs import SHORT_HINT
from .ensemble import Ensemble

_RANK = 32  # directions of a low-rank metric that come from positions, and as many from gradients
_TINY = 1e-13  # of the largest eigenvalue: what rounding leaves of the least


@dataclass(frozen=True)
class Coordinates:
    """z with x = loc + S z, where SSᵀ = Σ."""

    loc: Tensor
    scale: Scale

    def outward(self, z: Tensor) -> Tensor:
        """x, (..., dim)."""
        return self.loc + self.scale.times(z)

    def inward(self, x: Tensor) -> Tensor:
        """z, (..., dim)."""
        return self.scale.solve(x - self.loc)

    def pull(self, gradient: Tensor) -> Tensor:
        """The gradient by z of what has this gradient by x."""
        return self.scale.transposed(gradient)


@dataclass(frozen=True)
class Standardised:
    """Particles in units in which positions and gradients spread alike, coordinate by coordinate.

    Attributes:
        x, g: positions x/s and gradients s·g, (particles, dim).
        scale: s, from quantiles, (dim,).
        weights: (particles,), that bound what a few huge gradients can do.
    """

    x: Tensor
    g: Tensor
    scale: Tensor
    weights: Tensor


Form = Callable[[Standardised], Coordinates]


def whitened(ensemble: Ensemble, held_out: Ensemble | None = None) -> Coordinates:
    """Coordinates in which particles and their gradients have one scale in all directions.

    The form of the metric (diagonal, low rank, dense) is that which does best on ``held_out``, if that is given, or on
    every other particle, made from the rest.
    """
    dtype = ensemble.x.dtype
    ensemble = _in_double(ensemble)  # what float32 can't tell apart here, it can hold
    if held_out is None:
        fit, test = ensemble.halves()
    else:
        fit, test = ensemble, _in_double(held_out)
    made_from = standardised(fit)
    trials = [(form, *_tried(form, made_from, test)) for form in _forms(fit.x)]
    best, found, _ = min(trials, key=lambda trial: trial[2])
    found = best(standardised(ensemble)) if found is None or fit is not ensemble else found
    if not bool(found.loc.isfinite().all()):
        raise ValueError(
            f"particles and gradients have no finite spread: the density is improper, or not smooth. {SHORT_HINT}"
        )
    return Coordinates(found.loc.to(dtype), found.scale.to(dtype))


def divergence(coordinates: Coordinates, ensemble: Ensemble) -> float:
    """How far particles are from a standard normal in these coordinates: the mean of ‖Sᵀg - S⁻¹(x - μ)‖², robustly."""
    off = (coordinates.pull(ensemble.gradient) - coordinates.inward(ensemble.x)).square().sum(-1)
    found = float(off.nan_to_num(math.inf, math.inf).clamp_max(4.0 * float(off.nanmedian())).mean())
    return found if found == found else math.inf


def _tried(form: Form, fit: Standardised, test: Ensemble) -> tuple[Coordinates | None, float]:
    """Its coordinates and their divergence; infinite if these particles have none: covariances may be singular."""
    try:
        found = form(fit)
        return found, divergence(found, test)
    except torch.linalg.LinAlgError:
        return None, math.inf


def _forms(x: Tensor) -> Iterator[Form]:
    """The forms that so many different particles x (particles, dim) can tell of."""
    yield diagonal_metric
    dim = x.shape[-1]
    distinct = _distinct(x, enough=dim + 2)
    if distinct >= dim + 2:
        yield dense_metric
    elif distinct >= 8:
        yield low_rank_metric


def _distinct(x: Tensor, enough: int) -> int:
    """How many rows are different; where there are enough of them, so many at least."""
    # Rows whose first entries differ do so themselves, and one column is sorted much sooner than rows are.
    found = len(x[:, 0].unique())
    return found if found >= enough else len(x.unique(dim=0))


def diagonal_metric(of: Standardised) -> Coordinates:
    """Σ = diag(√(Var x / Var g))."""
    x, g, scale, weights = of.x, of.g, of.scale, of.weights
    mean_x, spread_x = _moments(x, weights)
    mean_g, spread_g = _moments(g, weights)
    width = (spread_x.clamp_min(_TINY) / spread_g.clamp_min(_TINY)).sqrt()
    return Coordinates(scale * (mean_x - width * mean_g), Diagonal(scale * width.sqrt()))


def dense_metric(of: Standardised) -> Coordinates:
    """Σ with ΣC_gΣ = C_x."""
    return dense_coordinates(of.scale, *_covariance(of.x, of.weights), *_covariance(of.g, of.weights))


def dense_coordinates(scale: Tensor, mean_x: Tensor, cov_x: Tensor, mean_g: Tensor, cov_g: Tensor) -> Coordinates:
    """Those of the dense metric, from moments in units of ``scale``."""
    sigma = _geometric(_ridged(cov_x), _ridged(cov_g))
    factor = scale.unsqueeze(-1) * torch.linalg.cholesky(sigma)
    return Coordinates(scale * (mean_x - sigma @ mean_g), Triangular(factor))


def low_rank_metric(of: Standardised) -> Coordinates:
    """The diagonal metric, and what is beyond it in the few directions where positions or gradients vary most."""
    x, g, scale, weights = of.x, of.g, of.scale, of.weights
    (mean_x, _), (mean_g, _) = _moments(x, weights), _moments(g, weights)
    root = (weights / weights.sum()).sqrt().unsqueeze(-1)
    rows_x, rows_g = root * (x - mean_x), root * (g - mean_g)
    rank = min(_RANK, len(x) // 4)
    leading = torch.cat([torch.linalg.svd(rows, full_matrices=False)[2][:rank] for rows in (rows_x, rows_g)])
    directions = torch.linalg.qr(leading.mT)[0]
    # Towards the identity, as few particles make covariances too long.
    share, identity = 1.0 / (1.0 + 4.0 * directions.shape[-1] / len(x)), torch.eye(directions.shape[-1]).to(x)
    within = [share * (part := rows @ directions).mT @ part + (1.0 - share) * identity for rows in (rows_x, rows_g)]
    values, rotation = torch.linalg.eigh(_geometric(*within))
    made = LowRank(scale, directions @ rotation, values.sqrt())
    return Coordinates(scale * mean_x - made.times(made.transposed(mean_g / scale)), made)


def _geometric(cov_x: Tensor, cov_g: Tensor) -> Tensor:
    """The solution Σ of Σ·cov_g·Σ = cov_x: with cov_x = LLᵀ and Lᵀcov_gL = QDQᵀ, LQD^(-½)QᵀLᵀ."""
    lower = torch.linalg.cholesky(cov_x)
    values, rotation = torch.linalg.eigh(lower.mT @ cov_g @ lower)
    stretched = (lower @ rotation) * values.clamp_min(_TINY * float(values[-1])).pow(-0.25)
    return stretched @ stretched.mT


def standardised(ensemble: Ensemble) -> Standardised:
    """The particles of an ensemble in units of their own."""
    spread_x, spread_g = _spread(ensemble.x), _spread(ensemble.gradient)
    scale = common_scale(spread_x, spread_g)
    x, g = ensemble.x / scale, ensemble.gradient * scale
    length = g.norm(dim=-1)
    return Standardised(x, g, scale, bounded_weights(length, length.median()))


def common_scale(spread_x: Tensor, spread_g: Tensor) -> Tensor:
    """s with which x/s and s·g spread alike."""
    return torch.where((spread_x > 0.0) & (spread_g > 0.0), spread_x / spread_g, 1.0).sqrt()


def bounded_weights(length: Tensor, median: Tensor) -> Tensor:
    """Of gradients of these lengths: 1 up to twice the median, and such that none beyond counts for more."""
    return (2.0 * median / length.clamp_min(torch.finfo(length.dtype).tiny)).square().clamp_max(1.0)


def _spread(x: Tensor) -> Tensor:
    """Half of what lies between the 16 % and the 84 % quantile: the standard deviation of a normal."""
    ordered = x.mT.contiguous().sort(-1).values  # a row is sorted sooner than a column
    low, high = (ordered[:, place] for place in spread_places(len(x)))
    return 0.5 * (high - low)


def spread_places(rows: int) -> tuple[int, int]:
    """Of the two quantiles, among so many sorted rows."""
    return int(0.16 * (rows - 1)), int(0.84 * (rows - 1))


def _moments(x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    share = (weights / weights.sum()).unsqueeze(-1)
    mean = (share * x).sum(0)
    return mean, (share * (x - mean).square()).sum(0)


def _covariance(x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    mean, _ = _moments(x, weights)
    rows = (weights / weights.sum()).sqrt().unsqueeze(-1) * (x - mean)
    return mean, rows.mT @ rows


def _ridged(covariance: Tensor) -> Tensor:
    """With as much on its diagonal as rounding may have taken."""
    variances = covariance.diagonal()
    return covariance + torch.diag_embed(torch.full_like(variances, _TINY * float(variances.mean())))


def _in_double(ensemble: Ensemble) -> Ensemble:
    return Ensemble(ensemble.x.double(), ensemble.energy.double(), ensemble.gradient.double())
