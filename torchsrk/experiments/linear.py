"""The exact moments of a scheme on a Gaussian, read off the scheme itself.

Where a step is linear in the state and in its normals, unit states and unit normals give its matrices, and these give
the first two moments after every step and at stationarity, without sampling and without a formula for any scheme. A
scheme that meets a random time is linear given that time: second moments are then averages over it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..brownian.draws import draws
from ..brownian.increment import Increment
from ..integrators import Integrator
from ..sde.base import BaseSDE

_TIMES = 12  # nodes of Gauss's rule over a random time
_TRIALS = 4  # random states that a step is compared at with its matrices
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Moments:
    """E[s] and E[ssᵀ] of the state of every mode, (modes, slots) and (modes, slots, slots)."""

    first: Tensor
    second: Tensor


@dataclass(frozen=True)
class LinearScheme:
    """A step on independent modes, each with a state of a few slots: s' = A(τ)s + N(τ)ξ, and the position r·s + p·ξ.

    Attributes:
        weights: of the nodes of τ, (times,): one where no random time is drawn.
        step, noise: A (times, modes, slots, slots) and N (times, modes, slots, normals).
        start, start_noise: the state of a unit position, and that of unit normals at a position 0, (modes, slots).
        read, read_noise: r (modes, slots) and p (modes, normals).
    """

    weights: Tensor
    step: Tensor
    noise: Tensor
    start: Tensor
    start_noise: Tensor
    read: Tensor
    read_noise: Tensor

    def begin(self, x: Tensor) -> Moments:
        """Moments of the state at positions x (modes,)."""
        first = self.start * x.unsqueeze(-1)
        return Moments(first, _outer(first) + _outer(self.start_noise))

    def positions(self, moments: Moments) -> tuple[Tensor, Tensor]:
        """Means and second moments of positions, (..., modes) each."""
        mean = (self.read * moments.first).sum(-1)
        own = torch.einsum("mi,...mij,mj->...m", self.read, moments.second, self.read)
        return mean, own + self.read_noise.square().sum(-1)

    def trace(self, x: Tensor, steps: int) -> tuple[Tensor, Tensor]:
        """``positions`` after 1, 2, ... steps from x (modes,), (steps, modes) each.

        All moments make one vector that a step maps linearly; powers of the map by squaring give many steps at once.
        """
        begun, (modes, slots) = self.begin(x), self.start.shape
        one = torch.ones(modes, 1, dtype=self.step.dtype)
        columns = torch.cat((begun.second.flatten(1), begun.first, one), -1).unsqueeze(-1)
        power = self._map
        columns = power @ columns
        while columns.shape[-1] < steps:
            columns = torch.cat((columns, power @ columns), -1)
            power = power @ power
        rows = columns[..., :steps].permute(2, 0, 1)
        second = rows[..., : slots**2].unflatten(-1, (slots, slots))
        return self.positions(Moments(rows[..., slots**2 : -1], second))

    def growth(self) -> float:
        """The factor by which second moments change a step in the long run: from 1 on there is no stationary law."""
        return float(torch.linalg.eigvals(self._squared).abs().max())

    def stationary(self) -> Tensor:
        """Second moments of positions at stationarity, (modes,), where means are 0."""
        modes, slots = self.start.shape
        identity = torch.eye(slots**2, dtype=self.step.dtype)
        second = torch.linalg.solve(identity - self._squared, self._added.reshape(modes, -1, 1))
        return self.positions(Moments(torch.zeros_like(self.start), second.view(modes, slots, slots)))[1]

    @property
    def is_gaussian(self) -> bool:
        """Whether the law is a Gaussian after every step, and not a mixture over random times."""
        return len(self.weights) == 1

    @property
    def _added(self) -> Tensor:
        return torch.einsum("t,tmij,tmkj->mik", self.weights, self.noise, self.noise)

    @property
    def _squared(self) -> Tensor:
        """The map of second moments, (modes, slots², slots²)."""
        _, modes, slots, _ = self.step.shape
        pairs = torch.einsum("t,tmij,tmkl->mikjl", self.weights, self.step, self.step)
        return pairs.reshape(modes, slots**2, slots**2)

    @property
    def _map(self) -> Tensor:
        """Of (second moments, first moments, 1)."""
        modes, slots = self.start.shape
        mean = torch.einsum("t,tmij->mij", self.weights, self.step)
        size = slots**2
        whole = torch.zeros(modes, size + slots + 1, size + slots + 1, dtype=self.step.dtype)
        whole[:, :size, :size] = self._squared
        whole[:, :size, -1] = self._added.flatten(1)
        whole[:, size:-1, size:-1] = mean
        whole[:, -1, -1] = 1.0
        return whole


def probe(sde: BaseSDE, scheme: Integrator, *, step_size: float, modes: int) -> LinearScheme | None:
    """The matrices of a scheme on an SDE whose coordinates are independent Gaussians around 0, in double precision.

    None where the scheme is not linear there: it rejects, it tames, or it mixes coordinates.
    """
    prober = _Prober(sde, scheme, step_size, modes)
    return prober.linear() if prober.slots else None


class _Prober:
    def __init__(self, sde: BaseSDE, scheme: Integrator, h: float, modes: int) -> None:
        self.sde, self.scheme, self.h, self.modes = sde, scheme, h, modes
        everything = draws(scheme.required(sde) | scheme.position_needs, h, modes)
        self.scales = {draw.part: draw.scale for draw in everything if draw.part != "u"}
        self.has_time = any(draw.part == "u" for draw in everything)
        zero = torch.zeros(1, modes, dtype=torch.float64)
        self.slots, rest = divmod(self._init(zero, zero).shape[-1], modes)
        self.slots = 0 if rest else self.slots

    def linear(self) -> LinearScheme | None:
        nodes, weights = np.polynomial.legendre.leggauss(_TIMES) if self.has_time else (np.zeros(1), np.full(1, 2.0))
        times = (0.5 * (1.0 + nodes)).tolist()
        one, zero = (torch.full((1, self.modes), value, dtype=torch.float64) for value in (1.0, 0.0))
        states = torch.eye(self.slots, dtype=torch.float64).repeat_interleave(self.modes, -1)
        still, normals = zero.repeat(len(self.scales), self.slots), torch.eye(len(self.scales), dtype=torch.float64)
        silence = torch.zeros(self.slots, len(self.scales), dtype=torch.float64)
        found = LinearScheme(
            weights=torch.from_numpy(weights / 2.0),
            step=torch.stack([self._columns(self._step(states, silence, time)) for time in times]),
            noise=torch.stack([self._columns(self._step(still, normals, time)) for time in times]),
            start=self._columns(self._init(one, zero)).squeeze(-1),
            start_noise=self._columns(self._init(zero, one)).squeeze(-1),
            read=self._read(states, silence).mT,
            read_noise=self._read(still, normals).mT,
        )
        return found if self._agrees(found, times) else None

    def _init(self, x: Tensor, normals: Tensor) -> Tensor:
        return self.scheme.init(self.sde, 0.0, x, self.h, lambda like: normals.expand_as(like)).detach()

    def _increment(self, normals: Tensor, time: float) -> Increment:
        """Of normals (rows, kinds), the same for all modes, or (rows, kinds, modes)."""
        wide = normals if normals.ndim == 3 else normals.unsqueeze(-1).expand(-1, -1, self.modes)
        parts = {part: scale * wide[:, k] for k, (part, scale) in enumerate(self.scales.items())}
        if self.has_time:
            parts["u"] = torch.full((len(normals), 1), time, dtype=normals.dtype)
        return Increment(self.h, **parts)

    def _step(self, states: Tensor, normals: Tensor, time: float) -> Tensor:
        return self.scheme.step(self.sde, 0.0, states, self._increment(normals, time)).detach()

    def _read(self, states: Tensor, normals: Tensor) -> Tensor:
        return self.scheme.position(self.sde, 0.0, states, self._increment(normals, 0.5)).detach()

    def _columns(self, rows: Tensor) -> Tensor:
        """(rows, slots·modes) to matrices (modes, slots, rows)."""
        return rows.view(len(rows), self.slots, self.modes).permute(2, 1, 0)

    def _agrees(self, found: LinearScheme, times: list[float]) -> bool:
        """Whether the matrices give what the scheme does at states and normals that are no units."""
        generator = torch.Generator().manual_seed(0)
        states, normals = (
            torch.randn(_TRIALS, count, self.modes, generator=generator, dtype=torch.float64)
            for count in (self.slots, len(self.scales))
        )
        for k in (0, len(times) // 2):
            seen = self._step(states.flatten(1), normals, times[k])
            told = torch.einsum("mij,rjm->rim", found.step[k], states)
            told = told + torch.einsum("mij,rjm->rim", found.noise[k], normals)
            if not torch.allclose(
                seen, told.flatten(1), rtol=_TOLERANCE, atol=_TOLERANCE * (1 + float(told.abs().max()))
            ):
                return False
        return True


def _outer(v: Tensor) -> Tensor:
    return v.unsqueeze(-1) * v.unsqueeze(-2)


def gaussian_w2(mean: Tensor, second: Tensor, deviation: Tensor) -> Tensor:
    """W2 between modes of these moments (..., modes), taken as Gaussians, and N(0, deviation²) each; (...)."""
    spread = (second - mean.square()).clamp_min(0.0).sqrt()
    return (mean.square() + (spread - deviation).square()).sum(-1).sqrt()
