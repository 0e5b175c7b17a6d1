"""A torch distribution without a step size."""

import copy
import math
import pickle

import pytest
import torch
from torch.distributions import Gamma, Normal, constraints

from torchsrk.distributions import DiffusionDistribution
from torchsrk.starts import spread_over


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


def test_targets_of_a_batch_have_plans_of_their_own():
    """Normals whose scales are 1e6 apart, and a Gamma law beside a nearly normal one, all tuned together."""
    loc, scale = torch.tensor([[0.0, 5.0, -300.0]]), torch.tensor([[1e-3], [1e3]])
    normals = DiffusionDistribution(Normal(loc, scale), seed=0)
    draws = normals.sample((4000,))
    assert draws.shape == (4000, 2, 3)
    assert float(((draws.mean(0) - loc) / scale).abs().max()) < 0.1
    assert float((draws.std(0) / scale - 1.0).abs().max()) < 0.05
    assert len(normals.tuning.reports) == 6
    assert normals.tuning.trusted, normals.tuning.troubles
    gammas = Gamma(torch.tensor([2.0, 100.0]), 1.0)
    skewed = DiffusionDistribution(gammas, seed=0, compile="auto")
    draws = skewed.expand((2, 2)).sample((3000,))
    assert draws.shape == (3000, 2, 2)
    assert float(((draws.mean(0) - gammas.mean) / gammas.stddev).abs().max()) < 0.1
    assert float((draws.std(0) / gammas.stddev - 1.0).abs().max()) < 0.06
    assert not torch.equal(draws[:, 0], draws[:, 1])
    first, second = skewed.tuning.potential.scale.times(torch.ones(2, 1)).flatten().tolist()
    assert first != second


def test_targets_of_a_batch_take_as_long_as_each_needs():
    """A normal law, which is done at once, before two that bend, and an odd number of particles."""
    bend = torch.tensor([0.0, 0.5, 1.0])

    def log_density(x):
        return -0.5 * x[..., 0].square() - 2.0 * (x[..., 1] - bend * x[..., 0].square()).square()

    options = {"event_shape": (2,), "batch_shape": (3,), "seed": 0}
    batch = DiffusionDistribution(log_density, particles=999, **options)
    draws = batch.sample((9990,))
    mean, sd = torch.stack((0.0 * bend, bend), -1), torch.stack((1.0 + 0.0 * bend, (2.0 * bend**2 + 0.25).sqrt()), -1)
    assert float(((draws.mean(0) - mean) / sd).abs().max()) < 0.1
    assert float((draws.std(0) / sd - 1.0).abs().max()) < 0.05
    windows = [report.windows for report in batch.tuning.reports]
    assert windows[0] < windows[2]
    # As if alone, but for its noise: no target's noise is that of another, or of an earlier window.
    assert abs(float(torch.corrcoef(draws[:, :, 0].T)[0, 1:].abs().max())) < 0.06


def test_a_target_of_a_batch_that_can_not_be_sampled_is_named():
    precision = torch.tensor([[1.0, 2.0], [0.0, 3.0]])

    def log_density(x):
        return -0.5 * precision * x.squeeze(-1).square()

    batch = DiffusionDistribution(log_density, event_shape=(1,), batch_shape=(2, 2), seed=0, particles=100)
    with pytest.raises(ValueError, match=r"target \(1, 0\) of the batch: the density does not depend on coordinate 0"):
        batch.sample()


def test_a_batch_goes_on_from_its_state():
    options = {"seed": 3, "particles": 100}
    batch, other = (DiffusionDistribution(Gamma(torch.tensor([2.0, 9.0]), 1.0), **options) for _ in range(2))
    batch.sample((3,))
    other.load_state_dict(batch.state_dict())
    assert torch.equal(batch.sample((250,)), other.sample((250,)))
    assert batch.rsample((5,)).shape == (5, 2)
    with pytest.raises(ValueError, match="batch shape"):
        DiffusionDistribution(Gamma(torch.ones(3), 1.0), seed=3).load_state_dict(batch.state_dict())


def test_draws_of_one_target_are_spread_over_a_batch():
    """Every number of a (draws · copies, *own) block is found once, under its own target."""
    points = torch.arange(2 * 12 * 3).reshape(24, 3, 1)
    spread = spread_over(points, 2, torch.Size((3, 1)), torch.Size((4, 3, 3)))
    assert spread.shape == (2, 4, 3, 3)
    assert sorted(spread.flatten().tolist()) == list(range(72))
    assert bool((spread % 3 == torch.arange(3).reshape(3, 1)).all())


def test_given_numbers_have_no_tuning():
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
    with pytest.raises(ValueError, match=r"tuning\.reports"):
        DiffusionDistribution(Gamma(torch.ones(3), 1.0)).diagnose()


def test_data_in_double_precision_is_not_looked_at_in_single():
    data = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
    with_double = DiffusionDistribution(lambda x: -(x - data).square().sum(-1), event_shape=(3,), seed=0, particles=100)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        assert with_double.sample((10,)).dtype == torch.float64
    finally:
        torch.set_default_dtype(before)


def test_the_state_of_another_target_is_tuned_anew():
    first, other = (DiffusionDistribution(Gamma(rate, 1.0), seed=0, particles=100) for rate in (2.0, 9.0))
    first.sample((10,))
    other.load_state_dict(first.state_dict())
    assert first.is_tuned
    assert not other.is_tuned
    assert abs(float(other.tuning.sample(5).trajectory.exp().mean()) - 9.0) < 1.0
    assert other.is_tuned


def log_density(x):
    return (2.0 * x.log() - x).sum(-1)


@pytest.mark.parametrize("drawn_before", [False, True])
@pytest.mark.parametrize("target", [log_density, Gamma(torch.tensor([3.0, 2.0]), 1.0), Normal(0.0, 1.0)])
def test_a_copy_by_pickle_goes_on(target, drawn_before):
    options = {} if target is not log_density else {"event_shape": (2,), "support": constraints.positive}
    posterior = DiffusionDistribution(target, seed=0, particles=100, **options)
    if drawn_before:
        posterior.sample((10,))
    for copied in (pickle.loads(pickle.dumps(posterior)), copy.deepcopy(posterior)):
        assert torch.equal(copied.sample((30,)), copy.deepcopy(posterior).sample((30,)))


def test_other_parameters_are_diagnosed():
    posterior = gamma_posterior(particles=400)
    diagnosis = posterior.diagnose(names=["sum"], parameters=lambda x: x.sum(-1, keepdim=True))
    assert abs(float(diagnosis.table["mean"][0]) - 6.0) < 0.3
