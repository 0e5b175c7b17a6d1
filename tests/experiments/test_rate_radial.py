"""Laws that rotations leave alone: against particles, linear chains, and sums over every pair of times."""

import math

import pytest
import torch

from torchsrk.experiments.linear import probe
from torchsrk.experiments.rate_radial import (
    _affine,
    _follow,
    _midpoint_map,
    _tamed_map,
    radial_squared,
    radial_traces,
)
from torchsrk.experiments.scheme_targets import Quadratic
from torchsrk.integrators import RandomizedMidpoint
from torchsrk.sampling import sample
from torchsrk.sde import Langevin, UnderdampedLangevin


def normal(dim):
    return Quadratic(torch.zeros(dim, dtype=torch.float64), torch.ones(dim, dtype=torch.float64))


@pytest.mark.parametrize("dim", [2, 10])
def test_tamed_law_is_that_of_the_schemes_particles(dim):
    """Mean and mean square of the squared norm, at a step so long that taming shows; within four standard errors."""
    move, start, read = _tamed_map(1.0, dim)
    told = _follow(move, start, 4) @ read.mT
    zero = torch.zeros(40_000, dim, dtype=torch.float64)
    for steps in (1, 4):
        run = sample(Langevin(normal(dim)), zero, integrator="tamed", step_size=1.0, num_steps=steps, seed=1)
        s = run.final.square().sum(-1)
        for seen, own in (
            (1.0 - s / dim, told[steps - 1, 1]),
            (1.0 - 2.0 * s / dim + s.square() / (dim * (dim + 2)), told[steps - 1, 2]),
        ):
            assert float(own) == pytest.approx(float(seen.mean()), abs=4.0 * float(seen.std()) / 200.0)


def test_untamed_law_of_short_steps_is_that_of_the_linear_chain():
    """Terms of 1e-4 that are bounded by 0.2 lose less than 1e-12."""
    move, start, read = _tamed_map(1e-3, 6)
    linear = probe(Langevin(normal(1)), _sra1(), step_size=1e-3, modes=1)
    second = linear.trace(torch.zeros(1, dtype=torch.float64), 5)[1][:, 0]
    assert torch.allclose((_follow(move, start, 5) @ read.mT)[:, 1], 1.0 - second, atol=1e-9)


def _sra1():
    from torchsrk.integrators import SRA1

    return SRA1()


def test_midpoints_moments_are_means_over_all_times():
    h = 0.5
    sde = UnderdampedLangevin(normal(1), friction=2.0, u=1.0)
    linear = probe(sde, RandomizedMidpoint(), step_size=h, modes=1)
    move, start, read = _midpoint_map(h)
    told = _follow(move, start, 20) @ read.mT
    second = linear.trace(torch.zeros(1, dtype=torch.float64), 20)[1][:, 0]
    assert torch.allclose(told[:, 1], 1.0 - second, atol=1e-10)
    maps, begun = _affine(linear), torch.tensor([1.0, -1.0, 0.0, 0.0], dtype=torch.float64)
    after = torch.einsum("aij,bjk,k->abi", maps, maps, begun)[..., 1]
    weights = linear.weights.outer(linear.weights)
    for k in (2, 3, 4):
        assert float(told[1, k]) == pytest.approx(float((weights * (-after) ** k).sum()), rel=1e-9)


@pytest.mark.parametrize("dim", [2, 20])
def test_w2_of_gaussians_and_of_mixtures(dim):
    variance = torch.tensor([1.1, 0.8], dtype=torch.float64)
    powers = torch.stack([(1.0 - variance) ** k for k in range(5)], -1)
    assert torch.allclose(radial_squared(powers, dim), dim * (variance.sqrt() - 1.0) ** 2)
    # ½N(0, 1.02) + ½N(0, 0.98), by quantiles of the norm.
    apart = 0.02
    told = float(radial_squared(torch.tensor([1.0, 0.0, apart**2, 0.0, apart**4], dtype=torch.float64), dim))
    r = torch.linspace(1e-3, math.sqrt(dim) + 8.0, 40_001, dtype=torch.float64)
    target, low, high = (_chi_cumulative(r / math.sqrt(v), dim) for v in (1.0, 1.0 - apart, 1.0 + apart))
    density = torch.gradient(target, spacing=(r,))[0]
    inside = density > 1e-9
    gap = (0.5 * (low + high) - target)[inside] / density[inside]
    assert told == pytest.approx(float(torch.trapezoid(gap.square() * density[inside], r[inside])), rel=0.03)


def _chi_cumulative(r, dim):
    return torch.special.gammainc(torch.tensor(dim / 2, dtype=torch.float64), r.square() / 2)


def test_order_in_the_step_size():
    for scheme, order in (("tamed", 2), ("randomized-midpoint", 3)):
        kept = [radial_traces(scheme, h, (2, 20), 1)[1] for h in (0.1, 0.05)]
        for dim in (2, 20):
            assert math.log2(kept[0][dim] / kept[1][dim]) / 2 == pytest.approx(order, abs=0.1)
