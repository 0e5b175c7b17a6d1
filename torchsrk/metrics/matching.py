"""Exact transport between two clouds: which points go where, and how much of them."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from . import native
from .clouds import squared_distance_factors
from .libraries import assignment, transport

_MAX_PIVOTS = 10**9  # of the network simplex: it stops by itself long before
_FLATTEST = 1e-6  # the least variance of a direction, as a share of the largest, that clouds are stretched along
_MOST_GAP, _MOST_GAP_OF_SIZE = 1e-10, 1e-14  # of a certified plan: shares of its cost, and of the clouds' mean square
# The compiled solver's time goes with the dimension, as it holds no pairs. For 2,000 points lapx's is 1.3 times as long
# in 50-D, 0.6 times in 100-D and 0.4 times in 300-D.
_MOST_DIM = 64
# Where it is not there: lapx's takes a tenth of the simplex's time in 20-D, a third in 3-D, and longer than
# it in 2-D where clouds differ in more than their second moments.
_LEAST_DIM = 3


class Plan(NamedTuple):
    """Mass that goes from points of one cloud to points of another: three tensors of one length."""

    source: Tensor
    to: Tensor
    mass: Tensor

    def cost(self, x: Tensor, y: Tensor) -> Tensor:
        """Σ mass·‖x_source - y_to‖², differentiable in the points: to first order the plan does not change."""
        return (self.mass * (x[self.source] - y[self.to]).square().sum(-1)).sum()


def optimal_plan(x: Tensor, y: Tensor, a: Tensor | None, b: Tensor | None) -> Plan:
    """The plan of least Σ mass·‖x_i - y_j‖², in float64 on the CPU; weights None are equal ones."""
    x, y = (cloud.detach().cpu().double() for cloud in (x, y))
    if a is not None or b is not None or len(x) != len(y):
        return _simplex(x, y, a, b)
    if x.shape[1] == 1:
        return _permutation(x[:, 0].argsort(stable=True), y[:, 0].argsort(stable=True))
    found = _certified(x, y) if x.shape[1] <= _MOST_DIM else None
    if found is not None:
        return found
    return _simplex(x, y, None, None) if x.shape[1] < _LEAST_DIM else _jonker_volgenant(x, y)


def alike(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Clouds with one mean and one covariance for which the same permutations are optimal.

    ‖x - y‖² and ‖Bx + p - (B⁻ᵀy + q)‖² differ by what depends on x alone and on y alone, which no permutation changes.
    With Gaussian laws that takes off their potentials, and leaves a method that starts from none little to find.
    """
    x, y = x - x.mean(0), y - y.mean(0)
    first, second = (cloud.mT @ cloud / len(cloud) for cloud in (x, y))
    if min(_flatness(first), _flatness(second)) < _FLATTEST:
        return x, y
    root = _power(first, 0.5)
    inverse = _power(first, -0.5)
    moved = inverse @ _power(root @ second @ root, 0.5) @ inverse
    return x @ _power(moved, 0.5), y @ _power(moved, -0.5)


def _certified(x: Tensor, y: Tensor) -> Plan | None:
    """By the compiled solver, if its potentials prove that no other permutation is better; else None."""
    solver = native.library()
    if solver is None:
        return None
    near_x, near_y = alike(x, y)
    size = float((near_x.square().mean(0).sum() + near_y.square().mean(0).sum()).sqrt())
    if size == 0.0:  # each cloud is one point
        return _permutation(torch.arange(len(x)), torch.arange(len(x)))
    if not size < math.inf:
        return None
    assigned = native.assign(solver, near_x / size, near_y / size)
    if assigned is None:
        return None
    to, gap = assigned
    found = _permutation(torch.arange(len(x)), to)
    allowed = _MOST_GAP * float(found.cost(x, y)) + _MOST_GAP_OF_SIZE * size**2
    return found if gap * size**2 / len(x) <= allowed and _is_permutation(to) else None


def _jonker_volgenant(x: Tensor, y: Tensor) -> Plan:
    x, y = alike(x, y)
    left, right = squared_distance_factors(x, y)
    rows, columns = assignment()((left @ right).numpy(), return_cost=False)
    found = _permutation(torch.as_tensor(rows, dtype=torch.int64), torch.as_tensor(columns, dtype=torch.int64))
    if not _is_permutation(found.source) or not _is_permutation(found.to):
        raise RuntimeError(f"the assignment of {len(x)} points was not solved: it leaves some of them out")
    return found


def _simplex(x: Tensor, y: Tensor, a: Tensor | None, b: Tensor | None) -> Plan:
    left, right = squared_distance_factors(x, y)
    cost = (left @ right).clamp(min=0.0)
    masses = (
        (torch.full((len(cloud),), 1.0 / len(cloud), dtype=torch.float64) if given is None else given.detach().cpu())
        for cloud, given in ((x, a), (y, b))
    )
    numbers = [tensor.double().numpy() for tensor in (*masses, cost)]
    plan, log = transport().emd(*numbers, numItermax=_MAX_PIVOTS, log=True)
    if log["warning"] is not None:
        raise RuntimeError(f"the transport problem was not solved: {log['warning']}")
    whole = torch.from_numpy(plan)
    source, to = whole.nonzero(as_tuple=True)
    return Plan(source, to, whole[source, to])


def _permutation(source: Tensor, to: Tensor) -> Plan:
    return Plan(source, to, torch.full((len(source),), 1.0 / len(source), dtype=torch.float64))


def _is_permutation(indices: Tensor) -> bool:
    return torch.equal(indices.sort().values, torch.arange(len(indices)))


def _flatness(covariance: Tensor) -> float:
    values = torch.linalg.eigvalsh(covariance)
    return float(values[0] / values[-1]) if bool(values.isfinite().all()) and float(values[-1]) > 0.0 else 0.0


def _power(matrix: Tensor, exponent: float) -> Tensor:
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * values.clamp(min=0.0) ** exponent) @ vectors.mT
