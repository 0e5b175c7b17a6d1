"""Parameters on several supports in one vector, and the order of draws: as the documentation shows them."""

import math

import torch
from torch.distributions import Gamma, Normal, constraints

from torchsrk.distributions import DiffusionDistribution


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


def test_the_draws_of_a_chain_stand_together():
    """The first draws of every chain are those of a distribution with one draw a chain."""
    options = {"step_size": 0.1, "num_steps": 10, "seed": 0}
    target = Normal(torch.zeros(2), 1.0)
    chains = DiffusionDistribution(target, chain_length=3, thin=2, **options).sample((12,)).reshape(4, 3, 2)
    firsts = DiffusionDistribution(target, **options).sample((4,))
    torch.testing.assert_close(chains[:, 0], firsts)
