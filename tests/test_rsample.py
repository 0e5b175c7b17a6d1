"""Gradients of DiffusionDistribution.rsample for every distribution of torch that has an rsample of its own.

Each is made from one vector of parameters, so that its arguments depend on one another. Expected gradients are compared
with those of torch's own draws by z-tests at level 1e-4 each, with fixed seeds: some sixty of them, so that a right
sampler fails one with a probability below 1 % when the seeds are first chosen.
"""

import inspect
from dataclasses import dataclass

import pytest
import torch
from scipy import stats
from torch import distributions as D

from torchsrk import integrate
from torchsrk.distributions import DiffusionDistribution

LEVEL = 1e-4
AT = torch.tensor([0.3, -0.2], dtype=torch.float64)


@dataclass(frozen=True)
class Case:
    """A distribution of parameters t (..., 2), and steps that are small and many enough for it."""

    make: object
    step_size: float = 0.1
    num_steps: int = 40
    refused: str | None = None  # the error, where a diffusion can't have this law or its gradients
    from_own: bool = True  # the chains start at draws of torch's, else at normal points of the unconstrained space


def low_rank(t):
    factor = torch.stack((t.exp(), t.sin()), dim=-1)
    return D.LowRankMultivariateNormal(t, factor, 0.5 + t.square())


def multivariate(t):
    a, b = t.exp().unbind(-1)
    covariance = torch.stack((torch.stack((a + 1, t[..., 0]), -1), torch.stack((t[..., 0], b + 1), -1)), -1)
    return D.MultivariateNormal(t, covariance)


def wishart(t):
    a, b = t.exp().unbind(-1)
    zero = torch.zeros_like(a)
    triangle = torch.stack((torch.stack((a, zero), -1), torch.stack((t[..., 0], b), -1)), -2)
    return D.Wishart(df=8 + a, scale_tril=0.5 * triangle)


def transformed(t):
    return D.TransformedDistribution(D.Normal(t, t.exp()), [D.transforms.SigmoidTransform()])


CASES = {
    "Beta": Case(lambda t: D.Beta(2 + t, 2 + t.exp())),
    "Cauchy": Case(lambda t: D.Cauchy(t, t.exp()), 0.2),
    "Chi2": Case(lambda t: D.Chi2(3 + t.exp())),
    "ContinuousBernoulli": Case(lambda t: D.ContinuousBernoulli(logits=t + t.sum(-1, keepdim=True)), 0.5),
    "Dirichlet": Case(lambda t: D.Dirichlet(torch.cat((2 + t, 1 + t.exp()), dim=-1))),
    "Exponential": Case(lambda t: D.Exponential(t.exp())),
    "FisherSnedecor": Case(lambda t: D.FisherSnedecor(4 + t, 6 + t.exp())),
    "Gamma": Case(lambda t: D.Gamma(t.exp() + 1, 2 * t.exp())),
    "GeneralizedPareto": Case(lambda t: D.GeneralizedPareto(t, t.exp(), 0.1 + 0.1 * t.square()), 0.2, from_own=False),
    "Gumbel": Case(lambda t: D.Gumbel(t, t.exp()), 0.15, 160),
    "HalfCauchy": Case(lambda t: D.HalfCauchy(t.exp()), 0.2),
    "HalfNormal": Case(lambda t: D.HalfNormal(t.exp())),
    "Independent": Case(lambda t: D.Independent(D.Normal(t, t.exp()), 1)),
    "InverseGamma": Case(lambda t: D.InverseGamma(2 + t, t.exp())),
    "Kumaraswamy": Case(lambda t: D.Kumaraswamy(2 + t, 1 + t.exp())),
    # The drift jumps at the corner: the jump moves with the parameters, and autograd does not see it.
    "Laplace": Case(lambda t: D.Laplace(t, t.exp()), refused="has a corner"),
    "LogNormal": Case(lambda t: D.LogNormal(t, 0.5 * t.exp())),
    "LogisticNormal": Case(lambda t: D.LogisticNormal(t, t.exp())),
    "LowRankMultivariateNormal": Case(low_rank, 0.2),
    "MultivariateNormal": Case(multivariate, 0.2),
    "Normal": Case(lambda t: D.Normal(t, t.exp())),
    # Its gradients are those of its probabilities, and there is no density.
    "OneHotCategoricalStraightThrough": Case(
        lambda t: D.OneHotCategoricalStraightThrough(logits=t), refused="is discrete"
    ),
    "Pareto": Case(lambda t: D.Pareto(t.exp(), 2 + t), 0.2, from_own=False),
    "RelaxedBernoulli": Case(lambda t: D.RelaxedBernoulli(torch.tensor(0.8), logits=t), 0.5),
    "RelaxedOneHotCategorical": Case(
        lambda t: D.RelaxedOneHotCategorical(torch.tensor(0.8), logits=torch.cat((t, t.exp()), -1)), 0.4
    ),
    "StudentT": Case(lambda t: D.StudentT(5 + t, t, t.exp())),
    "TransformedDistribution": Case(transformed),
    "Uniform": Case(lambda t: D.Uniform(t, t + t.exp()), 0.5, from_own=False),
    "Weibull": Case(lambda t: D.Weibull(t.exp(), 1.5 + t)),
    "Wishart": Case(wishart, 0.02),
}


def has_rsample(kind) -> bool:
    # Whether a transformed distribution has one is known of its instances alone.
    return kind is not D.Distribution and issubclass(kind, D.Distribution) and bool(kind.has_rsample)


def test_every_distribution_is_here():
    kinds = {name for name, kind in vars(D).items() if inspect.isclass(kind) and has_rsample(kind)}
    assert kinds == set(CASES)


def gradients(draws, t):
    """Of a bounded function of every draw, in the parameters of that draw alone."""
    flat = draws.reshape(len(t), -1)
    weights = torch.arange(1, flat.shape[1] + 1, dtype=flat.dtype)
    return torch.autograd.grad((flat.tanh() * weights).sum(), t)[0]


def diffusion(name, t, **options):
    case = CASES[name]
    initial = case.make(t.detach()) if case.from_own else None
    return DiffusionDistribution(case.make(t), step_size=case.step_size, seed=2, initial=initial, **options)


SERVED = [name for name, case in CASES.items() if case.refused is None]
NEAR_SINGULAR = pytest.mark.filterwarnings("ignore:Singular sample")  # torch says so of many a Wishart matrix


@NEAR_SINGULAR
@pytest.mark.parametrize("name", SERVED)
def test_recomputed_gradients_are_those_of_plain_backpropagation(name, monkeypatch):
    found = []
    for recompute in (True, False):
        plain = {"recompute": recompute}
        monkeypatch.setattr("torchsrk.distributions.integrate", lambda *a, plain=plain, **k: integrate(*a, **k | plain))
        torch.manual_seed(0)
        t = AT.expand(3, 2).clone().requires_grad_()
        found.append(gradients(diffusion(name, t, num_steps=5).rsample(), t))
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)
    assert found[0].abs().max() > 1e-3


@NEAR_SINGULAR
@pytest.mark.parametrize("name", SERVED)
def test_expected_gradients_are_those_of_the_distributions_own_rsample(name):
    torch.manual_seed(0)
    theirs, ours = (AT.expand(count, 2).clone().requires_grad_() for count in (20_000, 500))
    expected = gradients(CASES[name].make(theirs).rsample(), theirs)
    found = gradients(diffusion(name, ours, num_steps=CASES[name].num_steps).rsample(), ours)
    error = (found.var(0) / len(found) + expected.var(0) / len(expected)).sqrt()
    assert ((found.mean(0) - expected.mean(0)).abs() < stats.norm.isf(LEVEL / 2) * error).all()
    assert error.max() < 0.15 * expected.mean(0).abs().max()  # or the test could not fail


@pytest.mark.parametrize("name", [name for name in CASES if name not in SERVED])
def test_what_a_diffusion_can_not_serve_is_refused(name):
    with pytest.raises(ValueError, match=CASES[name].refused):
        diffusion(name, AT.clone().requires_grad_(), num_steps=2).rsample()


def test_a_corner_matters_to_gradients_alone():
    assert diffusion("Laplace", AT, num_steps=2).rsample((3,)).shape == (3, 2)


def test_rsample_under_transformations():
    def loss(t):
        return diffusion("Normal", t, num_steps=5).rsample((3,)).square().sum()

    t = AT.clone().requires_grad_()
    (expected,) = torch.autograd.grad(loss(t), t)
    torch.testing.assert_close(torch.func.grad(loss)(AT), expected)


def test_intervals_that_end_at_infinity():
    mixed = D.GeneralizedPareto(torch.zeros(2), torch.ones(2), torch.tensor([-0.5, 0.5]))
    with pytest.raises(ValueError, match="some that end at infinity"):
        DiffusionDistribution(mixed, step_size=0.1, num_steps=2)
