"""A gradient that is not its energy's is told before the first step, and one that is never."""

import warnings

import pytest
import torch
from torch import nn

from torchsrk import Langevin, UnderdampedLangevin, sample
from torchsrk.distributions import DiffusionDistribution
from torchsrk.potentials import FunctionPotential, Potential
from torchsrk.potentials.probe import check_gradient

OPTIONS = {"integrator": "em", "step_size": 0.01, "num_steps": 2, "seed": 0}


def run(energy, x0=None, dtype=torch.float64):
    potential = energy if isinstance(energy, Potential) else FunctionPotential(energy)
    return sample(Langevin(potential), torch.zeros(50, 3, dtype=dtype) if x0 is None else x0, **OPTIONS)


SCALE = nn.Parameter(torch.ones((), dtype=torch.float64))
OUTSIDE_AUTOGRAD = {
    "detached": lambda x: 0.5 * x.detach().square().sum(-1),
    "numpy": lambda x: torch.from_numpy((0.5 * x.detach().numpy() ** 2).sum(-1)),
    "list": lambda x: torch.tensor([0.5 * sum(value * value for value in row) for row in x.tolist()]).view(
        x.shape[:-1]
    ),
    "integers": lambda x: (100.0 * x).long().square().sum(-1).to(x.dtype),
    "a parameter alone": lambda x: SCALE * x.detach().square().sum(-1),
}


@pytest.mark.parametrize("name", OUTSIDE_AUTOGRAD)
def test_an_energy_outside_autograd_is_an_error(name):
    with pytest.raises(ValueError, match=r"its gradient is 0: it is not computed from x by torch alone"):
        run(OUTSIDE_AUTOGRAD[name])
    sde = UnderdampedLangevin(FunctionPotential(OUTSIDE_AUTOGRAD[name]), friction=1.0)
    with pytest.raises(ValueError, match="its gradient is 0"):
        sample(sde, torch.zeros(3), **(OPTIONS | {"integrator": "baoab"}))


def test_a_distribution_says_so_too():
    draws = DiffusionDistribution(lambda x: -x.detach().square().sum(-1), event_shape=(2,), step_size=0.1, num_steps=3)
    with pytest.raises(ValueError, match="its gradient is 0"):
        draws.sample((5,))


class WrongGrad(Potential):
    def forward(self, x):
        return 0.5 * x.square().sum(-1)

    def grad(self, x):
        return 2.0 * x


PARTLY = {
    "a detached term": lambda x: x.square().sum(-1) + x.detach().cos().sum(-1),
    "a detached factor": lambda x: (x.detach() * x).sum(-1),
    "a grad of another energy": WrongGrad(),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", PARTLY)
def test_a_gradient_that_is_not_the_slope_is_told(name, dtype):
    with pytest.warns(RuntimeWarning, match="the energy's gradient is not its slope"):
        run(PARTLY[name], torch.ones(5, 3, dtype=dtype))


def network(activation: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(3, 64), activation, nn.Linear(64, 64), activation, nn.Linear(64, 1), nn.Flatten(-2, -1)
    )


RIGHT = {
    "constant": lambda x: torch.zeros_like(x[..., 0]),
    "flat but for its edges": lambda x: torch.where(x.abs().amax(-1) < 1.0, 0.0, torch.inf) + 0.0 * x.sum(-1),
    "corner": lambda x: x.abs().sum(-1),
    "ramp": lambda x: x.relu().sum(-1),
    "waves": lambda x: 0.5 * x.square().sum(-1) + torch.sin(200.0 * x).sum(-1),
    "large": lambda x: 1e6 + 0.5 * x.square().sum(-1),
    "steep": lambda x: 1e6 * x.square().sum(-1),
    "wide": lambda x: 1e-12 * x.square().sum(-1),
    "half a space": lambda x: torch.where(x[..., 0] > 0.0, x.square().sum(-1), torch.nan),
    "relu": network(nn.ReLU()),
    "tanh": network(nn.Tanh()),
    "dropout": nn.Sequential(network(nn.Tanh()), nn.Dropout(0.5)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("start", [0.0, 1.0, -30.0])
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_gradient_is_passed(name, start, dtype):
    energy = RIGHT[name].to(dtype) if isinstance(RIGHT[name], nn.Module) else RIGHT[name]
    check_gradient(FunctionPotential(energy), torch.full((5, 3), start, dtype=dtype))


def test_looking_leaves_no_trace():
    """Neither in torch's own random numbers nor in statistics that a network gathers."""
    energy = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1), nn.Flatten(-2, -1)).double()
    before, statistics = torch.get_rng_state(), energy[1].running_mean.clone()
    check_gradient(FunctionPotential(energy), torch.zeros(5, 3, dtype=torch.float64))
    check_gradient(FunctionPotential(RIGHT["dropout"].double()), torch.zeros(5, 3, dtype=torch.float64))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(energy[1].running_mean, statistics)


def test_a_loop_pays_for_it_now_and_then_alone():
    calls = []

    def energy(x):
        calls.append(len(x))
        return x.square().sum(-1)

    potential = FunctionPotential(energy)
    for _ in range(64):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            sample(Langevin(potential), torch.zeros(1, 2), integrator="em", step_size=0.01, num_steps=1, seed=0)
    assert len(calls) <= 64 + 7 * 3
