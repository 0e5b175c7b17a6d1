"""Parameters on several supports in one vector, and the order of draws: as the documentation shows them."""

import math

import pytest
import torch
from torch.distributions import Gamma, Normal, constraints

from torchsrk.distributions import DiffusionDistribution
from torchsrk.potentials import UnconstrainedPotential


def test_supports_side_by_side():
    """A Gamma(3, 2) beside two normals, and beside a uniform: means at a significance of 1e-5, and the step's 0.02."""

    def beside(x):
        return Gamma(3.0, 2.0).log_prob(x[..., 0]) + Normal(1.0, 0.5).log_prob(x[..., 1:]).sum(-1)

    def each(x):
        return Gamma(3.0, 2.0).log_prob(x[..., 0]) + 0.0 * x[..., 1]

    options = {"step_size": 0.05, "num_steps": 150, "seed": 0}
    both = constraints.cat([constraints.positive, constraints.real], dim=-1, lengths=[1, 2])
    x = DiffusionDistribution(beside, event_shape=(3,), support=both, **options).sample((4000,))
    assert x.shape == (4000, 3)
    assert (x[:, 0] > 0.0).all()
    assert abs(float(x[:, 0].mean()) - 1.5) < 4.5 * math.sqrt(0.75 / 4000) + 0.02
    assert abs(float(x[:, 1:].mean()) - 1.0) < 4.5 * 0.5 / math.sqrt(8000) + 0.02
    one_each = constraints.stack([constraints.positive, constraints.unit_interval], dim=-1)
    y = DiffusionDistribution(each, event_shape=(2,), support=one_each, **options).sample((4000,))
    assert (y > 0.0).all()
    assert (y[:, 1] < 1.0).all()
    assert abs(float(y[:, 0].mean()) - 1.5) < 4.5 * math.sqrt(0.75 / 4000) + 0.02
    assert abs(float(y[:, 1].mean()) - 0.5) < 4.5 / math.sqrt(12 * 4000) + 0.02


PARTS = [constraints.positive, constraints.real]


@pytest.mark.parametrize(
    ("support", "message"),
    [
        (
            constraints.cat(PARTS, lengths=[1, 2]),
            r"constraints.cat don't .* shape \(3,\): got lengths=\[1, 2\] with dim=0",
        ),
        (constraints.cat(PARTS, dim=-1), r"got lengths=\[1, 1\] with dim=-1; give dim=-1 and, in lengths=, the number"),
        (constraints.cat(PARTS, dim=-1, lengths=[2, 2]), r"got lengths=\[2, 2\] with dim=-1"),
        (constraints.cat(PARTS, dim=-2, lengths=[1, 2]), r"got lengths=\[1, 2\] with dim=-2"),
        (constraints.independent(constraints.cat(PARTS), 1), r"got lengths=\[1, 1\] with dim=0"),
        (constraints.stack([*PARTS, constraints.real]), "constraints.stack don't .* got 3 supports with dim=0"),
        (constraints.stack(PARTS, dim=-1), "got 2 supports with dim=-1; give dim=-1 and a support for every entry"),
    ],
)
def test_parts_that_make_up_no_point(support, message):
    options = {"event_shape": (3,), "support": support, "step_size": 0.1, "num_steps": 2}
    with pytest.raises(ValueError, match=message):
        DiffusionDistribution(lambda x: -x.square().sum(-1), **options)
    with pytest.raises(ValueError, match=message):
        UnconstrainedPotential(lambda x: -x.square().sum(-1), (3,), support)


def test_parts_along_another_dimension():
    support = constraints.cat([constraints.positive, constraints.real], dim=-2, lengths=[1, 2])
    options = {"event_shape": (3, 2), "support": support, "step_size": 0.1, "num_steps": 5, "seed": 0}
    x = DiffusionDistribution(lambda x: -x.square().sum((-2, -1)), **options).sample((50,))
    assert (x[:, 0] > 0.0).all()
    assert (x[:, 1:] < 0.0).any()


def test_the_draws_of_a_chain_stand_together():
    """The first draws of every chain are those of a distribution with one draw a chain."""
    options = {"step_size": 0.1, "num_steps": 10, "seed": 0}
    target = Normal(torch.zeros(2), 1.0)
    chains = DiffusionDistribution(target, chain_length=3, thin=2, **options).sample((12,)).reshape(4, 3, 2)
    firsts = DiffusionDistribution(target, **options).sample((4,))
    torch.testing.assert_close(chains[:, 0], firsts)
