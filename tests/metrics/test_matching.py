"""Exact transport by whatever solver: the network simplex's value, for clouds of all kinds."""

import pytest
import torch

from torchsrk.metrics import corrected_wasserstein2_squared, wasserstein2_squared
from torchsrk.metrics.libraries import transport
from torchsrk.metrics.matching import alike, optimal_plan

POINTS = 150


def normal(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def stretched(dim):
    return normal(POINTS, dim, seed=2) * torch.logspace(-2, 2, dim, dtype=torch.float64) + 3.0


CLOUDS = {
    "same law": lambda dim: normal(POINTS, dim, seed=2),
    "wide and far": lambda dim: 5.0 * normal(POINTS, dim, seed=2) + 100.0,
    "stretched": stretched,
    "heavy tails": lambda dim: normal(POINTS, dim, seed=2) / normal(POINTS, 1, seed=3),
    "one point": lambda dim: torch.full((POINTS, dim), 2.0, dtype=torch.float64),
    "in a plane": lambda dim: normal(POINTS, min(dim, 2), seed=2) @ normal(min(dim, 2), dim, seed=4),
    "every point ten times": lambda dim: normal(POINTS // 10, dim, seed=2).repeat(10, 1),
    "on a lattice": lambda dim: normal(POINTS, dim, seed=2).round(),
    "the same points": lambda dim: normal(POINTS, dim, seed=1).flip(0),
    "at 1e100": lambda dim: 1e100 * normal(POINTS, dim, seed=2),
}


def simplex(x, y):
    """By POT, from differences."""
    cost = (x.unsqueeze(1) - y).square().sum(-1).numpy()
    return float(transport().emd2([], [], cost, numItermax=10**8))


@pytest.mark.parametrize("dim", [1, 2, 3, 5, 20])
@pytest.mark.parametrize("kind", CLOUDS)
def test_value_is_the_network_simplexs(kind, dim):
    x, y = normal(POINTS, dim, seed=1), CLOUDS[kind](dim)
    expected = simplex(x, y)
    size = float(x.square().sum() + y.square().sum()) / POINTS
    for first, second in ((x, y), (y, x)):
        assert abs(float(wasserstein2_squared(first, second, "exact")) - expected) <= 1e-9 * expected + 1e-13 * size


@pytest.mark.parametrize("dim", [1, 3, 20])
@pytest.mark.parametrize("points", [1, 2, 3])
def test_few_points(points, dim):
    x, y = normal(points, dim, seed=1), normal(points, dim, seed=2)
    assert float(wasserstein2_squared(x, y, "exact")) == pytest.approx(simplex(x, y), rel=1e-12)


def test_clouds_made_alike_keep_the_order_of_permutations():
    x, y = normal(40, 4, seed=1) + 1.0, normal(40, 4, seed=2) @ normal(4, 4, seed=3)
    moved_x, moved_y = alike(x, y)
    orders = [torch.randperm(40, generator=torch.Generator().manual_seed(k)) for k in range(9)]
    pairs = ((x, y), (moved_x, moved_y))
    costs = [torch.stack([(a - b[order]).square().sum() for order in orders]) for a, b in pairs]
    differences = [cost - cost[0] for cost in costs]
    assert torch.allclose(*differences, rtol=1e-9)
    assert torch.allclose(torch.cov(moved_x.mT), torch.cov(moved_y.mT), rtol=1e-6)


def test_plan_moves_all_mass_once():
    plan = optimal_plan(normal(60, 5, seed=1), normal(60, 5, seed=2), None, None)
    everyone = torch.arange(60)
    assert torch.equal(plan.source.sort().values, everyone)
    assert torch.equal(plan.to.sort().values, everyone)
    assert float(plan.mass.sum()) == pytest.approx(1.0, rel=1e-12)


def test_threads_change_no_bit_and_keep_the_graph():
    clouds = [normal(600, 4, seed=seed) for seed in range(4)]
    clouds[0].requires_grad_()
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            value = corrected_wasserstein2_squared(*clouds, method="exact")
            found.append((value.detach(), torch.autograd.grad(value, clouds[0])[0]))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])
    assert float(found[0][1].abs().max()) > 0.0
    with torch.no_grad():
        assert not corrected_wasserstein2_squared(*clouds, method="exact").requires_grad
