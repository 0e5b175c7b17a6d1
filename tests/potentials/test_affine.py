"""Potentials in other coordinates."""

import math

import pytest
import torch

from tests.problems import lower_triangle, mixture
from torchsrk import UnderdampedLangevin, sample
from torchsrk.potentials import AffinePotential, FunctionPotential
from torchsrk.potentials.affine import LowRank

LOC = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
DIRECTIONS = torch.linalg.qr(torch.linspace(-1.0, 1.0, 6, dtype=torch.float64).reshape(3, 2).cos())[0]
SCALES = {
    "number": 0.5,
    "diagonal": torch.tensor([0.5, 1.0, 3.0], dtype=torch.float64),
    "triangle": lower_triangle(3),
    "low rank": LowRank(LOC.abs(), DIRECTIONS, torch.tensor([0.3, 4.0], dtype=torch.float64)),
}


def matrix_of(potential):
    """S, column by column."""
    return (potential.outward(torch.eye(3, dtype=torch.float64)) - potential.loc).mT


@pytest.mark.parametrize("name", SCALES)
def test_coordinates_there_and_back_and_the_gradient(name):
    potential = AffinePotential(mixture(3), LOC, SCALES[name])
    z = torch.linspace(-2.0, 2.0, 15, dtype=torch.float64).reshape(5, 3)
    S = matrix_of(potential)
    torch.testing.assert_close(potential.outward(z), LOC + z @ S.mT)
    torch.testing.assert_close(potential.inward(potential.outward(z)), z)
    torch.testing.assert_close(potential.inward(potential.outward(z[0])), z[0])
    torch.testing.assert_close(potential.scale.transposed(z), z @ S)
    torch.testing.assert_close(potential(z), potential.potential(LOC + z @ S.mT))
    moved = z.clone().requires_grad_()
    (expected,) = torch.autograd.grad(potential(moved).sum(), moved)
    torch.testing.assert_close(potential.grad(z), expected)


def test_every_target_of_a_batch_has_its_own():
    energy = FunctionPotential(lambda x: 0.5 * x.square().sum(-1), dim=3)
    loc = torch.stack((LOC, -LOC))
    scale = torch.stack((lower_triangle(3), 2.0 * lower_triangle(3)))
    both = AffinePotential(energy, loc, scale)
    z = torch.linspace(-1.0, 1.0, 24, dtype=torch.float64).reshape(4, 2, 3)
    for entry in range(2):
        one = AffinePotential(energy, loc[entry], scale[entry])
        torch.testing.assert_close(both(z)[:, entry], one(z[:, entry]))
        torch.testing.assert_close(both.grad(z)[:, entry], one.grad(z[:, entry]))
    torch.testing.assert_close(both.inward(both.outward(z)), z)


@pytest.mark.parametrize("name", SCALES)
def test_compiled_is_eager(name):
    sde = UnderdampedLangevin(AffinePotential(mixture(3), LOC, SCALES[name]), friction=1.0)
    options = {"integrator": "baoab", "step_size": 0.2, "num_steps": 5, "seed": 3}
    x0 = torch.ones(9, 3, dtype=torch.float64)
    eager, compiled = sample(sde, x0, **options), sample(sde, x0, compile=True, **options)
    torch.testing.assert_close(compiled.final, eager.final)


@pytest.mark.parametrize(
    ("loc", "scale", "message"),
    [
        (LOC[:2], 1.0, "dimension 3"),
        (LOC * math.nan, 1.0, "infinite or NaN"),
        (LOC, 0.0, "positive number"),
        (LOC, -LOC.abs(), "positive on its diagonal"),
        (LOC, torch.ones(4, dtype=torch.float64), "got shape"),
        (LOC, lower_triangle(3).mT, "lower triangular"),
        (LOC, LOC.abs().float(), "float64"),
        (LOC.long(), 1.0, "floating"),
    ],
)
def test_bad_input(loc, scale, message):
    with pytest.raises(ValueError, match=message):
        AffinePotential(mixture(3), loc, scale)
