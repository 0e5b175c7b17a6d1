"""Fine solutions and the estimates of orders."""

import math

import pytest
import torch

from tests.problems import sdes
from torchsrk import SDE, EulerMaruyama, Langevin
from torchsrk.brownian import BrownianPath, Needs
from torchsrk.potentials import FunctionPotential
from torchsrk.reference import (
    _squared_mean,
    fine_solution,
    fit_order,
    local_deviation_orders,
    strong_errors,
    strong_order,
)


def ornstein_uhlenbeck():
    return Langevin(FunctionPotential(lambda x: 0.5 * x.square().sum(-1), dim=2))


@pytest.mark.parametrize(("name", "method"), [("additive", "srk"), ("diagonal", "milstein"), ("general", "euler")])
def test_torchsde_and_our_fine_grid_solve_the_same_path(name, method):
    sde, dim = sdes()[name]
    x0 = torch.linspace(-1.0, 1.0, 200 * dim).reshape(200, dim)
    path = BrownianPath((200, sde.brownian_dim(x0)), num_steps=256, seed=1)
    ours = fine_solution(sde, x0, path)
    theirs = fine_solution(sde, x0, path, torchsde_method=method)
    unrelated = fine_solution(sde, x0, BrownianPath(path.shape, num_steps=256, seed=2))
    gap = (ours - theirs).square().mean().sqrt() / (ours - unrelated).square().mean().sqrt()
    assert gap < {"srk": 1e-3, "milstein": 1e-2, "euler": 0.1}[method]


def test_fine_solution_against_the_exact_one():
    """Geometric Brownian motion is known in closed form from the path."""
    sde = SDE(lambda x: 0.3 * x, lambda x: 0.5 * x, "diagonal")
    path = BrownianPath((500, 2), num_steps=512, seed=3)
    x0 = torch.ones(500, 2)
    W = path.interval(0.0, 1.0)
    exact = torch.exp((0.3 - 0.125) + 0.5 * W)
    assert (fine_solution(sde, x0, path) - exact).square().mean().sqrt() < 2e-3
    coarse = strong_errors("srk-id", sde, x0, path, (32,), reference=exact).mean().sqrt()
    assert 2e-3 < coarse < 0.05


def test_fit_recovers_a_known_order_with_an_honest_interval():
    """Errors C h^p times shared path noise: the interval covers p, 99 % of the time over 200 repeats."""
    generator = torch.Generator().manual_seed(0)
    steps, order, covered = [0.1, 0.05, 0.025], 1.5, 0
    for _ in range(200):
        shared = torch.randn(300, generator=generator)
        own = torch.randn(3, 300, generator=generator)
        errors = torch.tensor(steps).pow(order).unsqueeze(-1) * (shared + 0.3 * own)
        low, high = fit_order(steps, errors.square(), level=0.99).interval
        covered += low < order < high
    assert covered >= 193  # binomial(200, 0.99) is below 193 with probability 1e-3


def test_estimates_read_well():
    estimate = strong_order(
        "em", ornstein_uhlenbeck(), torch.ones(100, 2), t1=1.0, num_steps=(4, 8), fine_steps=64, seed=0
    )
    assert "order=" in repr(estimate)
    assert estimate.step_sizes == [0.25, 0.125]
    assert len(estimate.errors) == 2


def test_squared_mean_of_noise_is_zero_within_its_own_error():
    """Deviations without a mean: the square of their average is all noise, and is taken off again."""
    increment = BrownianPath((300, 100, 1), num_steps=1, seed=2, t1=0.1).increment(0, 0.0, 0.1, Needs.LEVY_AREA)
    deviation = torch.randn(300, 100, 2, generator=torch.Generator().manual_seed(0))
    squared, variance = _squared_mean(deviation, increment)
    assert abs(squared) < 4.0 * variance.sqrt()
    left_otherwise = deviation.mean(1).square().sum(-1).mean()
    assert left_otherwise > 7.0 * variance.sqrt()  # so the line above fails if it is not taken off


def test_mean_deviation_is_found_under_a_larger_deviation():
    """Ornstein-Uhlenbeck: E[D | x] = x(1 - h - e^-h) exactly, a tenth of D's own size at h = 0.01."""
    starts = torch.tensor([[1.0, 0.0], [0.5, -2.0]])
    steps = (0.04, 0.01)
    orders = local_deviation_orders(EulerMaruyama(), ornstein_uhlenbeck(), starts, step_sizes=steps, paths=2000, seed=0)
    for h, found in zip(steps, orders.mean.errors, strict=True):
        exact = abs(1 - h - math.exp(-h)) * starts.square().sum(-1).mean().sqrt().item()
        assert found == pytest.approx(exact, rel=0.01)
    assert orders.mean_square.errors[1] > 5 * orders.mean.errors[1]
