"""A point is a point: alone, in a batch of densities, or under any number of leading dimensions."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import constraints

from torchsrk import Langevin, sample
from torchsrk.potentials import UnconstrainedPotential

independent = constraints.independent
SUPPORTS = [
    *(((), support) for support in (constraints.real, constraints.positive, constraints.unit_interval)),
    *(((), support) for support in (constraints.interval(-1.0, 2.0), constraints.greater_than_eq(1.0))),
    *(((3,), support) for support in (constraints.real_vector, constraints.simplex, constraints.positive)),
    ((3,), independent(constraints.interval(torch.zeros(3), torch.ones(3)), 1)),
    *(((2, 2), support) for support in (constraints.lower_cholesky, constraints.corr_cholesky, constraints.positive)),
    *(((2, 2), support) for support in (independent(constraints.positive, 2), constraints.positive_definite)),
]


def potential(event_shape, support, batch_shape=()):
    def log_density(point):
        return -0.5 * point.reshape(*point.shape[: point.ndim - len(event_shape)], -1).square().sum(-1)

    return UnconstrainedPotential(log_density, event_shape, support, batch_shape)


@pytest.mark.parametrize("batch_shape", [(), (4,)])
@pytest.mark.parametrize(("event_shape", "support"), SUPPORTS, ids=str)
def test_a_point_has_one_energy(event_shape, support, batch_shape):
    several, alone = potential(event_shape, support, batch_shape), potential(event_shape, support)
    for leading in ((), (3,), (2, 3)):
        shape = (*leading, *batch_shape)
        x = torch.linspace(-1.0, 1.5, 24 * several.dim).view(-1, several.dim)[: math.prod(shape)]
        x = x.reshape(*shape, several.dim)
        points = several.constrain(x)
        assert points.shape == (*shape, *event_shape)
        torch.testing.assert_close(several.unconstrain(points), x)
        energies, gradients = several(x), several.grad(x)
        assert energies.shape == shape
        for place in np.ndindex(shape):
            torch.testing.assert_close(alone(x[place]), energies[place])
            torch.testing.assert_close(alone.grad(x[place]), gradients[place])


def test_one_scalar_without_a_batch_runs():
    sde = Langevin(potential((), constraints.positive))
    alone, first = (
        sample(sde, x0, integrator="srk-ld", step_size=0.1, num_steps=5, seed=0).final
        for x0 in (torch.zeros(1), torch.zeros(2, 1))
    )
    torch.testing.assert_close(alone, first[0])
