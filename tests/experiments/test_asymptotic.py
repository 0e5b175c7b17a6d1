"""The error of a scheme's own law: theory in closed form, measurement against it, and findings that can be false."""

import math

import pytest
import torch

from torchsrk.experiments.asymptotic import (
    Panel,
    Settings,
    conclude,
    exponents,
    gaussian_error,
    law_curve,
    law_error,
    measure,
    plan,
)
from torchsrk.experiments.base import Context
from torchsrk.experiments.config import ConfigError
from torchsrk.experiments.fits import fit_line, fit_power, student, student_95

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


def test_a_law_is_drawn_as_it_is_where_it_was_not_computed():
    """Near SRK-LD's dip in 20-D, whose sides no even grid of a few points follows."""
    panel = Panel(against="step_size", dims=(20,), step_sizes=(0.8, 1.0, 1.4))
    x, y = law_curve(panel, "srk-ld")
    assert (x[0], x[-1]) == (pytest.approx(0.8), pytest.approx(1.4))
    for h in (0.93, 1.22, 1.33, 1.37):
        near = min(range(len(x)), key=lambda k: abs(x[k] - h))
        assert y[near] == pytest.approx(law_error("srk-ld", 20, x[near]), rel=0.01)


def test_units_are_shared_between_panels_and_measured_alike():
    assert len(plan(SETTINGS)) == 8  # the point at d = 2, h = 1 is on both panels
    first, second = (measure(SETTINGS, ("em", 2, 1.0), CONTEXT) for _ in range(2))
    assert torch.equal(first["estimates"], second["estimates"])
    assert len(first["estimates"]) == 3
    assert torch.equal(first["samples"], second["samples"])
    assert first["samples"].shape == (300, 2)


def test_an_explosion_is_an_infinite_error():
    wild = Settings(panels=(Panel("step_size", (2,), (3.0,)),), particles=20, repeats=2, time=5000.0)
    assert measure(wild, ("em", 2, 3.0), CONTEXT)["estimates"].isinf().all()


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
    panel = Panel("step_size", (2,), (0.5, 1.0, 1.5), fit=True)
    noise = 0.001 * torch.randn(20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    results = {f"em-d2-h{h:g}": {"estimates": 3 * h**2.5 + noise[:, k]} for k, h in enumerate(panel.step_sizes)}
    row = exponents(panel, "em", results)
    assert abs(row["exponent"] - 2.5) <= max(row["half_width"], 0.005)
    assert row["factor"] == pytest.approx(3.0, rel=1e-3)
    laws = torch.tensor([law_error("em", 2, h) for h in panel.step_sizes])
    assert row["law"] == fit_power(panel.step_sizes, noise - noise.mean(0) + laws).exponent
    noisy = {unit: {"estimates": result["estimates"] - 100 + 1e5 * noise[:, 0]} for unit, result in results.items()}
    assert exponents(panel, "em", noisy)["half_width"] == math.inf
    results["em-d2-h1.5"]["estimates"][0] = math.inf
    assert math.isnan(exponents(panel, "em", results)["exponent"])


def test_wrong_panels():
    for wrong, message in (
        ({"against": "dim", "dims": (2, 4), "step_sizes": (1.0,), "fit": True}, "fit: needs three dims or more"),
        ({"against": "dim", "dims": (4, 2), "step_sizes": (1.0,)}, "dims: expected rising ones"),
        ({"against": "step_size", "dims": (4, 2), "step_sizes": (1.0,)}, "dims: a panel against step_size has one"),
    ):
        with pytest.raises(ConfigError, match=message):
            Panel(**wrong)
    fitted = Panel("dim", (1, 2, 4), (1.0,), fit=True)
    with pytest.raises(ConfigError, match="repeats: a fit needs three or more; got 2"):
        Settings(panels=(fitted,), particles=10, repeats=2)


def test_a_fit_is_a_table_a_note_and_a_line(tmp_path):
    panels = (Panel("step_size", (2,), (0.5, 1.0, 1.5), fit=True),)
    right = concluded({"em": 1.0, "srk-ld": 1.0}, Settings(panels=panels, particles=300, repeats=3))
    assert [row["scheme"] for row in right.tables["exponents"]] == ["em", "srk-ld"]
    assert any("W2² with Euler-Maruyama goes with step_size to the power" in note for note in right.notes)
    right.figures["asymptotic"](tmp_path / "a.png")


def test_a_power_is_found_with_its_interval():
    """Its interval holds the exponent 95 times in 100 or so, where points share noise and some means are negative."""
    generator = torch.Generator().manual_seed(0)
    x = [1.0, 1.5, 2.0, 3.0]
    truth = 0.5 * torch.tensor(x, dtype=torch.float64).square()
    covered, negative = 0, 0
    for _ in range(300):
        own, shared = (torch.randn(20, count, generator=generator, dtype=torch.float64) for count in (4, 1))
        samples = truth + 1.5 * own + 1.5 * shared
        fit = fit_power(x, samples)
        covered += abs(fit.exponent - 2) <= fit.half_width
        negative += bool((samples.mean(0) < 0).any())
    assert negative > 10
    assert 270 < covered < 298  # 285 ± 4 if it were exact; a jackknife of a curved function is not


def test_students_quantiles():
    assert [student_95(freedom) for freedom in (1, 3, 5, 19)] == pytest.approx([12.706, 3.182, 2.571, 2.093], abs=1e-3)
    assert student(3, 2.0) == pytest.approx(3.307, abs=1e-3)
    assert student(10**6, 4.0) == pytest.approx(4.0, abs=1e-3)


def test_a_line_by_hand():
    """Through (0, 0), (1, 2), (2, 1) the slope is ½, residuals are -½, 1, -½, and their variance 3/2."""
    line = fit_line([0.0, 1.0, 2.0], [0.0, 2.0, 1.0])
    assert line == pytest.approx((0.5, student_95(1) * math.sqrt(0.75)))


def test_too_few_points():
    for x, y in (([0.0, 1.0], [1.0, 2.0]), ([1.0, 1.0, 1.0], [0.0, 1.0, 2.0])):
        with pytest.raises(ValueError, match="a line needs"):
            fit_line(x, y)
        with pytest.raises(ValueError, match="a power needs"):
            fit_power(x, torch.rand(5, len(x)))
    for x, samples in (([0.0, 1.0, 2.0], torch.rand(5, 3)), ([1.0, 2.0, 3.0], torch.rand(2, 3))):
        with pytest.raises(ValueError, match="a power needs"):
            fit_power(x, samples)


def test_the_method_is_the_one_that_was_asked_for_and_in_the_table():
    options = {"panels": (Panel("step_size", (2,), (0.5,)),), "particles": 60, "repeats": 2, "schemes": ("em",)}
    found = {}
    for method in ("exact", "sinkhorn"):
        settings = Settings(**options, method=method)
        results = {unit: measure(settings, case, CONTEXT) for unit, case in plan(settings).items()}
        found[method] = results["em-d2-h0.5"]["estimates"]
        assert {row["method"] for row in conclude(settings, results).tables["errors"]} == {method}
    assert not torch.equal(found["exact"], found["sinkhorn"])
    torch.testing.assert_close(found["sinkhorn"], found["exact"], rtol=0.0, atol=0.02)
    assert Settings(**options).method == "exact"  # on every device


def test_student_covers_what_it_says_with_four_repeats():
    """Two standard errors would cover 86 %."""
    draws = torch.randn(20000, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    apart = draws.mean(1).abs() / (draws.std(1) / 2)
    assert float((apart < student_95(3)).double().mean()) == pytest.approx(0.95, abs=0.006)
    assert float((apart < 2).double().mean()) == pytest.approx(0.861, abs=0.01)
