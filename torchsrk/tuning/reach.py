"""From anywhere to the typical set: particles descend as far as a typical energy, and no further.

Every particle descends on its own by L-BFGS, preconditioned by the ensemble's Fisher metric, so that it knows the
curvature where it is. The length λ = √(gᵀHg) of a gradient g in its local metric H says how far it is from the bottom:
λ² is about dim in the typical set, and a particle stops there. One that went on to the mode would run down the neck of
a funnel, and all would meet in one point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .ensemble import HALVES, Ensemble
from .metric import whitened
from .requests import Asking, Points, Show

_MEMORY = 8  # pairs of steps and changes of gradients
_ARRIVED = 2.0  # λ²/dim up to which a particle has arrived
_LEFT = 0.02  # of the particles that may be on their way still
_MOST_STEPS = 200
_PATIENCE = 3  # failures of a direction before steps go by signs alone
_FIRST_SIGN_STEP, _LARGEST_SIGN_STEP = 0.1, 2.0
_FIRST_RADIUS = 2.0  # of a move, in spreads of the start, coordinate by coordinate; doubled whenever it is reached
_BEHIND = 0.05  # the quantile of energies that others are behind of


@dataclass(frozen=True)
class Reached:
    """Where particles arrived, after how many rounds, and which share had to start again at others."""

    ensemble: Ensemble
    rounds: int
    on_the_way: float
    restarted: float


def reach(x: Tensor, *, seed: int) -> Asking[Reached]:
    """Particles from x (particles, dim), taken to the typical set.

    Raises:
        ValueError: the density is finite at no particle, or is the same at all of them.
    """
    ensemble = _with_density((yield Points(x)), seed)
    descent = _Descent(ensemble)
    half = 0
    for rounds in range(_MOST_STEPS):
        if rounds < 4 or rounds % 4 == 0:
            descent.see()
        far = descent.aim()
        share = float(far.double().mean())
        yield Show(f"{1.0 - share:.0%} of the particles have arrived")
        half = rounds if share > 0.5 else half
        # The last few may take very long; what they would find, others have found.
        if share <= _LEFT or (share < 0.1 and rounds >= 4 * half + 30):
            break
        rows = far.nonzero().squeeze(-1)
        move = descent.move(rows)
        descent.moved(rows, move, (yield Points(descent.ensemble.x[rows] + move)))
    if share > 0.9:
        raise ValueError(
            f"after {rounds + 1} rounds of descent {share:.0%} of the particles have found no bottom: the density "
            "keeps rising, so it is improper (is its sign right? log_density= and energy= say which it is), or it is "
            "too rough to descend. Give start= near its bulk (initial= of a DiffusionDistribution)"
        )
    found = descent.ensemble
    behind = far | left_behind(found.energy, x.shape[-1])
    settled = found.restarted(behind, seed=seed, step=1)
    return Reached(settled, rounds + 1, share, float(behind.double().mean()))


def left_behind(energy: Tensor, dim: int) -> Tensor:
    """Which particles have energies that no particle of this density has.

    Seen from those that are lowest, and, once most have arrived, from the middle of all: energies of a typical set vary
    by √(dim/2) or so. A plateau that particles would take ages to come down from may be just a little higher.
    """
    ordered = energy.sort().values
    low, left, middle, right = (ordered[int(share * (len(energy) - 1))] for share in (_BEHIND, 0.16, 0.5, 0.84))
    spread = (0.5 * (right - left)).nan_to_num(math.inf).clamp_min(math.sqrt(0.5 * dim))
    return (energy > low + 10.0 + 3.0 * dim) | (energy > middle + 10.0 + 4.0 * spread)


def _with_density(ensemble: Ensemble, seed: int) -> Ensemble:
    if not bool(ensemble.finite.any()):
        where = f"at all of {len(ensemble)} starting points"
        if ensemble.is_nan:
            raise ValueError(
                f"the density is not finite but NaN {where}: look for NaN in the data, or in what it computes of them"
            )
        raise ValueError(
            f"the density is 0 or NaN, or its gradient not finite, {where}: give start= (initial= of a "
            "DiffusionDistribution) where it is positive"
        )
    ensemble = ensemble.restarted(~ensemble.finite, seed=seed, step=0)
    still = (ensemble.gradient == 0.0).all(0)
    if bool(still.any()):
        which = still.nonzero().squeeze(-1).tolist()
        raise ValueError(
            f"the density does not depend on coordinate {', '.join(map(str, which[:8]))}{' …' * (len(which) > 8)}: its "
            "gradient there is 0 at every particle. Such a density is improper: nothing to sample"
        )
    return ensemble


class _Descent:
    """L-BFGS of many particles at once, each with its own history, and steps by signs where that fails."""

    def __init__(self, ensemble: Ensemble) -> None:
        self.ensemble = ensemble
        particles, dim = ensemble.x.shape
        like = ensemble.x
        self.moves = like.new_zeros(_MEMORY, particles, dim)  # oldest first
        self.turns = like.new_zeros(_MEMORY, particles, dim)
        self.inverse = like.new_zeros(_MEMORY, particles)  # 1/(move·turn), 0 where there is no pair
        self.stretch = like.new_ones(particles)  # of the ensemble's metric, where a particle is
        self.length = like.new_ones(particles)
        self.failures = torch.zeros(particles, dtype=torch.long, device=like.device)
        self.sign_steps = like.new_full((particles, dim), _FIRST_SIGN_STEP)
        spread = (ensemble.x.quantile(0.84, 0) - ensemble.x.quantile(0.16, 0)) / 2.0
        self.unit = torch.where(spread > 0.0, spread, 1.0)
        self.radius = like.new_full((particles,), _FIRST_RADIUS)

    def see(self) -> None:
        """Take the ensemble's metric anew; every half has that of the other."""
        parts = self.ensemble.halves()
        self.metrics = [
            (own, whitened(fit, held_out=test).scale)
            for own, fit, test in zip(HALVES, reversed(parts), parts, strict=True)
        ]

    def preconditioned(self, g: Tensor) -> Tensor:
        """Σg, (particles, dim)."""
        out = torch.empty_like(g)
        for rows, scale in self.metrics:
            out[rows] = scale.times(scale.transposed(g[rows]))
        return out

    def aim(self) -> Tensor:
        """Find every particle's direction; which of them have not arrived."""
        g, dim = self.ensemble.gradient, self.ensemble.x.shape[-1]
        self.direction = -self._local(g)
        self.slope = (self.direction * g).sum(-1)
        lost = ~(self.slope < 0.0) | ~self.direction.isfinite().all(-1)
        if bool(lost.any()):
            self._forget(lost)
            self.direction = torch.where(lost.unsqueeze(-1), -self.preconditioned(g), self.direction)
            self.slope = (self.direction * g).sum(-1)
        squared = -self.slope
        far = squared > _ARRIVED * dim
        # Not to the bottom, but to where λ² is dim.
        share = 1.0 - torch.sqrt(dim / squared.clamp_min(_ARRIVED * dim))
        self.direction, self.slope = self.direction * share.unsqueeze(-1), self.slope * share
        return far

    def move(self, rows: Tensor) -> Tensor:
        """Where the given particles try to go, (rows, dim)."""
        aimed = self.length[rows].unsqueeze(-1) * self.direction[rows]
        # A direction tells of the curvature where a particle is: far along it may lie a plateau that holds it.
        share = (self.radius[rows] / (aimed / self.unit).abs().amax(-1)).clamp_max(1.0)
        self.radius[rows] *= torch.where(share < 1.0, 2.0, 1.0)
        self.length[rows] *= share
        return torch.where(
            self._by_sign(rows).unsqueeze(-1),
            -self.sign_steps[rows] * self.ensemble.gradient[rows].sign(),
            share.unsqueeze(-1) * aimed,
        )

    def moved(self, rows: Tensor, move: Tensor, trial: Ensemble) -> None:
        """What they found there, kept where the energy falls."""
        now = self.ensemble
        x, energy, gradient = now.x[rows], now.energy[rows], now.gradient[rows]
        better = trial.energy < energy
        by_sign = self._by_sign(rows)
        self._remember(rows, move, trial.gradient - gradient, better)
        self._adjust(rows, trial, energy, gradient, better, by_sign)
        keep = better.unsqueeze(-1)
        now.x[rows] = torch.where(keep, trial.x, x)
        now.energy[rows] = torch.where(better, trial.energy, energy)
        now.gradient[rows] = torch.where(keep, trial.gradient, gradient)

    def _by_sign(self, rows: Tensor) -> Tensor:
        return self.failures[rows] >= _PATIENCE

    def _local(self, g: Tensor) -> Tensor:
        """Hg by the two loops of L-BFGS, from the ensemble's metric."""
        shares = [torch.empty(0)] * _MEMORY
        for i in reversed(range(_MEMORY)):
            shares[i] = self.inverse[i] * (self.moves[i] * g).sum(-1)
            g = g - shares[i].unsqueeze(-1) * self.turns[i]
        g = self.stretch.unsqueeze(-1) * self.preconditioned(g)
        for i in range(_MEMORY):
            back = self.inverse[i] * (self.turns[i] * g).sum(-1)
            g = g + (shares[i] - back).unsqueeze(-1) * self.moves[i]
        return g

    def _remember(self, rows: Tensor, move: Tensor, turn: Tensor, better: Tensor) -> None:
        """Keep the pairs that show a positive curvature."""
        curvature = (move * turn).sum(-1)
        useful = better & (curvature > 1e-10 * move.norm(dim=-1) * turn.norm(dim=-1))
        rows, move, turn, curvature = rows[useful], move[useful], turn[useful], curvature[useful]
        for kept, new in ((self.moves, move), (self.turns, turn), (self.inverse, 1.0 / curvature)):
            kept[:-1, rows] = kept[1:, rows].clone()
            kept[-1, rows] = new
        spread = torch.zeros_like(self.ensemble.x)
        spread[rows] = turn
        expected = (turn * self.preconditioned(spread)[rows]).sum(-1)
        self.stretch[rows] = (curvature / expected).clamp(1e-12, 1e12)

    def _adjust(
        self, rows: Tensor, trial: Ensemble, energy: Tensor, gradient: Tensor, better: Tensor, by_sign: Tensor
    ) -> None:
        """Lengths for the next trial: whole after a success, by a parabola after a failure; signs as Rprop has them."""
        length, slope = self.length[rows], self.slope[rows]
        lowest = -slope * length.square() / (2.0 * (trial.energy - energy - slope * length))
        lowest = torch.where(lowest.isfinite(), lowest, 0.1 * length)
        shorter = torch.maximum(torch.minimum(lowest, 0.5 * length), 0.05 * length)
        self.length[rows] = torch.where(better | by_sign, 1.0, shorter)
        same = trial.gradient.sign() == gradient.sign()
        steps = self.sign_steps[rows]
        grown = torch.where(same, 1.2 * steps, 0.5 * steps).clamp_max(_LARGEST_SIGN_STEP)
        tried = torch.where(better.unsqueeze(-1), grown, 0.25 * steps)
        self.sign_steps[rows] = torch.where(by_sign.unsqueeze(-1), tried, steps)
        failures = self.failures[rows]
        after_sign = torch.where(better, failures - 1, failures)
        self.failures[rows] = torch.where(by_sign, after_sign, torch.where(better, 0, failures + 1))
        lost = torch.zeros_like(self.failures, dtype=torch.bool)
        lost[rows] = ~by_sign & ~better & (failures + 1 == _PATIENCE)
        self._forget(lost)

    def _forget(self, lost: Tensor) -> None:
        self.inverse[:, lost] = 0.0
        self.stretch[lost] = 1.0
        self.length[lost] = 1.0
