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


Form = Callable[[Ensemble], Coordinates]


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
    trials = [(form, *_tried(form, fit, test)) for form in _forms(fit)]
    best, found, _ = min(trials, key=lambda trial: trial[2])
    found = best(ensemble) if found is None or fit is not ensemble else found
    if not bool(found.loc.isfinite().all()):
        raise ValueError("particles and gradients have no finite spread: the density is improper, or not smooth")
    return Coordinates(found.loc.to(dtype), found.scale.to(dtype))


def divergence(coordinates: Coordinates, ensemble: Ensemble) -> float:
    """How far particles are from a standard normal in these coordinates: the mean of ‖Sᵀg - S⁻¹(x - μ)‖², robustly."""
    off = (coordinates.pull(ensemble.gradient) - coordinates.inward(ensemble.x)).square().sum(-1)
    found = float(off.nan_to_num(math.inf, math.inf).clamp_max(4.0 * float(off.nanmedian())).mean())
    return found if found == found else math.inf


def _tried(form: Form, fit: Ensemble, test: Ensemble) -> tuple[Coordinates | None, float]:
    """Its coordinates and their divergence; infinite if these particles have none: covariances may be singular."""
    try:
        found = form(fit)
        return found, divergence(found, test)
    except torch.linalg.LinAlgError:
        return None, math.inf


def _forms(ensemble: Ensemble) -> Iterator[Form]:
    yield diagonal_metric
    dim = ensemble.x.shape[-1]
    distinct = len(torch.unique(ensemble.x, dim=0))
    if distinct >= dim + 2:
        yield dense_metric
    elif distinct >= 8:
        yield low_rank_metric


def diagonal_metric(ensemble: Ensemble) -> Coordinates:
    """Σ = diag(√(Var x / Var g))."""
    x, g, scale, weights = _standardised(ensemble)
    mean_x, spread_x = _moments(x, weights)
    mean_g, spread_g = _moments(g, weights)
    width = (spread_x.clamp_min(_TINY) / spread_g.clamp_min(_TINY)).sqrt()
    return Coordinates(scale * (mean_x - width * mean_g), Diagonal(scale * width.sqrt()))


def dense_metric(ensemble: Ensemble) -> Coordinates:
    """Σ with ΣC_gΣ = C_x."""
    x, g, scale, weights = _standardised(ensemble)
    (mean_x, cov_x), (mean_g, cov_g) = _covariance(x, weights), _covariance(g, weights)
    sigma = _geometric(cov_x, cov_g)
    factor = scale.unsqueeze(-1) * torch.linalg.cholesky(sigma)
    return Coordinates(scale * (mean_x - sigma @ mean_g), Triangular(factor))


def low_rank_metric(ensemble: Ensemble) -> Coordinates:
    """The diagonal metric, and what is beyond it in the few directions where positions or gradients vary most."""
    x, g, scale, weights = _standardised(ensemble)
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


def _standardised(ensemble: Ensemble) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x/s and s·g with s from quantiles, s, and weights that bound what a few huge gradients can do."""
    spread_x, spread_g = _spread(ensemble.x), _spread(ensemble.gradient)
    usable = (spread_x > 0.0) & (spread_g > 0.0)
    scale = torch.where(usable, spread_x / spread_g, 1.0).sqrt()
    x, g = ensemble.x / scale, ensemble.gradient * scale
    length = g.norm(dim=-1)
    weights = (2.0 * length.median() / length.clamp_min(torch.finfo(x.dtype).tiny)).square().clamp_max(1.0)
    return x, g, scale, weights


def _spread(x: Tensor) -> Tensor:
    """Half of what lies between the 16 % and the 84 % quantile: the standard deviation of a normal."""
    ordered = x.sort(0).values
    low, high = ordered[int(0.16 * (len(x) - 1))], ordered[int(0.84 * (len(x) - 1))]
    return 0.5 * (high - low)


def _moments(x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    share = (weights / weights.sum()).unsqueeze(-1)
    mean = (share * x).sum(0)
    return mean, (share * (x - mean).square()).sum(0)


def _covariance(x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    mean, _ = _moments(x, weights)
    rows = (weights / weights.sum()).sqrt().unsqueeze(-1) * (x - mean)
    covariance = rows.mT @ rows
    ridge = _TINY * float(covariance.diagonal().mean())
    return mean, covariance + torch.diag_embed(torch.full_like(mean, ridge))


def _in_double(ensemble: Ensemble) -> Ensemble:
    return Ensemble(ensemble.x.double(), ensemble.energy.double(), ensemble.gradient.double())
