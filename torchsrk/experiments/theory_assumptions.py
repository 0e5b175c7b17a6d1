"""What bounds assume of a target, beside what pairs of points, coupled chains and derivatives at particles show."""

from __future__ import annotations

import torch
from torch import Tensor

from ..brownian.noise import Stream, derive_seed, fill_normal
from ..potentials import NonConvex, Potential
from ..sde import BaseSDE, ItoDiffusion, Langevin
from ..theory import certified, check_dissipativity, estimated, measured_contraction, non_convex_constants
from .base import Finding, Row

_PAIRS, _CHAINS, _PARTICLES = 2000, 400, 100
_STEPS, _STEP = 200, 0.02  # of coupled chains; times 1/L
_NEAR = 1e-3  # how far pairs are apart that show derivatives, the others being as far as points are


def assumptions(target: str, potential: Potential, *, width: float, seed: int) -> Row:
    """The constants of a target, and what may contradict them; points are normals, this wide."""
    dim = potential.dim
    assert dim is not None
    x, y = (_points(_PAIRS, dim, width, derive_seed(seed, number)) for number in (0, 1))
    sde, claimed, smooth = _claims(potential)
    pairs = [check_dissipativity(sde, x, other, claimed=claimed) for other in (y, x + _NEAR * y)]
    coupled = measured_contraction(
        sde, x[:_CHAINS], y[:_CHAINS], step_size=_STEP / smooth, num_steps=_STEPS, seed=derive_seed(seed, 2)
    )
    row: Row = {
        "target": target,
        "contraction": claimed,
        "pairs_allow": min(check.smallest for check in pairs),
        "coupled_chains": float(coupled.rates.min()),
        "refuted": any(check.refuted for check in pairs),
    }
    return row | (_derivatives(potential, x[:_PARTICLES], seed) if not isinstance(potential, NonConvex) else {})


def _points(count: int, dim: int, width: float, seed: int) -> Tensor:
    points = torch.empty(count, dim, dtype=torch.float64)
    fill_normal(points, seed=seed, stream=Stream.EXACT_DRAW)
    return width * points


def _claims(potential: Potential) -> tuple[BaseSDE, float, float]:
    """The diffusion, α, and the Lipschitz constant of its drift."""
    if isinstance(potential, NonConvex):
        constants = non_convex_constants(potential)
        sde = ItoDiffusion(potential, diffusion=potential.scale, noise_type="isotropic")
        return sde, constants.contraction, constants.drift[0]
    f = certified(potential)
    return Langevin(potential), f.strong_convexity, f.smoothness


def _derivatives(potential: Potential, particles: Tensor, seed: int) -> Row:
    """Certified and estimated Lipschitz constants."""
    proof, seen = certified(potential), estimated(potential, particles, seed=seed)
    names = ("strong_convexity", "smoothness", "hessian_lipschitz", "third_derivative_lipschitz")
    return {f"{name}{end}": getattr(f, name) for name in names for f, end in ((proof, ""), (seen, "_estimate"))}


def assumption_finding(row: Row) -> Finding:
    """Whether nothing contradicts the constant that bounds use."""
    text = (
        f"{row['target']}: nothing contradicts the W2 contraction that bounds use, {row['contraction']:.4g}: pairs of "
        f"points allow up to {row['pairs_allow']:.4g}, coupled chains approach at {row['coupled_chains']:.4g} or more"
    )
    return Finding(text, not row["refuted"] and row["coupled_chains"] >= row["contraction"] * (1.0 - 1e-6))
