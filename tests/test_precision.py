"""Densities on data of another dtype than the points: what works is run; what doesn't is an error with a way out."""

import pytest
import torch
from torch import nn

from torchsrk import SDE, Chain, Langevin, sample, tune
from torchsrk.distributions import DiffusionDistribution
from torchsrk.potentials import FunctionPotential

GENERATOR = torch.Generator().manual_seed(0)
DATA = torch.randn(30, 3, generator=GENERATOR, dtype=torch.float32)
SEEN = torch.randn(30, generator=GENERATOR, dtype=torch.float64)
FIXED = {"step_size": 0.01, "num_steps": 20}
RUN = {"integrator": "em", "step_size": 0.01, "seed": 0}


@pytest.fixture(autouse=True)
def _single_precision():
    torch.set_default_dtype(torch.float32)


def log_density(w):
    """Of float32 features and float64 observations: works in float32 alone."""
    return -0.5 * (w @ DATA.T - SEEN).square().sum(-1)


def on(data):
    return lambda w: -0.5 * (w @ data.T).square().sum(-1)


def sampled(data, dtype=torch.float32):
    target = Langevin(FunctionPotential(log_density=on(data)))
    return sample(target, torch.zeros(4, 3, dtype=dtype), num_steps=3, **RUN)


def test_energies_in_float64_of_points_in_float32():
    """The posterior's mean is the least-squares fit."""
    fit = torch.linalg.lstsq(DATA.double(), SEEN).solution
    errors = torch.linalg.inv(DATA.double().T @ DATA.double()).diagonal().sqrt()
    draws = DiffusionDistribution(log_density, event_shape=(3,), seed=0, particles=300).sample((3000,))
    assert draws.dtype == torch.float32
    assert ((draws.double().mean(0) - fit).abs() < 0.15 * errors).all()
    plan = tune(log_density, dim=3, particles=300, seed=0)
    assert plan.state.dtype == torch.float32
    assert ((plan.sample(10).trajectory.double().mean((0, 1)) - fit).abs() < 0.15 * errors).all()
    given = DiffusionDistribution(log_density, event_shape=(3,), seed=0, **FIXED)
    assert given.sample((5,)).dtype == torch.float32
    assert given.rsample((5,)).dtype == torch.float32


REFUSED = {
    "float64 data": (
        lambda: sampled(DATA.double()),
        r"points in torch.float32 .*give such points, or convert its data",
    ),
    "float32 data": (lambda: sampled(DATA, torch.float64), r"points in torch.float64 .*takes those in torch.float32"),
    "integers": (
        lambda: sampled(DATA.long()),
        r"convert all its data, integers and half precision too, with .to.torch.f",
    ),
    "half": (lambda: sampled(DATA.bfloat16()), "convert all its data"),
    "chain": (
        lambda: Chain(Langevin(FunctionPotential(log_density=on(DATA.double()))), torch.zeros(4, 3), **RUN),
        "points in torch.float32",
    ),
    "distribution": (
        lambda: DiffusionDistribution(on(DATA.long()), event_shape=(3,), seed=0, **FIXED).sample((5,)),
        "convert all its data",
    ),
    "tuned distribution": (
        lambda: DiffusionDistribution(on(DATA.bfloat16()), event_shape=(3,), seed=0).sample((5,)),
        "convert all its data",
    ),
    "tuning": (lambda: tune(on(DATA.long()), dim=3, seed=0), "convert all its data"),
    "a network in half precision": (
        lambda: DiffusionDistribution(nn.Linear(3, 1).bfloat16(), event_shape=(3,), seed=0, **FIXED).sample((5,)),
        "the target's tensors are torch.bfloat16.*autocast",
    ),
    "tuning of one": (
        lambda: tune(FunctionPotential(nn.Linear(3, 1).bfloat16(), dim=3), seed=0),
        "the target's tensors are torch.bfloat16",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_one_error_with_the_way_out(case):
    call, message = REFUSED[case]
    with pytest.raises(TypeError, match=message) as caught:
        call()
    assert len(str(caught.value)) < 500


def test_it_is_told_at_every_use():
    potential = FunctionPotential(log_density=on(DATA.double()))
    sample(Langevin(potential), torch.zeros(4, 3, dtype=torch.float64), num_steps=3, **RUN)
    for _ in range(4):
        with pytest.raises(TypeError, match="give such points"):
            sample(Langevin(potential), torch.zeros(4, 3), num_steps=3, **RUN)


def test_errors_of_the_users_own_stay_theirs():
    def broken(w):
        raise RuntimeError("the simulator broke")

    with pytest.raises(RuntimeError, match="the simulator broke"):
        sample(Langevin(FunctionPotential(broken)), torch.zeros(4, 3), num_steps=3, **RUN)
    sde = SDE(lambda x: -x @ torch.eye(3, dtype=torch.float64), 1.0, "additive")
    with pytest.raises(RuntimeError, match="dtype"):
        sample(sde, torch.zeros(4, 3), num_steps=3, **RUN)
