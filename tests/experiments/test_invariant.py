"""The transfer operator's law: that of a scheme whose law is known, of exact moments, and of particles."""

import math

import pytest
import torch

from torchsrk.experiments.transfer import LineNonConvex, invariant_masses, invariant_w2
from torchsrk.integrators import SRKID, EulerMaruyama

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
