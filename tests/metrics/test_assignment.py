"""The compiled assignment: optimal for clouds of all kinds, and certified over all pairs or not trusted."""

import math

import pytest
import torch
from scipy.optimize import linear_sum_assignment

from torchsrk.metrics import matching, native, wasserstein2_squared

SOLVER = native.library()
needs_solver = pytest.mark.skipif(SOLVER is None, reason="the solver was not built")


def normal(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def some_of(points, count, seed):
    return points[torch.randint(len(points), (count,), generator=torch.Generator().manual_seed(seed))]


KINDS = {
    "normal": normal,
    "lattice": lambda n, d, seed: normal(n, d, seed=seed).mul(2).round(),
    "points again and again": lambda n, d, seed: some_of(normal(1 + n // 10, d, seed=seed), n, seed),
    "one point": lambda n, d, seed: normal(1, d, seed=seed).repeat(n, 1),
    "a line": lambda n, d, seed: normal(n, 1, seed=seed) * normal(1, d, seed=seed + 1),
    "far": lambda n, d, seed: normal(n, d, seed=seed) + 1e6,
    "small": lambda n, d, seed: 1e-6 * normal(n, d, seed=seed),
    "Cauchy": lambda n, d, seed: normal(n, d, seed=seed) / normal(n, 1, seed=seed + 1),
    "lognormal": lambda n, d, seed: normal(n, d, seed=seed).mul(3).exp(),
    "a circle": lambda n, d, seed: torch.nn.functional.normalize(normal(n, d, seed=seed)),
    "modes": lambda n, d, seed: normal(n, d, seed=seed) + some_of(1e3 * normal(3, d, seed=seed), n, seed),
}


def least_cost(x, y):
    cost = (x.unsqueeze(1) - y).square().sum(-1)
    return float(cost[linear_sum_assignment(cost.numpy())].mean())


@needs_solver
@pytest.mark.parametrize("dim", [2, 3, 20])
@pytest.mark.parametrize("first", KINDS)
def test_every_kind_of_cloud_to_every_other(first, dim):
    for k, second in enumerate(KINDS):
        points = (5, 64, 65, 130, 277)[(k + dim) % 5]
        x, y = KINDS[first](points, dim, seed=k), KINDS[second](points, dim, seed=100 + k)
        x, y = (cloud - torch.cat((x, y)).mean(0) for cloud in (x, y))
        plan = matching._certified(x, y)
        assert plan is not None, second
        expected, size = least_cost(x, y), float(x.square().sum() + y.square().sum()) / points
        assert float(plan.cost(x, y)) == pytest.approx(expected, rel=1e-9, abs=1e-13 * size), second


@needs_solver
@pytest.mark.parametrize("points", [1, 2, 3, 4, 15, 16, 17, 63, 64, 65, 66, 127, 255, 256, 257, 258, 259])
def test_any_number_of_points(points):
    x, y = normal(points, 2, seed=points), normal(points, 2, seed=1000 + points)
    to, gap = native.assign(SOLVER, x, y)
    assert torch.equal(to.sort().values, torch.arange(points))
    assert 0.0 <= gap <= 1e-12 * points
    assert float((x - y[to]).square().sum() / points) == pytest.approx(least_cost(x, y), rel=1e-12)


@needs_solver
def test_far_modes_of_unequal_weight():
    """The nearest neighbours of no point lead from one mode to the other, where the surplus must go."""
    x, y = normal(600, 2, seed=1), normal(600, 2, seed=2)
    x[:300] += 1e4
    y[:350] += 1e4
    assert float(wasserstein2_squared(x, y, "exact")) == pytest.approx(least_cost(x, y), rel=1e-12)


@needs_solver
def test_takes_points_that_are_not_contiguous():
    wide = normal(80, 6, seed=1)
    x, y = wide[:, ::2], normal(3, 80, seed=2).mT
    for given, copied in ((x, x.clone()), (y, y.clone())):
        assert torch.equal(native.assign(SOLVER, given, y)[0], native.assign(SOLVER, copied, y)[0])


@needs_solver
@pytest.mark.parametrize("fault", ["no library", "no memory", "a gap", "a gap that is unknown", "not a permutation"])
@pytest.mark.parametrize("dim", [2, 5])
def test_what_is_not_certified_is_solved_by_others(fault, dim, monkeypatch):
    x, y = normal(70, dim, seed=1), normal(70, dim, seed=2) * 1.5
    asked, assign = [], native.assign

    def faulty(solver, x, y):
        asked.append(fault)
        to, gap = assign(solver, x, y)
        wrong = to[torch.arange(len(to)).roll(1)]
        return {
            "no memory": None,
            "a gap": (wrong, 1e-3),
            "a gap that is unknown": (wrong, math.nan),
            "not a permutation": (torch.zeros_like(to), gap),
        }[fault]

    if fault == "no library":
        monkeypatch.setattr(native, "library", lambda: None)
    else:
        monkeypatch.setattr(native, "assign", faulty)
    value = float(wasserstein2_squared(x, y, "exact"))
    assert value == pytest.approx(least_cost(x, y), rel=1e-9)
    assert bool(asked) is (fault != "no library")


@needs_solver
def test_certificate_tells_a_wrong_plan():
    """What a gap of one swapped pair is worth: far above what a certified plan may have."""
    x, y = normal(200, 2, seed=1), normal(200, 2, seed=2)
    to, gap = native.assign(SOLVER, x, y)
    swapped = to.clone()
    swapped[[0, 1]] = to[[1, 0]]
    worse = float((x - y[swapped]).square().sum() - (x - y[to]).square().sum())
    assert worse > 1e6 * max(gap, 1e-15)
