"""The transfer operator's law: that of a scheme whose law is known, of exact moments, and of particles."""

import math

import pytest
import torch

from torchsrk.experiments.base import Context
from torchsrk.experiments.config import ConfigError
from torchsrk.experiments.invariant import Settings, conclude, measure, plan
from torchsrk.experiments.transfer import LineNonConvex, invariant_masses, invariant_w2, line_w2
from torchsrk.integrators import SRKID, EulerMaruyama
from torchsrk.potentials import NonConvex

TARGET = LineNonConvex(beta=0.33, gamma=0.5)


def test_targets_distribution():
    x = torch.linspace(-30.0, 30.0, 6001, dtype=torch.float64)
    spacing = float(x[1] - x[0])
    assert float(TARGET.density(x).sum()) * spacing == pytest.approx(1.0, abs=1e-9)
    assert float(TARGET.cumulative(torch.zeros(1, dtype=torch.float64))) == pytest.approx(0.5, abs=1e-12)
    second = float((x.square() * TARGET.density(x)).sum()) * spacing
    assert second == pytest.approx(TARGET.potential.second_moment(), rel=1e-6)


@pytest.mark.parametrize("h", [0.2, 0.8])
def test_second_moment_that_euler_maruyama_keeps(h):
    """With the linear drift of γ = ½: E x² = (1 - h/2)² E x² + h E g, an identity of the kept law alone."""
    grid, mass = invariant_masses(TARGET, EulerMaruyama(), step_size=h, fineness=0.5)
    second = float((mass * grid.square()).sum())
    g = float((mass * (0.33 + grid.square()).sqrt()).sum())
    assert second == pytest.approx(h * g / (1 - (1 - h / 2) ** 2), rel=1e-6)


@pytest.mark.parametrize("scheme", [EulerMaruyama(), SRKID()], ids=lambda scheme: scheme.name)
def test_finer_grid_changes_little(scheme):
    coarse, fine = (invariant_w2(TARGET, scheme, step_size=0.4, fineness=fineness) for fineness in (0.35, 0.6))
    assert coarse == pytest.approx(fine, rel=1e-4)


def test_both_schemes_are_of_order_one_and_near_each_other():
    found = {
        scheme.name: [invariant_w2(TARGET, scheme, step_size=h, fineness=0.4) for h in (0.2, 0.4)]
        for scheme in (EulerMaruyama(), SRKID())
    }
    for small, large in found.values():
        assert math.log2(large / small) == pytest.approx(1.0, abs=0.15)
    for em, srk in zip(found["em"], found["srk-id"], strict=True):
        assert 1.2 < em / srk < 1.5


def test_a_step_that_keeps_no_law_is_refused():
    with pytest.raises(ArithmeticError, match="take a smaller one"):
        invariant_masses(TARGET, EulerMaruyama(), step_size=4.5, fineness=0.2)


def test_law_from_a_point_after_steps():
    """Its mean is 3(1 - h/2)ⁿ, which is W2 or less away from the target's 0; in the end it is the law that is kept."""
    h = 0.4
    found = line_w2(TARGET, EulerMaruyama(), step_size=h, start=3.0, steps=40)
    means = 3.0 * (1 - h / 2) ** torch.arange(1, 41, dtype=torch.float64)
    assert bool((found >= means).all())
    assert float(found[-1]) == pytest.approx(invariant_w2(TARGET, EulerMaruyama(), step_size=h, fineness=0.5), rel=1e-3)


def test_particles_in_more_dimensions():
    settings = Settings(
        step_sizes=(0.2, 0.4, 0.8),
        checked=(0.8,),
        particles=2000,
        repeats=3,
        fineness=0.25,
        dims=(2, 3),
        dims_particles=400,
        dims_repeats=6,
    )
    context = Context(seed=0, device=torch.device("cpu"), dtype=torch.float64, compile=False, progress=False)
    cases = plan(settings)
    assert sum(case.dim > 1 for case in cases.values()) == 4
    results = {unit: measure(settings, case, context) for unit, case in cases.items()}
    conclusion = conclude(settings, results)
    for row in conclusion.tables["dimensions"]:
        assert row["w2_squared"] > row["half_width"]
        # Where β does not count, E‖x‖² = (1 - h/2)²E‖x‖² + hdE‖x‖ scales Euler-Maruyama's law by 1/(1 - h/4).
        scaled = 0.25**2 * NonConvex(beta=0.33, gamma=0.5, dim=row["dim"]).second_moment()
        assert 0.4 < row["w2_squared"] / scaled < 2.0
    assert [finding.holds for finding in conclusion.findings[-2:]] == [True, True]
    none = {unit: {**result, "estimates": torch.tensor([-1.0, 1.0, 0.0])} for unit, result in results.items()}
    assert not any(finding.holds for finding in conclude(settings, none).findings[-2:])


def test_dimensions_that_the_theorem_does_not_cover_are_refused():
    with pytest.raises(ConfigError, match="dims: take fewer than 6"):
        Settings(step_sizes=(0.2,), checked=(), particles=10, repeats=3, dims=(6,))
