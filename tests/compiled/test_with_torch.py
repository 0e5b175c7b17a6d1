"""Runs by torch.compile: the same numbers, for what has no C form too, and eagerly where torch can't."""

import pytest
import torch

from torchsrk import Langevin, UnderdampedLangevin, sample
from torchsrk.potentials import FunctionPotential

X0 = torch.linspace(-1.0, 2.0, 24, dtype=torch.float64).view(8, 3)


def ringing(x):  # with a Fourier transform, which has no C form here
    return torch.fft.rfft(x).abs().square().sum(-1) + x.sin().sum(-1)


def both(sde, **options):
    options = {"integrator": "baoab", "step_size": 0.1, "num_steps": 5, "seed": 3} | options
    return [sample(sde, X0, **{"compile": way} | options) for way in ("torch", False)]


def test_the_numbers_are_those_of_an_eager_run():
    weight = torch.tensor(1.0, dtype=torch.float64)
    sde = UnderdampedLangevin(FunctionPotential(lambda x: weight * ringing(x), dim=3), friction=1.5)
    compiled, eager = both(sde, thin=2, burn_in=1, num_steps=4)
    torch.testing.assert_close(compiled.trajectory, eager.trajectory, rtol=1e-10, atol=1e-10)
    weight.fill_(2.0)  # what it was compiled with is read at every run
    compiled, eager = both(sde)
    torch.testing.assert_close(compiled.state, eager.state, rtol=1e-10, atol=1e-10)


def test_what_torch_can_not_compile_runs_eagerly():
    def by_value(x):
        return x.square().sum(-1) * (2.0 if float(x.detach().sum()) > 1e9 else 1.0)

    sde = Langevin(FunctionPotential(by_value, dim=3))
    with pytest.warns(RuntimeWarning, match=r'compile="torch": this run is eager, as torch.compile failed'):
        compiled = sample(sde, X0, integrator="em", step_size=0.1, num_steps=5, seed=3, compile="torch")
    eager = sample(sde, X0, integrator="em", step_size=0.1, num_steps=5, seed=3)
    assert torch.equal(compiled.final, eager.final)


def test_other_words_are_refused():
    with pytest.raises(ValueError, match='compile is True, False, "auto", "torch" or "triton"'):
        both(Langevin(FunctionPotential(ringing, dim=3)), integrator="em", compile="jax")
