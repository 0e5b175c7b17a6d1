"""Schemes with kicks of bounded length."""

import math

import pytest
import torch

from tests.problems import mixture
from torchsrk import BAOAB, GHMC, SDE, SRKLD, Capped, Langevin, LeimkuhlerMatthews, UnderdampedLangevin, sample
from torchsrk.potentials import FunctionPotential

OPTIONS = {"step_size": 0.2, "num_steps": 6, "seed": 3}
X0 = torch.linspace(-2.0, 2.0, 21, dtype=torch.float64).reshape(7, 3)


def diffusion(scheme, potential):
    return (
        Langevin(potential)
        if isinstance(scheme, (SRKLD, LeimkuhlerMatthews))
        else UnderdampedLangevin(potential, friction=1.5)
    )


@pytest.mark.parametrize("scheme", [BAOAB(), GHMC(), SRKLD(), LeimkuhlerMatthews()], ids=str)
def test_a_cap_that_nothing_reaches_changes_nothing(scheme):
    sde = diffusion(scheme, mixture(3))
    plain = sample(sde, X0, integrator=scheme, **OPTIONS)
    capped = sample(sde, X0, integrator=Capped(scheme, 1e6), **OPTIONS)
    assert torch.equal(plain.final, capped.final)
    assert capped.statistics == {**plain.statistics, "capped": 0.0}


@pytest.mark.parametrize("scheme", [BAOAB(), SRKLD()], ids=str)
def test_gradients_are_cut_and_counted(scheme):
    steep = FunctionPotential(lambda x: 50.0 * x.sum(-1), dim=3)  # of length 50√3 everywhere
    level = FunctionPotential(lambda x: 2.0 / math.sqrt(3.0) * x.sum(-1), dim=3)
    capped = sample(diffusion(scheme, steep), X0, integrator=Capped(scheme, 2.0 * OPTIONS["step_size"]), **OPTIONS)
    as_cut = sample(diffusion(scheme, level), X0, integrator=scheme, **OPTIONS)
    torch.testing.assert_close(capped.final, as_cut.final)
    assert capped.statistics["capped"] == 1.0


def test_a_gradient_that_is_none_is_left_out():
    hole = FunctionPotential(lambda x: torch.where(x[..., 0] > 0.0, x.square().sum(-1), math.nan), dim=3)
    run = sample(UnderdampedLangevin(hole, friction=1.0), X0, integrator=Capped(BAOAB(), 1.0), **OPTIONS)
    assert bool(run.final.isfinite().all())
    assert 0.0 < run.statistics["capped"] < 1.0


def test_compiled_is_eager():
    sde = UnderdampedLangevin(mixture(3), friction=1.0)
    runs = [sample(sde, X0, integrator=Capped(BAOAB(), 0.15), compile=compile, **OPTIONS) for compile in (True, False)]
    torch.testing.assert_close(runs[0].state, runs[1].state)
    assert 0.0 < runs[0].statistics["capped"] < 1.0


def test_caps_are_part_of_a_compiled_program():
    sde = UnderdampedLangevin(mixture(3), friction=1.0)
    runs = [sample(sde, X0, integrator=Capped(BAOAB(), cap), compile=True, **OPTIONS).final for cap in (0.1, 1.0)]
    assert not torch.equal(*runs)


@pytest.mark.parametrize("cap", [0.0, -1.0, math.inf, math.nan, True, "1"])
def test_bad_caps(cap):
    with pytest.raises(ValueError, match="positive number"):
        Capped(BAOAB(), cap)


def test_what_it_is_not_for():
    with pytest.raises(TypeError, match="Integrator"):
        Capped("baoab", 1.0)
    sde = SDE(lambda x: -x, torch.eye(3, dtype=torch.float64), noise_type="additive")
    with pytest.raises(ValueError, match="serves Langevin"):
        sample(sde, X0, integrator=Capped(SRKLD(), 1.0), **OPTIONS)
