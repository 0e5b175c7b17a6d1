"""Pyro's models as potentials: the density is Pyro's own, and so are the draws."""

import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer.mcmc.util import initialize_model

from torchsrk import diagnose, to_arviz, tune
from torchsrk.distributions import DiffusionDistribution
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


def test_threads_take_turns():
    """Pyro has one list of handlers for all of them."""
    potential = potential_from_pyro(schools, EFFECTS, ERRORS)
    x = torch.randn(50, potential.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = potential(x)
    with ThreadPoolExecutor(4) as pool:
        assert all(torch.equal(energies, expected) for energies in pool.map(potential, [x] * 60))


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


def plan_of(model, *arguments):
    potential = potential_from_pyro(model, *arguments)
    return potential, tune(potential, particles=200, seed=0)


def test_what_is_read_are_the_sites_values():
    """Of tau, and not of its logarithm: by a plan and by hand, in every report."""
    potential, plan = plan_of(schools, EFFECTS, ERRORS)
    run = plan.sample(10)
    tau = float(potential.values(run.trajectory)["tau"].mean())
    assert tau > 2.0
    by_plan = diagnose(run, tuning=plan, names=potential.names)
    by_hand = diagnose(run, tuning=plan, names=potential.names, parameters=potential.constrain)
    for diagnosis in (by_plan, by_hand):
        (row,) = (row for row in diagnosis.rows() if row["name"] == "tau")
        assert row["mean"] == pytest.approx(tau)
    posterior = to_arviz(run, names=potential.names, tuning=plan).posterior
    assert float(posterior["tau"].mean()) == pytest.approx(tau)


def test_as_a_distribution():
    """Draws are the sites' values in one vector, inside their supports, with Pyro's own density."""
    potential = potential_from_pyro(supports)
    posterior = DiffusionDistribution(potential, step_size=0.05, num_steps=20, seed=0)
    draws = posterior.sample((50,))
    assert draws.shape == (50, 3 + 1 + 6 + 2)
    assert posterior.event_shape == (12,)
    assert posterior.support.check(draws).all()
    assert not posterior.support.check(-draws).any()
    torch.testing.assert_close(draws[:, :3].sum(-1), torch.ones(50))
    torch.testing.assert_close(potential.constrain(potential.unconstrain(draws)), draws)
    sites = {name: value[0] for name, value in potential.sites(draws).items()}
    joint = pyro.poutine.trace(pyro.poutine.condition(supports, data=sites)).get_trace().log_prob_sum()
    torch.testing.assert_close(posterior.unnormalized_log_prob(draws)[0], joint)
    assert posterior.expand((2,)).sample((3,)).shape == (3, 2, 12)


def test_sites_on_all_of_space_are_their_own_coordinates():
    def model():
        pyro.sample("mean", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        pyro.sample("shift", dist.Normal(0.0, 1.0))

    assert potential_from_pyro(model).is_identity
    assert not potential_from_pyro(supports).is_identity


def branching():
    mean = pyro.sample("mean", dist.Normal(0.0, 1.0))
    spread = 1.0 if mean > 0 else 2.0
    pyro.sample("seen", dist.Normal(mean, spread), obs=torch.tensor(1.0))


def itemised():
    mean = pyro.sample("mean", dist.Normal(0.0, 1.0))
    pyro.sample("seen", dist.Normal(mean, 1.0 + abs(mean.item())), obs=torch.tensor(1.0))


@pytest.mark.parametrize("model", [branching, itemised])
def test_models_that_look_at_values_are_refused(model):
    with pytest.raises(ValueError, match=r"looks at the values of its sites.*write it with torch.where"):
        potential_from_pyro(model)


def test_values_and_sites_are_not_taken_for_one_another():
    """Of tau: its draws, or those of its logarithm."""
    potential, plan = plan_of(schools, EFFECTS, ERRORS)
    x = plan.sample(2).trajectory
    draws = potential.constrain(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = potential.values(x)["tau"]
        potential.values(x.new_ones(potential.dim))
    assert torch.equal(potential.sites(draws)["tau"], expected)
    with pytest.raises(ValueError, match=r"values of tau outside the support.*go to values"):
        potential.sites(x)
    with pytest.warns(RuntimeWarning, match="look like the sites' values already"):
        potential.values(draws)


def test_vectors_of_the_wrong_length():
    potential = potential_from_pyro(supports)
    with pytest.raises(ValueError, match=r"unconstrained points \(\.\.\., 11\); got \(2, 12\).*go to sites"):
        potential.values(torch.ones(2, 12))
    with pytest.raises(ValueError, match=r"one vector \(\.\.\., 12\); got \(2, 11\).*go to values"):
        potential.sites(torch.ones(2, 11))


def test_parameters_are_named():
    def model():
        scale = pyro.param("scale", torch.tensor(2.0))
        pyro.sample("mean", dist.Normal(0.0, scale))

    with pytest.warns(RuntimeWarning, match="held at their values and not sampled: scale"):
        potential_from_pyro(model)
    pyro.clear_param_store()


def test_a_distribution_of_a_model_can_be_pickled():
    posterior = DiffusionDistribution(potential_from_pyro(schools, EFFECTS, ERRORS), seed=0, particles=100)
    again = pickle.loads(pickle.dumps(posterior))
    assert torch.equal(again.sample((5,)), posterior.sample((5,)))


class Model(pyro.nn.PyroModule):
    def forward(self):
        pyro.sample("mean", dist.Normal(0.0, 1.0))


@pytest.mark.parametrize("model", [schools, supports, Model()])
def test_a_model_is_no_density(model):
    for door in (lambda m: tune(m, dim=2, seed=0), lambda m: DiffusionDistribution(m, event_shape=(2,))):
        with pytest.raises(TypeError, match=r"is a Pyro model, and no log density: .*potential_from_pyro\(model"):
            door(model)
