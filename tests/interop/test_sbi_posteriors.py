"""Posteriors of sbi: its own potentials, prior and transform, beside answers in closed form and its own sampler."""

import warnings

import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("sbi.inference")
    from sbi.inference.potentials.base_potential import BasePotential
    from sbi.utils import BoxUniform, mcmc_transform

from torchsrk.interop import SbiPosterior

pytestmark = pytest.mark.filterwarnings("ignore")  # sbi's own


class Gaussian(BasePotential):
    """x ~ N(theta, 0.2²) for theta in a box."""

    def __call__(self, theta, track_gradients=True):
        with torch.set_grad_enabled(track_gradients):
            likelihood = torch.distributions.Normal(theta, 0.2).log_prob(self.x_o).sum(-1)
            return likelihood + self.prior.log_prob(theta)


@pytest.fixture(autouse=True)
def _single_precision():
    torch.set_default_dtype(torch.float32)  # as sbi has it


def made(**options):
    prior = BoxUniform(-torch.ones(2), torch.ones(2))
    potential = Gaussian(prior, x_o=torch.zeros(1, 2))
    return SbiPosterior(potential, prior, mcmc_transform(prior), seed=0, particles=500, **options)


def test_one_observation():
    """Far from the walls the posterior is N(x, 0.2²): mean and spread of 4,000 draws."""
    theta = made().sample((4000,), x=torch.tensor([[0.1, -0.2]]))
    assert theta.shape == (4000, 2)
    assert theta.dtype == torch.float32
    assert ((theta.mean(0) - torch.tensor([0.1, -0.2])).abs() < 5 * 0.2 / 4000**0.5 + 0.01).all()
    assert ((theta.std(0) / 0.2 - 1.0).abs() < 0.1).all()


def test_at_a_wall():
    """Half a normal: its mean is 1 - 0.2·√(2/π), and no draw is outside the box."""
    theta = made().sample((4000,), x=torch.tensor([[1.0, 0.0]]))
    assert (theta.abs() <= 1.0).all()
    assert abs(float(theta[:, 0].mean()) - (1.0 - 0.2 * (2 / torch.pi) ** 0.5)) < 0.02


def test_many_observations():
    x = torch.tensor([[0.0, 0.0], [0.4, -0.4], [-0.3, 0.2]])
    theta = made().sample_batched((1000,), x=x)
    assert theta.shape == (1000, 3, 2)
    assert ((theta.mean(0) - x).abs() < 0.05).all()


def test_by_given_numbers_and_seed():
    options = {"step_size": 0.01, "num_steps": 50}
    first, again = (made(**options).sample((20,)) for _ in range(2))
    assert first.equal(again)
    prior = BoxUniform(-torch.ones(2), torch.ones(2))
    default = SbiPosterior(Gaussian(prior, x_o=torch.zeros(1, 2)), prior, seed=0, particles=500, **options)
    assert default.sample((20,)).equal(first)


def test_beside_the_slice_sampler():
    """A classifier that is given draws of both tells them apart no better than by chance: 0.5, within five of its
    standard errors for 2,000 draws."""
    from sbi.inference.posteriors import MCMCPosterior
    from sbi.utils.metrics import c2st

    x = torch.tensor([[0.9, 0.3]])  # near a wall
    prior = BoxUniform(-torch.ones(2), torch.ones(2))
    torch.manual_seed(0)
    chains = {"num_chains": 20, "warmup_steps": 50, "thin": 5}
    theirs = MCMCPosterior(Gaussian(prior, x_o=x), prior, theta_transform=mcmc_transform(prior), **chains)
    draws = theirs.sample((1000,), x=x, show_progress_bars=False)
    accuracy = float(c2st(draws, made().sample((1000,), x=x), classifier="rf"))
    assert abs(accuracy - 0.5) < 5 * 0.5 / 2000**0.5, accuracy
