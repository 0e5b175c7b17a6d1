"""A torch distribution without a step size."""

import copy
import math

import pytest
import torch
from torch.distributions import Gamma, constraints

from torchsrk.distributions import DiffusionDistribution


def gamma_posterior(**options):
    return DiffusionDistribution(
        lambda x: (2.0 * x.log() - x).sum(-1),
        event_shape=(2,),
        support=constraints.independent(constraints.positive, 1),
        seed=1,
        **options,
    )


def test_without_numbers_draws_are_right_and_say_so():
    """Gamma(3, 1): 5,000 draws of chains that are tuned; then 1,000 that go on."""
    posterior = gamma_posterior()
    assert "not tuned yet" in repr(posterior)
    draws = posterior.sample((5000,))
    assert draws.shape == (5000, 2)
    assert bool((draws > 0.0).all())
    assert float((draws.mean(0) - 3.0).abs().max()) < 0.1 * math.sqrt(3.0)
    assert float((draws.std(0) / math.sqrt(3.0) - 1.0).abs().max()) < 0.05
    plan = posterior.tuning
    assert posterior.diagnose().trusted
    assert not torch.equal(posterior.sample((1000,)), draws[:1000])
    assert posterior.tuning is plan


def test_a_tuned_state_goes_on_and_expands():
    posterior, other = gamma_posterior(particles=200), gamma_posterior(particles=200)
    posterior.sample((10,))
    state = posterior.state_dict()
    other.load_state_dict(state)
    assert torch.equal(other.sample((300,)), posterior.sample((300,)))
    assert torch.equal(copy.deepcopy(other).sample((3,)), other.sample((3,)))
    batch = posterior.expand((4,))
    assert batch.sample((5, 6)).shape == (5, 6, 4, 2)
    assert batch.tuning is posterior.tuning
    with pytest.raises(ValueError, match="calls and tuned"):
        other.load_state_dict({"calls": 1, "chains": None})
    with pytest.raises(ValueError, match="dimension 1"):
        DiffusionDistribution(Gamma(3.0, 1.0), seed=1).load_state_dict(state)


def test_a_target_that_changes_is_tuned_again_and_gradients_reach_it():
    rate = torch.tensor(2.0, requires_grad=True)
    target = DiffusionDistribution(Gamma(3.0, rate), seed=0)
    target.rsample((1000,)).mean().backward()
    assert abs(float(rate.grad) + 0.75) < 0.15  # d/drate of 3/rate, from 1,000 draws
    plan = target.tuning
    with torch.no_grad():
        rate.mul_(100.0)
    draws = target.sample((2000,))
    assert target.tuning is not plan
    assert abs(float(draws.mean()) - 0.015) < 0.1 * 0.015


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step_size": 0.1}, "give step_size and num_steps, or neither"),
        ({"num_steps": 3}, "give step_size and num_steps, or neither"),
        ({"chain_length": 3}, "are for a given step_size"),
        ({"warm_start": True}, "are for a given step_size"),
    ],
)
def test_numbers_that_do_not_go_together(options, message):
    with pytest.raises(ValueError, match=message):
        gamma_posterior(**options)


def test_a_batch_is_not_tuned_and_given_numbers_have_no_tuning():
    with pytest.raises(ValueError, match="one target is tuned at a time"):
        DiffusionDistribution(Gamma(torch.ones(3), 1.0))
    with pytest.raises(ValueError, match="there is no tuning"):
        _ = DiffusionDistribution(Gamma(3.0, 1.0), step_size=0.1, num_steps=5).tuning


def test_a_diagnosis_leaves_draws_as_they_were():
    posterior, other = gamma_posterior(particles=400), gamma_posterior(particles=400)
    posterior.sample((10,))
    other.sample((10,))
    diagnosis = posterior.diagnose(names=["a", "b"])
    assert diagnosis.trusted, diagnosis
    assert diagnosis.names == ("a", "b")
    assert diagnosis.draws * diagnosis.particles == 4000
    assert float((diagnosis.table["mean"] - 3.0).abs().max()) < 0.2  # of the Gamma law, not of its logarithm
    assert torch.equal(posterior.sample((500,)), other.sample((500,)))


def test_given_numbers_are_diagnosed_too():
    options = {"seed": 0, "particles": 500, "integrator": "baoab"}
    long = DiffusionDistribution(Gamma(3.0, 1.0), step_size=0.4, num_steps=100, **options)
    assert long.diagnose().trusted
    with pytest.warns(RuntimeWarning, match="had not arrived"):
        short = DiffusionDistribution(
            Gamma(3.0, 1.0), step_size=0.05, num_steps=10, initial=torch.tensor(0.01), **options
        ).diagnose()
    assert not short.trusted
    with pytest.raises(ValueError, match="one target is looked at"):
        DiffusionDistribution(Gamma(torch.ones(3), 1.0), step_size=0.1, num_steps=5).diagnose()
