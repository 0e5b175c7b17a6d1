"""Matrices read off the schemes: closed forms come out of them, and what is not linear is seen."""

import math

import pytest
import torch

from torchsrk import Langevin, UnderdampedLangevin, sample
from torchsrk.experiments.linear import gaussian_w2, probe
from torchsrk.experiments.scheme_moments import scheme_named, sde_of
from torchsrk.experiments.scheme_targets import Quadratic

CURVATURES = torch.tensor([0.5, 1.0, 3.0], dtype=torch.float64)
TARGET = Quadratic(torch.zeros(3, dtype=torch.float64), CURVATURES)


def linear(name, h, friction=1.3):
    scheme = scheme_named(name)
    return probe(sde_of(scheme, TARGET, friction), scheme, step_size=h, modes=3)


def variances(name, z):
    """Of the closed forms, relative to the target's, by z = hλ, or h²λ with momentum."""
    if name == "em":
        return 1 / (1 - z / 2)
    if name == "obabo":
        return 1 / (1 - z / 4)
    if name in ("srk-ld", "sra1"):
        return (2 * z * (1 - z / 2) ** 2 + z**3 / 6) / (1 - (1 - z + z**2 / 2) ** 2)
    return torch.ones_like(z)


@pytest.mark.parametrize("h", [0.05, 0.4])
@pytest.mark.parametrize("name", ["em", "srk-ld", "sra1", "lm", "ozaki", "baoab", "obabo"])
def test_stationary_variances_are_the_closed_forms(name, h):
    z = h * CURVATURES if name not in ("baoab", "obabo") else h**2 * CURVATURES
    torch.testing.assert_close(linear(name, h).stationary() * CURVATURES, variances(name, z), rtol=1e-9, atol=0.0)


@pytest.mark.parametrize(("name", "limit"), [("em", 2.0), ("lm", 2.0), ("srk-ld", 2.0), ("baoab", 2.0), ("obabo", 2.0)])
def test_stability_ends_where_theory_says(name, limit):
    unit = 1 / math.sqrt(3.0) if name in ("baoab", "obabo") else 1 / 3.0
    assert linear(name, 0.99 * limit * unit).growth() < 1
    assert linear(name, 1.01 * limit * unit).growth() > 1


def test_a_trace_is_the_recursion():
    h, start = 0.3, torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    mean, second = linear("em", h).trace(start, 7)
    variance = torch.zeros(3, dtype=torch.float64)
    for n in range(7):
        variance = (1 - h * CURVATURES) ** 2 * variance + 2 * h
        torch.testing.assert_close(mean[n], (1 - h * CURVATURES) ** (n + 1) * start)
        torch.testing.assert_close(second[n] - mean[n] ** 2, variance)
    ended = linear("em", h).trace(start, 200)[1][-1]
    torch.testing.assert_close(ended, linear("em", h).stationary())


@pytest.mark.parametrize("name", ["lm", "randomized-midpoint", "quicsort", "obabo-2"])
def test_a_trace_is_what_particles_do(name):
    """Significance 1e-5 or so for the worst of six numbers."""
    scheme, start, count = scheme_named(name), torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64), 20_000
    run = sample(
        sde_of(scheme, TARGET, 1.3), start.repeat(count, 1), integrator=scheme, step_size=0.4, num_steps=4, seed=1
    )
    mean, second = (moment[-1] for moment in linear(name, 0.4).trace(start, 4))
    for values, expected in ((run.final, mean), (run.final.square(), second)):
        assert ((values.mean(0) - expected).abs() < 5 * values.std(0) / math.sqrt(count)).all()


def test_sra1_is_srk_ld_and_srk_id_is_euler_maruyama():
    for one, other in (("sra1", "srk-ld"), ("srk-id", "em")):
        a, b = linear(one, 0.2), linear(other, 0.2)
        torch.testing.assert_close(a.step, b.step, rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(a.noise @ a.noise.mT, b.noise @ b.noise.mT, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["mala", "ghmc", "tamed"])
def test_what_is_not_linear_is_seen(name):
    assert linear(name, 0.2) is None


def test_what_mixes_coordinates_is_seen():
    mixed = Quadratic(torch.zeros(2, dtype=torch.float64), torch.tensor([[2.0, 1.0], [1.0, 2.0]], dtype=torch.float64))
    for sde, name in ((Langevin(mixed), "em"), (UnderdampedLangevin(mixed, friction=1.0), "baoab")):
        assert probe(sde, scheme_named(name), step_size=0.1, modes=2) is None


def test_w2_of_gaussians():
    mean, second = torch.tensor([3.0, 0.0]), torch.tensor([10.0, 25.0])
    assert float(gaussian_w2(mean, second, torch.tensor([1.0, 1.0]))) == pytest.approx(5.0)
