"""Laws without sampling, against closed forms and the integrators themselves."""

import math

import pytest
import torch

from torchsrk import Langevin, sample
from torchsrk.brownian import Increment
from torchsrk.experiments.laws import (
    LineMixture,
    gaussian_errors,
    grid_error,
    invariant_error,
    line_errors,
    linear_step,
    steps_below,
)
from torchsrk.integrators import integrator_named
from torchsrk.potentials import FunctionPotential, GaussianMixture

SCHEMES = ("em", "srk-ld")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_quadrature_gives_the_closed_form_on_a_gaussian(scheme):
    """A mixture without separation is a Gaussian."""
    start = {"mean": 1.5, "step_size": 0.3}
    line = line_errors(LineMixture(0.0), scheme, deviation=0.7, **start)
    exact = gaussian_errors(scheme, curvature=1.0, variance=0.49, steps=torch.arange(1, 6), **start)
    for error in exact:
        assert next(line) == pytest.approx(float(error), rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_quadrature_has_converged_in_its_grid(scheme):
    coarse, fine = (
        line_errors(LineMixture(0.9), scheme, step_size=0.5, mean=2.0, deviation=1.0, fineness=fineness)
        for fineness in (1.0, 1.7)
    )
    for _ in range(10):
        assert math.sqrt(next(coarse)) == pytest.approx(math.sqrt(next(fine)), abs=3e-6)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_linear_step_is_what_the_integrator_does(scheme):
    """The step is linear in the state, W ~ N(0, h) and H ~ N(0, h/12): unit values give its coefficients."""
    h, curvature = 0.3, 2.0
    sde = Langevin(FunctionPotential(lambda x: 0.5 * curvature * x.square().sum(-1), dim=1))
    x, W, H = torch.eye(3).unsqueeze(-1)
    moved = integrator_named(scheme).step(sde, 0.0, x, Increment(dt=h, W=W, H=H)).detach().flatten()
    factor, noise = linear_step(scheme, step_size=h, curvature=curvature)
    assert float(moved[0]) == pytest.approx(factor)
    assert float(moved[1] ** 2 * h + moved[2] ** 2 * h / 12) == pytest.approx(noise)


def test_a_step_too_large_diverges():
    far = gaussian_errors("em", step_size=1.1, curvature=2.0, mean=0.0, variance=1.0, steps=torch.tensor([1]))
    assert far.isinf().all()


def test_grid_error_of_a_shifted_law():
    grid = torch.linspace(-12, 12, 300)
    target = LineMixture(1.2)
    mass = target.density(grid - 0.3) * (grid[1] - grid[0])
    assert grid_error(target, grid, mass) == pytest.approx(0.09, rel=1e-5)


@pytest.mark.parametrize(("scheme", "h"), [("em", 1.0), ("em", 1.6), ("srk-ld", 1.0), ("srk-ld", 1.6)])
def test_the_invariant_law_is_that_of_long_runs(scheme, h):
    """On a line optimal transport is sorting, so the corrected estimator takes many points; significance 1e-4."""
    repeats, points = 10, 20_000
    target = GaussianMixture(torch.tensor([math.sqrt(0.5)]))
    start, exact = target.sample((4 * repeats * points,), seed=0).chunk(2)
    run = sample(Langevin(target), start, integrator=scheme, step_size=h, num_steps=50, seed=1)
    clouds = [cloud.view(repeats, 2, points).sort(-1).values.unbind(1) for cloud in (run.final, exact)]
    (x, x2), (y, y2) = clouds
    estimates = sum(
        sign * (a - b).square().mean(-1) / 2 for sign, a, b in ((1, x, y), (1, x2, y2), (-1, x, x2), (-1, y, y2))
    )
    law = invariant_error(scheme, separation=math.sqrt(0.5), dim=1, step_size=h)
    assert abs(float(estimates.mean()) - law) < 6.1 * float(estimates.std()) / math.sqrt(repeats)  # Student's t, 9
    assert float(estimates.std()) / math.sqrt(repeats) < 0.05 * law


def test_the_invariant_law_across_the_modes_is_the_linear_one():
    for scheme in SCHEMES:
        one, many = (invariant_error(scheme, separation=0.7, dim=dim, step_size=0.5) for dim in (1, 21))
        factor, noise = linear_step(scheme, step_size=0.5, curvature=1.0)
        assert many - one == pytest.approx(20 * (math.sqrt(noise / (1 - factor**2)) - 1) ** 2)
        assert invariant_error(scheme, separation=0.7, dim=2, step_size=2.1) == math.inf


def test_steps_below_wants_the_error_below_for_good():
    errors = torch.tensor([4.0, 0.5, 2.0, 0.5])
    assert [steps_below(errors, epsilon) for epsilon in (5.0, 1.0, 0.1)] == [1, 4, 0]


def test_quadrature_beyond_memory_is_refused():
    with pytest.raises(ArithmeticError, match="quadrature would take"):
        next(line_errors(LineMixture(0.5), "em", step_size=0.1, mean=1e6, deviation=1.0))
    assert math.isnan(invariant_error("em", separation=0.5, dim=1, step_size=1e-6))


def test_a_scheme_without_a_law_is_refused_by_name():
    for ask in (
        lambda: linear_step("sra1", step_size=0.1, curvature=1.0),
        lambda: next(line_errors(LineMixture(0.5), "baoab", step_size=0.1, mean=0.0, deviation=1.0)),
        lambda: invariant_error("srk-id", separation=0.5, dim=2, step_size=0.1),
    ):
        with pytest.raises(ValueError, match="the laws known here are those of em and srk-ld; got '"):
            ask()
