"""Uniform dissipativity, which pairs of points can refute, and contraction, which coupled chains can measure."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..integrators import integrator_named
from ..sampling import sample
from ..sde import BaseSDE
from .numbers import is_number


@dataclass(frozen=True)
class DissipativityCheck:
    """What pairs say of ⟨b(x) - b(y), x - y⟩ + ½‖σ(x) - σ(y)‖_F² ≤ -α‖x - y‖².

    Attributes:
        claimed: the α that was asked about.
        smallest: the least α that any pair allows: the true one is not larger.
        pairs: how many were tried.
    """

    claimed: float
    smallest: float
    pairs: int

    @property
    def refuted(self) -> bool:
        """Whether a pair contradicts the claim, beyond rounding."""
        return self.smallest < self.claimed - 1e-6 * max(1.0, abs(self.claimed))

    def __str__(self) -> str:
        if self.refuted:
            return (
                f"refuted: a pair of points allows α = {self.smallest:.4g} at most, and {self.claimed:.4g} is claimed"
            )
        return (
            f"not refuted by {self.pairs} pairs, which allow α up to {self.smallest:.4g}, {self.claimed:.4g} being "
            "claimed: that is no proof"
        )


def check_dissipativity(sde: BaseSDE, x: Tensor, y: Tensor, *, claimed: float) -> DissipativityCheck:
    """Try the pairs of points x and y (pairs, dim); the nearer they are, the more they show of derivatives.

    Args:
        sde: the diffusion, at time 0.
        x, y: (pairs, dim), different in every pair.
        claimed: the α that is to be refuted, if it can be.
    """
    if x.shape != y.shape or x.ndim != 2 or 0 in x.shape:
        raise ValueError(f"x and y are (pairs, dim), of one shape; got {tuple(x.shape)} and {tuple(y.shape)}")
    if not is_number(claimed):
        raise ValueError(f"claimed is a number, the α that is asked about; got {claimed!r}")
    apart = (x - y).square().sum(-1)
    if not bool(((apart > 0) & apart.isfinite()).all()):
        raise ValueError("x and y are points that differ in every pair; some do not, or are not finite")
    with torch.no_grad():
        pull = ((sde.drift(0.0, x) - sde.drift(0.0, y)) * (x - y)).sum(-1)
        spread = _matrix(sde, x) - _matrix(sde, y)
        allowed = -(pull + 0.5 * spread.square().sum((-2, -1))) / apart
    if not bool(allowed.isfinite().all()):
        raise ValueError("the drift or the diffusion is not finite at some of the points")
    return DissipativityCheck(float(claimed), float(allowed.min()), len(x))


def _matrix(sde: BaseSDE, x: Tensor) -> Tensor:
    return sde.noise.matrix(sde.sigma(0.0, x), x)


@dataclass(frozen=True)
class Contraction:
    """How two starts approach each other under the same noise.

    Attributes:
        times: (points,), and ``distances`` (points,), the root mean square over particles.
        rates: (points,), -log(distance/start distance)/time: a W2 rate e^(-αt) promises at least α, up to the step's
            own error.
    """

    times: Tensor
    distances: Tensor
    rates: Tensor


def measured_contraction(
    sde: BaseSDE, x0: Tensor, y0: Tensor, *, step_size: float, num_steps: int, seed: int, integrator: str = "em"
) -> Contraction:
    """Run chains from x0 and y0 (particles, dim) on the same Brownian paths: a synchronous coupling.

    Its distance is an upper bound on W2 between the two laws, and what uniform dissipativity bounds is just this one.

    Args:
        sde: the diffusion.
        x0, y0: (particles, dim), pairs of starts.
        step_size, num_steps, seed, integrator: of both runs, as for ``sample``.
    """
    if x0.shape != y0.shape or x0.ndim != 2:
        raise ValueError(f"x0 and y0 are (particles, dim), of one shape; got {tuple(x0.shape)} and {tuple(y0.shape)}")
    first = float((x0 - y0).square().sum(-1).mean().sqrt())
    if not 0.0 < first < math.inf:
        raise ValueError("x0 and y0 are finite and not the same; got a distance of " + str(first))
    scheme = integrator_named(integrator)
    runs = [
        sample(sde, start, integrator=scheme, step_size=step_size, num_steps=num_steps, seed=seed, thin=1)
        for start in (x0, y0)
    ]
    assert runs[0].trajectory is not None
    assert runs[1].trajectory is not None
    distances = (runs[0].trajectory - runs[1].trajectory).double().square().sum(-1).mean(-1).sqrt()
    times = step_size * torch.arange(1, num_steps + 1, dtype=torch.float64)
    return Contraction(times, distances, -(distances / first).log() / times)
