"""Laws on N(0, I) in d dimensions of schemes that tie coordinates together, from the mode: rotations leave them alone.

A law that rotations leave alone is one of s = ‖x‖², and W2² is nearly a sum over Laguerre's polynomials p_k of s/2,
orthonormal under the target, of (E p_k)²/(2k): 2k is ∫‖∇p_k‖². With c_k = E p_k/√C(k + d/2 - 1, k) a Gaussian of
variance v has c_k = (1 - v)ᵏ, and is √d|√v - 1| away; what c_k has beyond c₁ᵏ adds the terms from k = 2 on.
"""

from __future__ import annotations

import math
from functools import lru_cache, reduce

import numpy as np
import torch
from torch import Tensor

from ..integrators import RandomizedMidpoint
from ..integrators.tamed import CORRECTION, DRIFT, tame
from ..sde import UnderdampedLangevin
from ..theory import underdamped
from .linear import LinearScheme, probe
from .scheme_targets import Quadratic

SCHEMES = ("tamed", "randomized-midpoint")
_DEGREE = 4  # of what is followed; the terms fall by orders of h
_STATES, _NOISES, _ANGLES = 24, 8, 10  # nodes


def radial_traces(
    scheme: str, h: float, dims: tuple[int, ...], steps: int
) -> tuple[dict[int, Tensor], dict[int, float]]:
    """For every dimension W2² after 1, 2, ... steps from the mode, and of the law that is kept."""
    if scheme == "randomized-midpoint":
        shared = _midpoint_map(h)
        own = dict.fromkeys(dims, shared)
    else:
        own = {dim: _tamed_map(h, dim) for dim in dims}
    after, kept = {}, {}
    for dim, (move, start, read) in own.items():
        after[dim] = radial_squared(_follow(move, start, steps) @ read.mT, dim)
        kept[dim] = float(radial_squared(_stationary(move) @ read.mT, dim))
    return after, kept


def radial_squared(c: Tensor, dim: int) -> Tensor:
    """W2² from c_0 = 1, c_1, ... (..., degree + 1)."""
    variance = (1.0 - c[..., 1]).clamp_min(0.0)
    found = dim * (variance.sqrt() - 1.0).square()
    for k in range(2, c.shape[-1]):
        found = found + math.exp(_log_count(k, dim)) / (2.0 * k) * (c[..., k] - c[..., 1] ** k).square()
    return found


def _log_count(k: int, dim: int) -> float:
    """log C(k + d/2 - 1, k)."""
    return math.lgamma(k + dim / 2) - math.lgamma(dim / 2) - math.lgamma(k + 1)


def _follow(move: Tensor, start: Tensor, steps: int) -> Tensor:
    """(steps, size): what a matrix makes of a vector again and again."""
    columns, power = (move @ start).unsqueeze(-1), move
    while columns.shape[-1] < steps:
        columns = torch.cat((columns, power @ columns), -1)
        power = power @ power
    return columns[:, :steps].mT


def _stationary(move: Tensor) -> Tensor:
    """Where the first entry is 1 and stays."""
    rest = torch.linalg.solve(torch.eye(len(move) - 1).to(move) - move[1:, 1:], move[1:, 0])
    return torch.cat((torch.ones(1).to(move), rest))


@lru_cache(maxsize=64)
def _midpoint_map(h: float) -> tuple[Tensor, Tensor, Tensor]:
    """Given its times a chain is Gaussian, with covariance I + D for (x, v) of every coordinate, and D' is affine in D:
    (1, D) in a Kronecker power has the products of D up to that degree, whose mean over a time is a linear map."""
    potential = Quadratic(torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64))
    sde = UnderdampedLangevin(potential, friction=underdamped.FRICTION, u=1.0)
    found = probe(sde, RandomizedMidpoint(), step_size=h, modes=1)
    assert found is not None
    size = 4**_DEGREE
    whole = torch.zeros(size, size, dtype=torch.float64)
    for weight, one in zip(found.weights.tolist(), _affine(found), strict=True):
        whole += weight * reduce(torch.kron, [one] * _DEGREE)
    start = torch.tensor([1.0, -1.0, 0.0, 0.0], dtype=torch.float64)  # at the mode, with velocities at rest's law
    # Place 0 is 1 and place 1 is D_xx: of (1, ..., 1, D_xx, ..., D_xx), k times, the number is 1 + 4 + ... + 4^(k - 1).
    read = torch.zeros(_DEGREE + 1, size, dtype=torch.float64)
    for k in range(_DEGREE + 1):
        read[k, sum(4**j for j in range(k))] = (-1.0) ** k
    return _without_copies(whole, reduce(torch.kron, [start] * _DEGREE), read)


def _affine(found: LinearScheme) -> Tensor:
    """(times, 4, 4): what a step with a time makes of (1, D_xx, D_xv, D_vv)."""
    basis = [torch.zeros(2, 2), torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.tensor([[0.0, 1.0], [1.0, 0.0]])]
    basis += [torch.tensor([[0.0, 0.0], [0.0, 1.0]])]
    step, noise = found.step[:, 0], found.noise[:, 0]
    one = torch.eye(2, dtype=torch.float64)
    constant = step @ step.mT + noise @ noise.mT - one
    columns = [constant] + [step @ part.double() @ step.mT for part in basis[1:]]
    rows = torch.stack([torch.stack((m[:, 0, 0], m[:, 0, 1], m[:, 1, 1]), -1) for m in columns], -1)
    first = torch.zeros(len(rows), 1, 4, dtype=torch.float64)
    first[:, 0, 0] = 1.0
    return torch.cat((first, rows), 1)


def _without_copies(move: Tensor, start: Tensor, read: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same on products that differ: places whose digits in base 4 are the same but for their order are one."""
    size = len(start)
    digits = torch.stack([torch.arange(size) // 4**j % 4 for j in range(_DEGREE)], -1).sort(-1).values
    _, group = torch.unique(digits, dim=0, return_inverse=True)
    spread = torch.zeros(size, int(group.max()) + 1, dtype=torch.float64)
    spread[torch.arange(size), group] = 1.0
    gather = spread.mT / spread.sum(0).unsqueeze(-1)
    return gather @ move @ spread, gather @ start, read @ spread


@lru_cache(maxsize=512)
def _tamed_map(h: float, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """On moments of the p_k. A step is a(‖x‖)x + n, where n, of W and W/2 + H, has any direction."""
    from scipy.special import roots_jacobi

    s, own = _chi_squared(_STATES, dim)
    size, root = np.sqrt(s / dim), math.sqrt(h)
    factor = 1.0 - (_tamed(h * size, DRIFT * root) - _tamed(0.5 * h**2 * size, CORRECTION * root)) / size
    squared, weights = _noise(h, dim)
    angles, shares = roots_jacobi(_ANGLES, (dim - 3) / 2, (dim - 3) / 2)
    shares = shares / shares.sum()
    pull = (factor * np.sqrt(s))[:, None, None]
    after = pull**2 + 2.0 * pull * np.sqrt(squared)[None, :, None] * angles + squared[None, :, None]
    at = np.stack([_polynomial(k, s, dim) for k in range(_DEGREE + 1)])
    told = np.stack([np.einsum("inj,n,j->i", _polynomial(k, after, dim), weights, shares) for k in range(_DEGREE + 1)])
    scale = np.exp([0.5 * _log_count(k, dim) for k in range(_DEGREE + 1)])
    move = torch.from_numpy((told * own) @ at.T / scale[:, None] * scale)
    one = torch.ones(_DEGREE + 1, dtype=torch.float64)
    return move, one, torch.eye(_DEGREE + 1, dtype=torch.float64)  # at the mode all c_k are 1


def _polynomial(k: int, s: np.ndarray, dim: int) -> np.ndarray:
    from scipy.special import eval_genlaguerre

    return np.asarray(eval_genlaguerre(k, dim / 2 - 1, s / 2)) * math.exp(-0.5 * _log_count(k, dim))


def _chi_squared(count: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of Gauss's rule for the squared norm of dim normals."""
    from scipy.special import roots_genlaguerre

    nodes, weights = roots_genlaguerre(count, dim / 2 - 1)
    return 2.0 * nodes, weights / weights.sum()


def _tamed(size: np.ndarray, limit: float) -> np.ndarray:
    """What is left of terms of this root mean square."""
    return np.asarray(tame(torch.from_numpy(size).unsqueeze(-1), limit)[:, 0])


def _noise(h: float, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes of ‖n‖² and weights, n = √2 W - T(√2 h M), M = W/2 + H: W = 1.5 M + R, of variances h/3 and h/4."""
    m, first = _chi_squared(_NOISES, dim)
    length = np.sqrt(h / 3.0 * m)
    swayed = _tamed(math.sqrt(2.0) * h * length / math.sqrt(dim), CORRECTION * math.sqrt(h))
    straight = 1.5 * math.sqrt(2.0) * length - math.sqrt(dim) * swayed
    along, second = np.polynomial.hermite_e.hermegauss(_NOISES)
    across, third = _chi_squared(_NOISES, dim - 1)
    squared = (straight[:, None, None] + math.sqrt(h / 2.0) * along[:, None]) ** 2 + h / 2.0 * across
    weights = first[:, None, None] * (second / second.sum())[:, None] * third
    return squared.ravel(), weights.ravel()
