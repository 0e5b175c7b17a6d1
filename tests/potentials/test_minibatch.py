"""Stochastic gradients: unbiased, seeded, resumable. Significance 1e-4, fixed seeds."""

import math

import pytest
import torch
from scipy import stats

from tests.problems import minibatch
from torchsrk import Langevin, sample
from torchsrk.potentials import MinibatchPotential, Potential

X = torch.tensor([[0.5, -1.0], [2.0, 0.3]], dtype=torch.float64)


def full_gradient(potential):
    return Potential.grad(potential, X)


def test_gradients_are_unbiased():
    potential = minibatch()
    draws = torch.stack([potential.grad(X) for _ in range(4000)])
    standard_error = draws.std(0) / math.sqrt(len(draws))
    z = (draws.mean(0) - full_gradient(potential)) / standard_error
    assert z.abs().max() < stats.norm.isf(1e-4 / 2 / z.numel())
    assert draws.std(0).min() > 0.1


def test_variance_falls_as_one_over_the_batch_size():
    spread = [
        torch.stack([potential.grad(X) for _ in range(2000)]).var(0).sum().item()
        for potential in (minibatch(batch_size=2), minibatch(batch_size=32))
    ]
    assert spread[0] / spread[1] == pytest.approx(16.0, rel=0.2)


def test_minibatches_are_seeded_and_survive_a_state_dict():
    first, second = minibatch(seed=9), minibatch(seed=9)
    assert torch.equal(first.grad(X), second.grad(X))
    first.grad(X)
    resumed = minibatch(seed=9)
    resumed.load_state_dict(first.state_dict())
    assert resumed.draws == 2
    assert torch.equal(resumed.grad(X), first.grad(X))
    assert not torch.equal(minibatch(seed=1).grad(X), minibatch(seed=2).grad(X))


def test_minibatches_are_the_same_for_all_particles_and_apart_from_the_brownian_motion():
    x0 = torch.zeros(6, 2)
    options = {"integrator": "srk-ld", "step_size": 0.01, "num_steps": 20, "seed": 1}
    whole = sample(Langevin(minibatch()), x0, **options).final
    part = sample(Langevin(minibatch()), x0[4:], first_particle=4, **options).final
    torch.testing.assert_close(whole[4:], part)
    # Blocks can't share out a potential that counts its calls: the batch stays in one piece.
    assert torch.equal(sample(Langevin(minibatch()), x0, block_size=2, **options).final, whole)


def test_the_chain_samples_the_posterior_up_to_the_oracles_variance():
    potential = minibatch(batch_size=10)
    features, targets = potential.data_0, potential.data_1
    precision = features.T @ features + torch.eye(2)
    mean = torch.linalg.solve(precision, features.T @ targets)
    run = sample(Langevin(potential), torch.zeros(4000, 2), integrator="em", step_size=2e-3, num_steps=400, seed=0)
    # All particles share the minibatches, so their mean is not an average over those: half a posterior deviation.
    spread = torch.linalg.inv(precision).diagonal().sqrt()
    assert ((run.final.mean(0) - mean).abs() < 0.5 * spread).all()
    assert (run.final.std(0) / spread - 1.0).abs().max() < 0.15


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"loss": 3}, TypeError, "loss is a callable"),
        ({"data": ()}, ValueError, "one or more non-empty"),
        ({"data": (torch.ones(3, 1), torch.ones(4))}, ValueError, "as many in each"),
        ({"batch_size": 0}, ValueError, "positive integer"),
        ({"prior": abs}, TypeError, "FunctionPotential"),
        ({"seed": -1}, ValueError, "seed"),
    ],
)
def test_bad_arguments(change, error, message):
    arguments = {"loss": lambda x, d: x @ d.T, "data": torch.ones(3, 2), "batch_size": 1, "seed": 0} | change
    with pytest.raises(error, match=message):
        MinibatchPotential(arguments.pop("loss"), arguments.pop("data"), **arguments)


def test_a_loss_of_the_wrong_shape():
    potential = MinibatchPotential(lambda x, d: (x @ d.T).sum(-1), torch.ones(3, 2), batch_size=2, seed=0)
    with pytest.raises(ValueError, match=r"expected \(2, 2\), got \(2,\)"):
        potential.grad(X)
