"""Pyro's models as potentials: the density is Pyro's own, and so are the draws."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer.mcmc.util import initialize_model

from torchsrk import to_arviz, tune
from torchsrk.interop import potential_from_pyro

EFFECTS = torch.tensor([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0], dtype=torch.float64)
ERRORS = torch.tensor([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0], dtype=torch.float64)


def schools(effects, errors):
    mu = pyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = pyro.sample("tau", dist.HalfCauchy(5.0))
    with pyro.plate("schools", len(effects)):
        z = pyro.sample("z", dist.Normal(0.0, 1.0))
        theta = pyro.deterministic("theta", mu + tau * z)
        pyro.sample("effects", dist.Normal(theta, errors), obs=effects)


def supports():
    """A site on every kind of support, matrices and vectors."""
    weights = pyro.sample("weights", dist.Dirichlet(torch.ones(3)))
    rate = pyro.sample("rate", dist.Uniform(1.0, 3.0))
    with pyro.plate("rows", 2):
        x = pyro.sample("x", dist.MultivariateNormal(torch.zeros(3), torch.eye(3)))
        pyro.sample("y", dist.Gamma(rate, 1.0))
    pyro.sample("seen", dist.Normal((weights * x).sum(), 1.0), obs=torch.tensor(0.3))


@pytest.mark.parametrize(("model", "arguments"), [(schools, (EFFECTS, ERRORS)), (supports, ())])
def test_the_density_is_pyros(model, arguments):
    potential = potential_from_pyro(model, *arguments)
    x = 0.5 * torch.randn(2, 3, potential.dim, generator=torch.Generator().manual_seed(0))
    energies, gradients = potential(x), potential.grad(x)
    assert energies.shape == (2, 3)
    _, pyros, _, _ = initialize_model(model, model_args=arguments)
    for place in [(0, 0), (1, 2)]:
        row = x[place].clone().requires_grad_()
        expected = pyros(potential._parts(row))
        torch.testing.assert_close(energies[place], expected.detach())
        torch.testing.assert_close(gradients[place].detach(), torch.autograd.grad(expected, row)[0])


def test_names_and_values():
    potential = potential_from_pyro(supports)
    assert potential.names == {"weights": (3,), "rate": (), "x": (2, 3), "y": (2,)}
    assert potential.dim == 2 + 1 + 6 + 2
    x = torch.randn(5, potential.dim)
    values = potential.values(x)
    torch.testing.assert_close(values["weights"].sum(-1), torch.ones(5))
    assert ((values["rate"] > 1.0) & (values["rate"] < 3.0)).all()
    assert (values["y"] > 0.0).all()
    assert potential.constrain(x).shape == (5, 3 + 1 + 6 + 2)


def test_draws_are_right():
    """Eight schools, tuned: the posterior's means are known from long runs of NUTS, 4.4 and 3.6."""
    potential = potential_from_pyro(schools, EFFECTS, ERRORS)
    run = tune(potential, particles=500, seed=0).sample(10)
    values = potential.values(run.trajectory)
    assert abs(float(values["mu"].mean()) - 4.4) < 0.4
    assert abs(float(values["tau"].mean()) - 3.6) < 0.5
    posterior = to_arviz(run, names=potential.names, parameters=potential.constrain).posterior
    assert posterior["z"].shape == (500, 10, 8)


def test_the_global_generator_stays():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    potential_from_pyro(schools, EFFECTS, ERRORS)
    assert torch.rand(3).equal(expected)


def discrete():
    pyro.sample("coin", dist.Bernoulli(0.5))


def nothing():
    pyro.sample("seen", dist.Normal(0.0, 1.0), obs=torch.tensor(1.0))


def dependent():
    top = pyro.sample("top", dist.LogNormal(0.0, 1.0))
    pyro.sample("below", dist.Uniform(0.0, top))


def subsampled():
    mean = pyro.sample("mean", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", 10, subsample_size=3) as rows:
        pyro.sample("seen", dist.Normal(mean, 1.0), obs=torch.arange(10.0)[rows])


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (discrete, "'coin' is discrete and not observed"),
        (nothing, "no latent sites"),
        (dependent, "the support of 'below' depends on the other sites"),
        (subsampled, "'rows' draws a subsample"),
    ],
)
def test_refused(model, message):
    with pytest.raises(ValueError, match=message):
        potential_from_pyro(model)
