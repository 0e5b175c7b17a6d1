"""Extrapolation: closed forms on a Gaussian, orders, and findings that can fail."""

import math

import pytest
import torch

from torchsrk.coupling import coupled_positions
from torchsrk.experiments.base import Context
from torchsrk.experiments.rate_targets import block_of
from torchsrk.experiments.romberg import (
    EXTRAPOLATED,
    Settings,
    conclude,
    error_rows,
    gaussian_variances,
    measure,
    plan,
    step_sizes,
)
from torchsrk.integrators import EulerMaruyama
from torchsrk.sde import Langevin

SETTINGS = Settings(step_sizes=8, particles=4000, repeats=6, targets=("mixture",))
CONTEXT = Context(seed=0, device=torch.device("cpu"), dtype=torch.float64, compile=False, progress=False)


@pytest.fixture(scope="module")
def results():
    return {unit: measure(SETTINGS, case, CONTEXT) for unit, case in plan(SETTINGS).items()}


def test_findings_hold_and_errors_are_those_of_two_laws(results):
    conclusion = conclude(SETTINGS, results)
    assert all(finding.holds for finding in conclusion.findings), conclusion.findings
    rows = {(row["scheme"], row["step_size"]): row for row in error_rows(SETTINGS, "mixture", results)}
    sizes = step_sizes(SETTINGS, "mixture")
    short, double = (rows["em", h]["second_moment"] for h in (sizes[5], sizes[3]))
    assert rows[EXTRAPOLATED, sizes[5]]["second_moment"] == pytest.approx(abs(2 * short - double), rel=1e-9)
    assert (EXTRAPOLATED, sizes[1]) not in rows  # whose double was not measured
    assert rows[EXTRAPOLATED, sizes[5]]["gradients_a_time"] == pytest.approx(1.5 / sizes[5])


def test_findings_fail_on_wrong_numbers(results):
    still = {unit: results[f"{unit.rsplit('-', 1)[0]}-7"] for unit in results if unit != "particles"}
    moved = {name: value + 1.0 for name, value in results["particles"].items()}
    findings = conclude(SETTINGS, {**still, "particles": moved}).findings
    assert [finding.holds for finding in findings] == [False, False, False, True, False]


def test_variances_on_a_normal_are_those_of_coupled_chains():
    """Within five standard errors of a variance."""
    h, count = 0.2, 200_000
    x0 = torch.randn(count, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    sde = Langevin(block_of("mixture", "across").potential)
    ends = coupled_positions(sde, x0, integrator=EulerMaruyama(), step_size=h, levels=2, periods=30, seed=1)[-1]
    x, y = ends[..., 0].square()
    for exact, seen in zip(gaussian_variances(h), (x, 2 * x - y, 2 * x - y.roll(1)), strict=True):
        apart = (seen - seen.mean()).square()
        assert abs(float(apart.mean()) - exact) < 5 * float(apart.std()) / math.sqrt(count)
