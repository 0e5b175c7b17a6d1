"""Runs of a plan know what is read of them: the parameters in their support, and not the coordinates of a chain."""

import copy
import pickle
import warnings

import pytest
import torch
from torch.distributions import Gamma, constraints

from torchsrk import Run, diagnose, to_arviz, tune
from torchsrk.distributions import DiffusionDistribution
from torchsrk.plots import posterior_figure
from torchsrk.potentials import UnconstrainedPotential
from torchsrk.tuning import Tuning

MEAN = 5.0


def gammas(**options):
    potential = UnconstrainedPotential(
        lambda x: ((MEAN - 1.0) * x.log() - x).sum(-1), (2,), constraints.independent(constraints.positive, 1)
    )
    return potential, tune(potential, particles=300, seed=0, **options)


@pytest.fixture(scope="module")
def plan():
    return gammas()[1]


def means(run, **options):
    return to_arviz(run, ["a", "b"], **options).posterior.mean().to_array().values


def test_what_is_read_by_default_and_on_demand(plan):
    run = plan.sample(10)
    assert abs(means(run) - MEAN).max() < 0.5
    assert abs(means(run, parameters=lambda x: x) - 1.5).max() < 0.3  # of the logarithms
    for diagnosis in (diagnose(run), diagnose(run, tuning=plan)):
        assert abs(float(diagnosis.table["mean"][0]) - MEAN) < 0.5
    logarithm = diagnose(run, parameters=lambda x: x)
    assert abs(float(logarithm.table["mean"][0]) - 1.5) < 0.3
    low, high = posterior_figure(run).axes[1].get_xlim()
    assert low > -1.0
    assert high > 8.0


def test_what_tune_was_given_is_read():
    potential, plan = gammas(constrain=lambda x: -x.exp())
    assert abs(means(plan.sample(3)) + MEAN).max() < 0.5
    again = Tuning.restored(potential, plan.state_dict(), constrain=plan.constrain)
    assert abs(float(again.diagnose(again.sample(10)).table["mean"][0]) + MEAN) < 0.5


def test_a_run_that_was_saved_says_what_it_lacks(plan):
    run = plan.sample(3)
    for kept in (Run.restored(run.state_dict()), pickle.loads(pickle.dumps(run)), copy.copy(run)):
        with pytest.raises(ValueError, match="give tuning=, the plan that drew it, or parameters="):
            to_arviz(kept)
        assert (means(kept, tuning=plan) == means(run)).all()
        assert torch.equal(plan.sample(2, after=kept).final, plan.sample(2, after=run).final)
    assert (means(Run.restored(run.state_dict(), plan.constrain)) == means(run)).all()


def test_another_plan_and_a_batch_are_refused(plan):
    other = tune(plan.potential.potential, particles=300, seed=1)
    for reader in (diagnose, to_arviz):
        with pytest.raises(ValueError, match="drawn by another plan"):
            reader(plan.sample(3), tuning=other)
    batch = DiffusionDistribution(Gamma(torch.tensor([2.0, 9.0]), 1.0), seed=0, particles=100)
    run = batch.tuning.sample(3)
    for reader in (diagnose, to_arviz, posterior_figure):
        with pytest.raises(ValueError, match=r"a batch of targets \(2,\)"):
            reader(run)
    one = batch.constrain(run.trajectory)[:, :, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert to_arviz(one.unsqueeze(-1)).posterior["x"].shape == (100, 3, 1)
