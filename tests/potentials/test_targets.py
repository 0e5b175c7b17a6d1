"""The paper's targets: closed forms and exact draws. Significance 1e-4 a test, fixed seeds."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from tests.problems import mixture
from torchsrk import Langevin
from torchsrk.potentials import (
    Banana,
    DistributionPotential,
    FunctionPotential,
    GaussianMixture,
    LogisticRegression,
    NonConvex,
    UnconstrainedPotential,
    non_convex,
)
from torchsrk.potentials.non_convex import _radial_law

LEVEL = 1e-4
Z = stats.norm.isf(LEVEL / 2)


def test_mixture_is_the_mixtures_log_density():
    shift = torch.tensor([0.3, -0.6])
    components = torch.distributions.MultivariateNormal(torch.stack((shift, -shift)), torch.eye(2))
    density = torch.distributions.MixtureSameFamily(torch.distributions.Categorical(torch.ones(2)), components)
    x = torch.linspace(-4.0, 4.0, 20).reshape(10, 2)
    # log ½ and the Gaussian's normaliser are the constant that an energy leaves out.
    constant = math.log(2.0) + math.log(2.0 * math.pi)
    torch.testing.assert_close(GaussianMixture(shift)(x), -density.log_prob(x) - constant)


def test_mixture_constants():
    target = mixture(20)
    assert target.strong_convexity == pytest.approx(0.5)
    assert target.smoothness == 1.0
    assert GaussianMixture(torch.tensor([2.0, 0.0])).strong_convexity is None


def test_mixture_draws_are_exact():
    target = GaussianMixture(torch.tensor([1.5, -0.5]))
    draws = target.sample((20_000,), seed=2)
    direction = target.shift / target.shift.norm()
    centre = float(target.shift.norm())

    def along(value):
        return 0.5 * stats.norm.cdf(value - centre) + 0.5 * stats.norm.cdf(value + centre)

    assert stats.kstest((draws @ direction).numpy(), along).pvalue > LEVEL
    across = draws @ torch.tensor([-direction[1], direction[0]])
    assert stats.kstest(across.numpy(), "norm").pvalue > LEVEL
    squared = draws.square().sum(-1)
    assert abs(squared.mean() - target.second_moment()) < Z * squared.std() / math.sqrt(len(squared))


@pytest.mark.parametrize("spread", [0.3, 2.0])
def test_banana_draws_are_exact(spread):
    """Unbent, they are two independent normals; and the density is that of the conditional laws."""
    target = Banana(spread)
    draws = target.sample((20_000,), seed=2, dtype=torch.float64)
    first, second = draws.unbind(-1)
    across = (second - first.square()) / spread
    for values in (first, across, (first + across) / math.sqrt(2.0)):
        assert stats.kstest(values.numpy(), "norm").pvalue > LEVEL
    centred = draws - torch.tensor(target.mean())
    for values, moment in zip(centred.square().unbind(-1), target.variance(), strict=True):
        assert abs(values.mean() - moment) < Z * values.std() / math.sqrt(len(values))
    assert target.second_moment() == pytest.approx(sum(target.variance()) + 1.0)
    conditional = torch.distributions.Normal(first.square(), spread).log_prob(second)
    marginal = torch.distributions.Normal(0.0, 1.0).log_prob(first)
    gap = target(draws) + marginal + conditional  # the constant that an energy leaves out
    torch.testing.assert_close(gap, gap[:1].expand_as(gap))


@pytest.mark.parametrize("dim", [1, 3, 10])
def test_non_convex_draws_are_exact(dim):
    target = NonConvex(beta=0.33, gamma=0.5, dim=dim)
    draws = target.sample((20_000,), seed=2, dtype=torch.float64)

    def density(r):
        return r ** (dim - 1) * math.exp(-float(target(torch.tensor([r] + [0.0] * (dim - 1)))))

    grid = np.linspace(0.0, 60.0, 601)
    masses = [integrate.quad(density, a, b)[0] for a, b in pairwise(grid)]
    cumulative = np.concatenate(([0.0], np.cumsum(masses))) / np.sum(masses)
    radius = draws.norm(dim=-1).numpy()
    assert stats.kstest(radius, lambda r: np.interp(r, grid, cumulative)).pvalue > LEVEL
    assert abs((draws[:, 0] > 0).double().mean() - 0.5) < Z * 0.5 / math.sqrt(len(draws))
    squared = draws.square().sum(-1)
    assert abs(squared.mean() - target.second_moment()) < Z * squared.std() / math.sqrt(len(squared))


def quadrature_of_log_radius(target):
    """P(log‖x‖ <= u) at nodes u, and E‖x‖², by scipy's quad: the density is e^((dim + k)u - f), less what f is at 0."""
    beta, root = target.beta, math.sqrt(target.beta)

    def log_density(u, k=0):
        square = math.exp(2.0 * u)
        g = math.sqrt(beta + square)
        return (target.dim + k) * u - square / (g + root) - 2.0 * target.gamma * math.log(g / root)

    coarse = np.linspace(-200.0, 40.0, 24_001)
    values = np.array([max(log_density(u), log_density(u, 2)) for u in coarse])
    inside = coarse[values > max(map(log_density, coarse)) - 45.0]
    nodes, top = np.linspace(inside[0], inside[-1], 801), max(map(log_density, inside))
    masses, squares = (
        [integrate.quad(lambda u, k=k: math.exp(log_density(u, k) - top), a, b)[0] for a, b in pairwise(nodes)]
        for k in (0, 2)
    )
    return nodes[1:], np.cumsum(masses) / np.sum(masses), np.sum(squares) / np.sum(masses)


@pytest.mark.parametrize(
    ("beta", "gamma", "dim"),
    [(1e-8, 1.0, 1), (1e-8, 1e-3, 3), (1e-100, 0.5, 1), (2.0, 50.0, 2), (1e10, 1.0, 1), (1e10, 50.0, 1000)],
)
def test_non_convex_draws_follow_the_law_at_every_scale(beta, gamma, dim):
    target = NonConvex(beta, gamma, dim)
    nodes, cumulative, second_moment = quadrature_of_log_radius(target)
    radius = target.sample((10_000,), seed=2, dtype=torch.float64).norm(dim=-1)
    assert stats.kstest(radius.log().numpy(), lambda u: np.interp(u, nodes, cumulative)).pvalue > LEVEL
    ours, log_radius, _ = _radial_law(target.beta, target.gamma, dim)
    assert np.abs(np.interp(nodes, log_radius, ours) - cumulative).max() < 1e-7
    assert target.second_moment() == pytest.approx(second_moment, rel=1e-9)


def test_non_convex_says_when_its_quadrature_fails(monkeypatch):
    monkeypatch.setattr(non_convex, "_TOLERANCE", 1e-30)
    with pytest.raises(ArithmeticError, match="not resolved to 1e-30 by 1048576 cells"):
        NonConvex(2.0, 0.5, 3).sample((2,), seed=0)


@pytest.mark.parametrize("dim", [1, 4])
def test_non_convex_with_large_beta_is_a_wide_gaussian(dim):
    """f is ‖x‖²/(2√β) up to a constant and terms of order 1/√β."""
    beta = 1e8
    assert NonConvex(beta, gamma=0.5, dim=dim).second_moment() == pytest.approx(dim * math.sqrt(beta), rel=1e-3)


@pytest.mark.parametrize("target", [mixture(3), NonConvex(2.0, 0.5, 3)], ids=["mixture", "non-convex"])
def test_draws_are_seeded_and_shaped(target):
    assert torch.equal(target.sample((4, 5), seed=1), target.sample((4, 5), seed=1))
    assert not torch.equal(target.sample((4, 5), seed=1), target.sample((4, 5), seed=2))
    assert target.sample((4, 5), seed=1).shape == (4, 5, 3)
    assert target.sample(seed=1).shape == (3,)
    assert target.sample((0,), seed=1).shape == (0, 3)
    with pytest.raises(ValueError, match="non-negative"):
        target.sample((-1,), seed=1)


def test_non_convex_dissipativity():
    assert NonConvex(0.33, 0.5, 1).dissipativity == pytest.approx(0.5 - 1 / (8 * math.sqrt(0.33)))
    assert NonConvex(2.0, 1.0, 2).dissipativity == pytest.approx(0.5 - 1 / math.sqrt(2) - 2 / (8 * math.sqrt(2)))


def test_regression_is_the_stated_bernoulli_model():
    features = torch.tensor([[1.0, 2.0], [-1.0, 0.5], [0.3, -0.7]])
    labels = torch.tensor([1.0, 0.0, 1.0])
    target = LogisticRegression(features, labels, alpha=0.8)
    theta = torch.tensor([[0.2, -0.4], [1.0, 1.0]])
    model = torch.distributions.Bernoulli(logits=theta @ features.T)
    prior = 0.4 * ((theta @ features.T).square().sum(-1) / 3)
    torch.testing.assert_close(target(theta), -model.log_prob(labels).sum(-1) + prior)


def test_synthetic_regression_data():
    target = LogisticRegression.synthetic(1000, 20, seed=5, dtype=torch.float64)
    assert float(target.features.norm()) == pytest.approx(math.sqrt(20))
    assert len(target.features.abs().unique()) <= 2  # signs times one number, up to rounding
    assert target.alpha == pytest.approx(0.3 * 20 / math.pi**2)
    again = LogisticRegression.synthetic(1000, 20, seed=5, dtype=torch.float64)
    assert torch.equal(target.features, again.features)
    # Labels follow the model at (1, ..., 1): the score there has mean zero.
    probability = torch.sigmoid(target.features.sum(-1))
    z = float((target.labels - probability).sum() / (probability * (1 - probability)).sum().sqrt())
    assert abs(z) < Z
    assert LogisticRegression.synthetic(50, 2, seed=1).features.dtype == torch.float32


def test_distribution_potential_scalar_and_independent():
    scalar = DistributionPotential(torch.distributions.StudentT(3.0))
    x = torch.linspace(-2.0, 2.0, 5).unsqueeze(-1)
    torch.testing.assert_close(scalar(x), -torch.distributions.StudentT(3.0).log_prob(x.squeeze(-1)))
    several = torch.distributions.Independent(torch.distributions.Normal(torch.zeros(4), torch.ones(4)), 1)
    assert DistributionPotential(several).dim == 4


def test_a_flat_energy_has_gradient_zero():
    flat = FunctionPotential(lambda x: torch.zeros(x.shape[:-1]))
    assert torch.equal(flat.grad(torch.ones(3, 2)), torch.zeros(3, 2))


def test_networks_register():
    class Energy(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x).squeeze(-1)

    potential = FunctionPotential(Energy(2, 1), dim=2)
    assert {name for name, _ in Langevin(potential).named_parameters()} == {
        "potential.energy.weight",
        "potential.energy.bias",
    }


def test_distribution_potential_of_a_mixture():
    parts = torch.distributions.Independent(torch.distributions.Normal(torch.tensor([[-1.0, 0.0], [1.0, 2.0]]), 0.5), 1)
    mixed = torch.distributions.MixtureSameFamily(torch.distributions.Categorical(torch.ones(2)), parts)
    x = torch.linspace(-2.0, 2.0, 10).view(5, 2)
    torch.testing.assert_close(DistributionPotential(mixed)(x), -mixed.log_prob(x))


def test_unconstrained_potential_has_the_density_of_the_logarithm():
    """x = exp(z) with x ~ Gamma(3, 2) has the density of z times dx/dz = x."""
    gamma = torch.distributions.Gamma(torch.tensor(3.0), torch.tensor(2.0))
    potential = UnconstrainedPotential(gamma.log_prob, (), torch.distributions.constraints.positive)
    z = torch.linspace(-2.0, 1.0, 7).unsqueeze(-1)
    torch.testing.assert_close(potential(z), -(gamma.log_prob(z.exp()) + z).squeeze(-1))
    torch.testing.assert_close(potential.constrain(z), z.exp().squeeze(-1))
    torch.testing.assert_close(potential.unconstrain(z.exp().squeeze(-1)), z)


def test_synthetic_data_do_not_depend_on_the_default_dtype():
    features = []
    for default in (torch.float32, torch.float64):
        torch.set_default_dtype(default)  # the fixture of all tests sets it back
        features.append(LogisticRegression.synthetic(50, 2, seed=0, dtype=torch.float64).features)
    assert torch.equal(*features)
