"""The error of a scheme's own law: theory in closed form, measurement against it, and findings that can be false."""

import math

import pytest
import torch

from torchsrk.experiments.asymptotic import Panel, Settings, conclude, curve, gaussian_error, measure, plan, slope
from torchsrk.experiments.base import Context
from torchsrk.experiments.fits import fit_line

CONTEXT = Context(seed=0, device=torch.device("cpu"), dtype=torch.float64, compile=False, progress=False)
SETTINGS = Settings(
    panels=(Panel("step_size", (2,), (0.5, 1.0, 1.5)), Panel("dim", (2, 4), (1.0,))), particles=300, repeats=3
)


@pytest.mark.parametrize("scheme", ["em", "srk-ld"])
@pytest.mark.parametrize("h", [0.1, 0.7, 1.5])
def test_gaussian_theory_is_the_recursions_fixed_point(scheme, h):
    """The variance of one step of the scheme on a standard normal, iterated."""
    variance = 1.0
    for _ in range(2000):
        if scheme == "em":
            variance = (1 - h) ** 2 * variance + 2 * h
        else:
            # x' = (1 - h + h²/2)x + √2(1 - h/2)W - √2·h·H·…: the noise is that of (W, H) with Var H = h/12.
            on_w, on_h = math.sqrt(2.0) * (1 - h / 2), math.sqrt(2.0) * h
            variance = (1 - h + h**2 / 2) ** 2 * variance + on_w**2 * h + on_h**2 * h / 12
    assert gaussian_error(scheme, 3, h) == pytest.approx(3 * (math.sqrt(variance) - 1) ** 2)


def test_theory_has_no_law_beyond_stability():
    assert gaussian_error("em", 1, 2.5) == math.inf
    assert gaussian_error("srk-ld", 1, 2.5) == math.inf


def test_units_are_shared_between_panels_and_measured_alike():
    units = plan(SETTINGS)
    assert len(units) == len(set(units)) == 8  # the point at d = 2, h = 1 is on both panels
    first, second = (measure(SETTINGS, "em-d2-h1", CONTEXT) for _ in range(2))
    assert torch.equal(first["estimates"], second["estimates"])
    assert len(first["estimates"]) == 3
    assert torch.equal(first["samples"], second["samples"])
    assert first["samples"].shape == (300, 2)


def test_an_explosion_is_an_infinite_error():
    wild = Settings(panels=(Panel("step_size", (2,), (3.0,)),), particles=20, repeats=2, time=5000.0)
    assert measure(wild, "em-d2-h3", CONTEXT)["estimates"].isinf().all()


def concluded(errors):
    """From made-up estimates around the theory's error times a factor for each scheme."""
    noise = torch.tensor([-0.01, 0.0, 0.01], dtype=torch.float64)
    results = {
        unit: {"estimates": errors[scheme] * gaussian_error(scheme, dim, h) * (1 + noise)}
        for unit, (scheme, dim, h) in SETTINGS.cases().items()
    }
    return conclude(SETTINGS, results)


def test_findings_can_be_false(tmp_path):
    right = concluded({"em": 1.0, "srk-ld": 1.0})
    assert all(finding.holds for finding in right.findings)
    assert len(right.findings) == 4
    wrong = concluded({"em": 1.0, "srk-ld": 1e4})
    assert not any(finding.holds for finding in wrong.findings)
    assert any("of W2² of the exact law with Euler-Maruyama the estimates show" in note for note in right.notes)
    right.figures["asymptotic"](tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_slopes():
    rows = concluded({"em": 1.0, "srk-ld": 1.0}).tables["errors"]
    panel = SETTINGS.panels[0]
    own = curve(panel, "em", rows)
    x, y = [math.log(row["step_size"]) for row in own], [math.log(row["gaussian_theory"]) for row in own]
    assert f"is {fit_line(x, y, [1.0] * 3).slope:.2f} ±" in slope(panel, own)
    noisy = [{**row, "standard_error": row["w2_squared"]} for row in own]
    assert "can't be told: 0 of 3 points" in slope(panel, noisy)


def test_a_line_is_found_with_its_interval():
    """2x + 1 exactly; and under noise its interval holds the slope 95 times in 100, at a significance of 1e-4."""
    assert fit_line([0.0, 1.0, 3.0], [1.0, 3.0, 7.0], [1.0, 2.0, 0.5]).slope == pytest.approx(2.0)
    generator = torch.Generator().manual_seed(0)
    x, errors = [0.0, 0.5, 1.0, 2.0], [0.1, 0.3, 0.2, 0.1]
    covered = 0
    for _ in range(1000):
        noise = torch.randn(4, generator=generator).tolist()
        fit = fit_line(x, [2 * a + 1 + e * n for a, e, n in zip(x, errors, noise, strict=True)], errors)
        covered += abs(fit.slope - 2) < fit.half_width
    assert abs(covered - 950) < 3.9 * math.sqrt(1000 * 0.95 * 0.05)
    # By hand: through (0, 0), (1, 2), (2, 1) the slope is ½, residuals are -½, 1, -½, and their variance 3/2.
    scattered = fit_line([0.0, 1.0, 2.0], [0.0, 2.0, 1.0])
    assert (scattered.slope, scattered.half_width) == pytest.approx((0.5, 1.959964 * math.sqrt(0.75)))
    for bad in (
        ([0.0, 1.0], [1.0, 2.0]),
        ([0.0], [1.0], [1.0]),
        ([0.0, 1.0], [0.0, 1.0], [0.0, 1.0]),
        ([1.0, 1.0], [0.0, 1.0], [1.0, 1.0]),
    ):
        with pytest.raises(ValueError, match="a line needs"):
            fit_line(*bad)
