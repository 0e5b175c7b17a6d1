"""Rates: the closed forms, the search for the best step size, and findings that can fail."""

import math

import pytest
import torch

from torchsrk.experiments.base import Context
from torchsrk.experiments.rates import Settings, conclude, fit, gaussian_trace, measure, plan, tolerances

SETTINGS = Settings(
    smallest_em=0.02,
    smallest_srk_ld=0.15,
    per_decade=10,
    largest_error=0.02,
    smallest_error=0.004,
    errors=6,
    targets=("gaussian",),
)
CONTEXT = Context(seed=0, device=torch.device("cpu"), dtype=torch.float32, compile=False, progress=False)


@pytest.fixture(scope="module")
def results() -> dict[str, dict]:
    return {unit: measure(SETTINGS, unit, CONTEXT) for unit in plan(SETTINGS)}


def test_gaussian_trace_ends_at_the_invariant_law():
    """Euler-Maruyama keeps the variance 1/(λ(1 - hλ/2))."""
    h = 0.5 / SETTINGS.condition
    curvatures = [SETTINGS.condition ** (k / 9) for k in range(10)]
    gaps = [(l**-0.5) * ((1 - h * l / 2) ** -0.5 - 1) for l in curvatures]  # noqa: E741
    assert float(gaussian_trace(SETTINGS, "em", 0.5)[-1]) == pytest.approx(math.hypot(*gaps), rel=1e-9)


def test_fit_finds_a_power():
    line = fit([1.0, 2.0, 4.0, 8.0], [3.0, 12.0, 48.0, 192.0])
    assert line.slope == pytest.approx(2.0)
    assert line.half_width < 1e-6


def test_findings_hold_and_measuring_again_gives_the_same_bits(results):
    conclusion = conclude(SETTINGS, results)
    assert all(finding.holds for finding in conclusion.findings), conclusion.findings
    unit = plan(SETTINGS)[3]
    assert torch.equal(measure(SETTINGS, unit, CONTEXT)["steps"], results[unit]["steps"])
    gradients = [row["gradients"] for row in conclusion.tables["gradients"]]
    assert gradients[:6] == sorted(gradients[:6])
    assert tolerances(SETTINGS)[-1] == pytest.approx(0.004)


def test_findings_fail_on_wrong_numbers(results):
    """As many steps for every ε."""
    flat = {unit: {**result, "steps": torch.full((6,), 100)} for unit, result in results.items()}
    assert not any(finding.holds for finding in conclude(SETTINGS, flat).findings)


def test_mixture_is_measured_too():
    settings = Settings(**{**vars(SETTINGS), "targets": ("mixture",), "time": 12.0})
    result = measure(settings, "mixture-srk-ld-0.3162", CONTEXT)
    assert result["steps"][0] > 0
    assert 0.001 < result["last_error"] < 0.02
