"""States of more than two dimensions: of what is one particle to the program, the parts have noise of their own."""

import pytest
import torch

from tests.compiled.test_same_numbers import ONE_BY_ONE, SIDE_BY_SIDE, assert_same, both
from torchsrk import Langevin, UnderdampedLangevin, sample
from torchsrk.blocks import torch_threads
from torchsrk.distributions import DiffusionDistribution
from torchsrk.potentials import FunctionPotential

CENTRES = torch.tensor([[0.0, 1.0], [2.0, -1.0], [-1.0, 0.5]], dtype=torch.float64)
SCALES = torch.tensor([[1.0, 0.5], [2.0, 1.0], [0.3, 0.7]], dtype=torch.float64)


def targets(x):
    """Three densities, each with its own parameters."""
    return 0.5 * ((x - CENTRES) / SCALES).square().sum(-1) + 0.1 * x.sin().prod(-1)


def points(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("particles", [1, ONE_BY_ONE, SIDE_BY_SIDE])
@pytest.mark.parametrize("scheme", ["em", "srk-ld", "baoab"])
def test_batches_of_targets(scheme, particles):
    potential = FunctionPotential(targets, 2)
    sde = UnderdampedLangevin(potential, friction=1.5) if scheme == "baoab" else Langevin(potential)
    assert_same(*both(sde, points(particles, 3, 2), scheme))


def test_targets_that_know_of_one_another():
    """The step may mix what is one particle to it, and not particles."""
    potential = FunctionPotential(lambda x: targets(x) + (x.mean(-2) ** 2).sum(-1, keepdim=True), 2)
    assert_same(*both(Langevin(potential), points(SIDE_BY_SIDE, 3, 2), "em"))


def test_more_than_one_dimension_between():
    potential = FunctionPotential(lambda x: targets(x) * torch.tensor([[1.0], [2.0]], dtype=x.dtype), 2)
    assert_same(*both(Langevin(potential), points(SIDE_BY_SIDE, 2, 3, 2), "em"))


def test_same_bits_in_any_batch_and_on_any_number_of_threads():
    sde, x0 = Langevin(FunctionPotential(targets, 2)), points(3000, 3, 2)
    run = {"integrator": "em", "step_size": 0.01, "num_steps": 30, "seed": 2, "compile": True}
    whole = sample(sde, x0, **run).final
    with torch_threads(1):
        assert torch.equal(sample(sde, x0, **run).final, whole)
    part = sample(sde, x0[700:900].contiguous(), first_particle=700 * 3, **run).final
    assert torch.equal(part, whole[700:900])


def test_a_batched_distribution_compiles():
    """A fallback would raise, as warnings are errors here."""
    target = torch.distributions.Independent(torch.distributions.Normal(CENTRES, SCALES), 1)
    runs = [
        DiffusionDistribution(target, step_size=0.05, num_steps=40, seed=3, compile=compiling).sample((500,))
        for compiling in (False, True)
    ]
    assert_same(*runs)
