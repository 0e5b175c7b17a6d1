"""The bias of a step size, as the chain measures it, beside the exact one."""

import math

import pytest
import torch

from torchsrk import BAOAB, GHMC, Langevin, UnderdampedLangevin
from torchsrk.potentials import FunctionPotential
from torchsrk.tuning import step_size_bias

CURVATURES = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
GAUSSIAN = FunctionPotential(lambda x: 0.5 * (CURVATURES * x.square()).sum(-1), dim=3)
OVERDAMPED, UNDERDAMPED = Langevin(GAUSSIAN), UnderdampedLangevin(GAUSSIAN, friction=1.0)


def exact_sd_bias(scheme, h):
    """sd_h/sd - 1 at stationarity, in closed form."""
    u = h * CURVATURES
    if scheme == "em":
        return (1.0 - u / 2.0).rsqrt() - 1.0
    if scheme == "obabo":
        return (1.0 - h * u / 4.0).rsqrt() - 1.0
    if scheme == "sra1":  # X' = (1 - u + u²/2)X + √2((1 - u/2)W - uH)
        keep = 1.0 - u + u.square() / 2.0
        return ((2.0 * u * ((1.0 - u / 2.0).square() + u.square() / 12.0)) / (1.0 - keep.square())).sqrt() - 1.0
    return torch.zeros(3, dtype=torch.float64)


def starts(seed, particles=1000):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(particles, 3, generator=generator, dtype=torch.float64) * CURVATURES.rsqrt()


def test_it_covers_the_truth():
    """Within three standard errors in 95 % of 144 cases: means and sds over schemes, steps and seeds."""
    deviations = []
    for scheme, sde, steps in (
        ("em", OVERDAMPED, (0.05, 0.1, 0.2)),
        ("lm", OVERDAMPED, (0.1, 0.2)),
        ("sra1", OVERDAMPED, (0.1, 0.2)),
        ("obabo", UNDERDAMPED, (0.1, 0.2, 0.3)),
        ("baoab", UNDERDAMPED, (0.1, 0.3)),
    ):
        for h in steps:
            for seed in range(2):
                found = step_size_bias(sde, starts(seed), integrator=scheme, step_size=h, seed=seed, time=16.0)
                deviations += ((found.sd - exact_sd_bias(scheme, h)) / found.sd_error).abs().tolist()
                deviations += (found.mean / found.mean_error).abs().tolist()
    assert len(deviations) == 144
    assert sum(z < 3.0 for z in deviations) >= 0.95 * len(deviations)


def test_it_sees_a_bias_and_its_order():
    found = step_size_bias(OVERDAMPED, starts(0, 4000), integrator="em", step_size=0.1, seed=1, time=16.0)
    assert found.sd[2] > 10.0 * 0.0005
    torch.testing.assert_close(found.sd, exact_sd_bias("em", 0.1), atol=0.012, rtol=0.0)
    assert 0.8 < found.observed_order < 2.0  # of 1; curvature 2 at h = 0.4 is no small step
    at, kind, bias, error = found.worst()
    assert (at, kind) == (2, "standard deviation")
    assert found.bound() == pytest.approx(abs(bias) + 3.0 * error)
    assert found.bound(0.05) == pytest.approx(0.5 * found.bound())
    assert found.bound(found.largest_step(0.01)) == pytest.approx(0.01)


def test_parameters_are_what_is_looked_at():
    options = {"integrator": "obabo", "step_size": 0.3, "seed": 1}
    positions = step_size_bias(UNDERDAMPED, starts(0), **options)
    read = step_size_bias(UNDERDAMPED, starts(0), parameters=lambda x: 5.0 - 2.0 * x[..., 2:], **options)
    torch.testing.assert_close(read.mean, -positions.mean[2:])
    torch.testing.assert_close(read.sd, positions.sd[2:])


def test_what_can_not_be_measured():
    with pytest.raises(ValueError, match="no order in law"):
        step_size_bias(UNDERDAMPED, starts(0), integrator=GHMC(), step_size=0.1, seed=1)
    exploded = step_size_bias(OVERDAMPED, starts(0), integrator="em", step_size=3.0, seed=1, time=600.0)
    assert not math.isfinite(exploded.bound()) or exploded.bound() > 1.0
    assert exploded.largest_step(0.05) < 3.0


def test_same_bits_on_any_number_of_threads():
    before = torch.get_num_threads()
    wide = FunctionPotential(lambda x: 0.5 * x.square().sum(-1), dim=600)  # blocks of 208 rows
    x0 = torch.linspace(-1.0, 1.0, 500 * 600, dtype=torch.float64).reshape(500, 600).sin()
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        sde = UnderdampedLangevin(wide, friction=1.0)
        results.append(step_size_bias(sde, x0, integrator=BAOAB(), step_size=0.5, seed=1, time=4.0).sd)
    torch.set_num_threads(before)
    torch.testing.assert_close(*results, rtol=0.0, atol=1e-12)
