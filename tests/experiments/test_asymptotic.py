"""The error of a scheme's own law: theory in closed form, measurement against it, and findings that can be false."""

import math

import pytest
import torch

from torchsrk.experiments.asymptotic import Panel, Settings, conclude, curve, exponents, gaussian_error, measure, plan
from torchsrk.experiments.base import Context
from torchsrk.experiments.config import ConfigError
from torchsrk.experiments.fits import fit_line, fit_power

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


def concluded(errors, settings=SETTINGS):
    """From made-up estimates around the theory's error times a factor for each scheme."""
    noise = torch.tensor([-0.01, 0.0, 0.01], dtype=torch.float64)
    results = {
        unit: {"estimates": errors[scheme] * gaussian_error(scheme, dim, h) * (1 + noise)}
        for unit, (scheme, dim, h) in settings.cases().items()
    }
    return conclude(settings, results)


def test_findings_can_be_false(tmp_path):
    right = concluded({"em": 1.0, "srk-ld": 1.0})
    assert all(finding.holds for finding in right.findings)
    assert len(right.findings) == 4
    wrong = concluded({"em": 1.0, "srk-ld": 1e4})
    assert not any(finding.holds for finding in wrong.findings)
    assert any("of W2² of the exact law with Euler-Maruyama the estimates show" in note for note in right.notes)
    right.figures["asymptotic"](tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_exponents_are_those_of_the_estimates():
    rows = concluded({"em": 1.0, "srk-ld": 1.0}).tables["errors"]
    panel = Panel("step_size", (2,), (0.5, 1.0, 1.5), fit=True)
    own = [{**row, "w2_squared": 3 * row["step_size"] ** 2.5} for row in curve(panel, "em", rows)]
    row = exponents(panel, own)
    assert row["exponent"] == 2.5
    assert row["factor"] == pytest.approx(3.0)
    assert row["low"] <= 2.5 <= row["high"]
    noisy = exponents(panel, [{**row, "standard_error": 100.0} for row in own])
    assert (noisy["low"], noisy["high"]) == (-math.inf, math.inf)
    with pytest.raises(ConfigError, match="fit: needs three dims or more"):
        Panel("dim", (2, 4), (1.0,), fit=True)


def test_a_fit_is_a_table_a_note_and_a_line(tmp_path):
    panels = (Panel("step_size", (2,), (0.5, 1.0, 1.5), fit=True),)
    right = concluded({"em": 1.0, "srk-ld": 1.0}, Settings(panels=panels, particles=300, repeats=3))
    assert [row["scheme"] for row in right.tables["exponents"]] == ["em", "srk-ld"]
    assert any("W2² with Euler-Maruyama goes with step_size to the power" in note for note in right.notes)
    right.figures["asymptotic"](tmp_path / "a.png")


def test_a_power_is_found_with_its_interval():
    """Its interval holds the exponent 95 times in 100, at a significance of 1e-4, also where noise makes y negative."""
    generator = torch.Generator().manual_seed(0)
    x, errors = [1.0, 1.5, 2.0, 3.0], [0.5, 0.3, 0.6, 0.8]
    covered, negative = 0, 0
    for _ in range(1000):
        noise = torch.randn(4, generator=generator).tolist()
        y = [0.5 * a**2 + e * n for a, e, n in zip(x, errors, noise, strict=True)]
        fit = fit_power(x, y, errors)
        covered += fit.low <= 2 <= fit.high
        negative += min(y) < 0
    assert negative > 100
    # Scatter beyond the errors widens it, so that it may hold more often.
    assert 950 - 3.9 * math.sqrt(1000 * 0.95 * 0.05) < covered < 995


def test_a_line_by_hand():
    """Through (0, 0), (1, 2), (2, 1) the slope is ½, residuals are -½, 1, -½, and their variance 3/2."""
    line = fit_line([0.0, 1.0, 2.0], [0.0, 2.0, 1.0])
    assert line == pytest.approx((0.5, 1.959964 * math.sqrt(0.75)))


def test_too_few_points():
    for bad in (([0.0, 1.0], [1.0, 2.0]), ([1.0, 1.0, 1.0], [0.0, 1.0, 2.0])):
        with pytest.raises(ValueError, match="a line needs"):
            fit_line(*bad)
        with pytest.raises(ValueError, match="a power needs"):
            fit_power(*bad, [1.0] * len(bad[0]))
    for x, errors in (([0.0, 1.0, 2.0], [1.0] * 3), ([1.0, 2.0, 3.0], [1.0, 0.0, 1.0])):
        with pytest.raises(ValueError, match="positive abscissae and errors"):
            fit_power(x, [1.0, 2.0, 3.0], errors)
