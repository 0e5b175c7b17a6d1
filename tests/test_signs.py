"""One word for each sign, log_density= and energy=, and starts in the dtype that a density takes."""

import pickle

import pytest
import torch
from torch.distributions import Normal

from torchsrk import Langevin, sample
from torchsrk.distributions import DiffusionDistribution
from torchsrk.potentials import FunctionPotential

DATA = torch.tensor([[1.0, 2.0, 0.5], [0.3, -1.0, 2.0]], dtype=torch.float64)
OPTIONS = {"event_shape": (3,), "step_size": 0.1, "num_steps": 20, "seed": 0}


def log_density(x):
    return -0.5 * (x @ DATA.T - 1.0).square().sum(-1) - 0.5 * x.square().sum(-1)


def energy(x):
    return -log_density(x)


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        return self.scale * x.square().sum(-1)


def test_both_take_both():
    draws = DiffusionDistribution(log_density, **OPTIONS).sample((50,))
    assert DiffusionDistribution(log_density=log_density, **OPTIONS).sample((50,)).equal(draws)
    assert DiffusionDistribution(energy=energy, **OPTIONS).sample((50,)).equal(draws)
    potential = FunctionPotential(energy, 3)
    torch.testing.assert_close(DiffusionDistribution(energy=potential, **OPTIONS).sample((50,)), draws)
    assert DiffusionDistribution(energy=energy, **OPTIONS).unnormalized_log_prob(draws).equal(log_density(draws))
    x = torch.randn(4, 3)
    for other in (FunctionPotential(energy=energy), FunctionPotential(log_density=log_density)):
        assert other(x).equal(potential(x))
        assert other.grad(x).equal(potential.grad(x))


@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_an_energy_of_other_points(shape):
    """Of N(0, 1) in every entry, by the mean of squares at a significance of 1e-5."""
    rank = len(shape)
    options = {**OPTIONS, "event_shape": shape, "num_steps": 60}
    target = DiffusionDistribution(
        energy=lambda x: 0.5 * (x.square().sum(tuple(range(-rank, 0))) if rank else x.square()), **options
    )
    squares = target.sample((4000,)).square()
    assert abs(float(squares.mean()) - 1.0) < 4.5 * (2 / squares.numel()) ** 0.5 + 0.01
    assert "(energy, " in repr(target)


def test_parameters_are_found_and_trained():
    network = Network()
    assert [name for name, _ in FunctionPotential(log_density=network).named_parameters()] == ["energy.function.scale"]
    target = DiffusionDistribution(energy=network, **OPTIONS)
    target.rsample((4,)).square().sum().backward()
    assert network.scale.grad < 0.0


def test_a_copy_by_pickle():
    target = DiffusionDistribution(energy=energy, **OPTIONS)
    assert pickle.loads(pickle.dumps(target)).sample((3,)).equal(target.sample((3,)))


@pytest.mark.parametrize("compile", [False, True])
def test_a_log_density_compiles(compile):
    x = torch.randn(10, 3)
    options = {"integrator": "srk-ld", "step_size": 0.1, "num_steps": 5, "seed": 0}
    runs = [
        sample(Langevin(potential), x, compile=compile, **options).final
        for potential in (FunctionPotential(energy), FunctionPotential(log_density=log_density))
    ]
    torch.testing.assert_close(*runs)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FunctionPotential(), "exactly one of energy="),
        (lambda: FunctionPotential(energy, log_density=log_density), "exactly one of energy="),
        (lambda: FunctionPotential(log_density=FunctionPotential(energy)), "its sign is not that of a log density"),
        (lambda: FunctionPotential(log_density=3), "log_density is a callable"),
        (lambda: DiffusionDistribution(**OPTIONS), "exactly one of target, .* got 0"),
        (lambda: DiffusionDistribution(log_density, energy=energy, **OPTIONS), "exactly one of target, .* got 2"),
        (lambda: DiffusionDistribution(log_density=FunctionPotential(energy), **OPTIONS), "pass it as energy="),
        (lambda: DiffusionDistribution(log_density=Normal(0.0, 1.0), **OPTIONS), "pass it as target"),
        (lambda: DiffusionDistribution(energy=Normal(0.0, 1.0), **OPTIONS), "energy is a callable"),
    ],
)
def test_refused(make, message):
    with pytest.raises(TypeError, match=message):
        make()


@pytest.mark.parametrize("tuned", [False, True])
def test_data_in_float64_with_the_default_start(tuned):
    torch.set_default_dtype(torch.float32)
    options = {"event_shape": (3,), "seed": 0, "particles": 200} if tuned else OPTIONS
    assert DiffusionDistribution(log_density, **options).sample((5,)).dtype == torch.float64


@pytest.mark.parametrize("initial", [torch.zeros(3, dtype=torch.float64), Normal(torch.zeros(3).double(), 1.0)])
def test_starts_keep_a_wider_dtype_and_are_given_one(initial):
    torch.set_default_dtype(torch.float32)

    def any_dtype(x):
        return -x.square().sum(-1)

    assert DiffusionDistribution(any_dtype, **OPTIONS).sample((5,)).dtype == torch.float32
    assert DiffusionDistribution(any_dtype, initial=initial, **OPTIONS).sample((5,)).dtype == torch.float64
    narrow = torch.zeros(3, dtype=torch.float32)
    assert DiffusionDistribution(log_density, initial=narrow, **OPTIONS).sample((5,)).dtype == torch.float64


def test_an_error_of_the_density_itself_is_raised():
    def broken(x):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        DiffusionDistribution(broken, **OPTIONS).sample((2,))
