"""Rates: exponents that theory gives, the search for the best step size, refusals, and findings that can fail."""

import math

import pytest
import torch

from torchsrk.experiments.base import Context
from torchsrk.experiments.config import ConfigError
from torchsrk.experiments.laws import steps_below
from torchsrk.experiments.rate_figures import _guides_of
from torchsrk.experiments.rate_targets import TABLE, traces
from torchsrk.experiments.rates import Settings, conclude, fewest, fit, measure, plan, step_sizes
from torchsrk.potentials import NonConvex
from torchsrk.theory import non_convex_constants

SETTINGS = Settings(step_sizes=16, targets=("mixture", "regression"), schemes=("em", "srk-ld", "lm", "tamed"))
CONTEXT = Context(seed=0, device=torch.device("cpu"), dtype=torch.float32, compile=False, progress=False)


@pytest.fixture(scope="module")
def results() -> dict[str, dict]:
    return {unit: measure(SETTINGS, case, CONTEXT) for unit, case in plan(SETTINGS).items()}


@pytest.fixture(scope="module")
def conclusion(results):
    return conclude(SETTINGS, results)


def _row(conclusion, target, scheme):
    rows = conclusion.tables["exponents"]
    return next(row for row in rows if (row["target"], row["scheme"]) == (target, scheme))


@pytest.mark.parametrize("target", SETTINGS.targets)
@pytest.mark.parametrize(("scheme", "order"), [("em", 1), ("srk-ld", 2), ("lm", 2), ("tamed", 2)])
def test_exponents_are_one_over_the_order(conclusion, target, scheme, order):
    """A law that errs like h^p on each of d coordinates needs steps of (ε/√d)^(1/p)."""
    row = _row(conclusion, target, scheme)
    assert row["exponent"] == pytest.approx(1 / order, abs=0.06)
    assert row["exponent_margin"] <= 0.05
    assert row["order_in_step_size"] == pytest.approx(order, rel=0.1)
    if target == "regression" and scheme != "tamed":
        assert row["exponent_in_dim"] == pytest.approx(0.5 / order, abs=0.06)
        assert row["exponent_in_dim_margin"] <= 0.15
    if scheme in TABLE:
        assert row["table_1"] == pytest.approx(1.0 if scheme == "em" else 2 / 3)


def _concluded(settings):
    return conclude(settings, {unit: measure(settings, case, CONTEXT) for unit, case in plan(settings).items()})


def test_exponents_of_schemes_that_tie_coordinates():
    """The tamed scheme as others of order 2; the midpoint's shared time makes its error d·h³."""
    found = _concluded(Settings(step_sizes=25, targets=("gaussian",), schemes=("em", "tamed", "randomized-midpoint")))
    assert all(finding.holds for finding in found.findings), found.findings
    assert [row["scheme"] for row in found.tables["exponents"]] == ["tamed", "randomized-midpoint"]
    for scheme, in_dim, in_error in (("tamed", 1 / 4, 1 / 2), ("randomized-midpoint", 1 / 3, 1 / 3)):
        row = _row(found, "gaussian", scheme)
        assert row["exponent_in_dim"] == pytest.approx(in_dim, abs=0.06)
        assert row["exponent_in_dim_margin"] <= 0.05
        assert row["exponent"] == pytest.approx(in_error, abs=0.08)
    assert "refused" not in found.tables


def test_exponents_on_the_non_convex_target():
    """Euler-Maruyama and SRK-ID both take 1/ε, where bounds say ε⁻² and 1/ε."""
    found = _concluded(Settings(step_sizes=9, decades=0.8, targets=("non-convex",), schemes=("em", "srk-ld", "srk-id")))
    assert [row["scheme"] for row in found.tables["exponents"]] == ["em", "srk-id"]
    for scheme, bound in (("em", 2.0), ("srk-id", 1.0)):
        row = _row(found, "non-convex", scheme)
        assert row["exponent"] == pytest.approx(1.0, abs=0.2)
        assert row["table_1"] == bound
        assert math.isnan(row["exponent_in_dim"])
    assert [(row["target"], row["scheme"], row["against"]) for row in found.tables["refused"]] == [
        ("non-convex", "em", "dim"),
        ("non-convex", "srk-id", "dim"),
    ]
    non_convex_constants(NonConvex(beta=0.33, gamma=0.5, dim=5))
    with pytest.raises(ValueError, match="uniformly dissipative"):
        non_convex_constants(NonConvex(beta=0.33, gamma=0.5, dim=6))


def test_guides_are_the_papers_exponents_of_the_panels_schemes():
    assert _guides_of("non-convex", ["em", "srk-id"], "w2") == [(-2.0, "ε⁻²"), (-1.0, "ε⁻¹")]
    assert _guides_of("mixture", ["em", "srk-ld", "lm"], "w2") == [(-1.0, "ε⁻¹"), (-2 / 3, "ε^(-2/3)")]
    assert _guides_of("gaussian", ["tamed", "randomized-midpoint"], "dim") == [(4 / 3, "d^(4/3)")]


def test_leimkuhler_matthews_is_exact_across_the_mixture(conclusion):
    """So that coordinates beyond the first cost nothing but the logarithm."""
    assert -0.1 < _row(conclusion, "mixture", "lm")["exponent_in_dim"] < 0.0


def test_euler_maruyamas_law_across_the_mixture():
    """Its variance is 1/(1 - h/2)."""
    _, kept = traces("mixture", "em", 0.1, 2.0)
    assert math.sqrt(kept["across"]) == pytest.approx(0.95**-0.5 - 1, rel=1e-3)


def test_findings_hold_and_measuring_again_gives_the_same_bits(results, conclusion):
    assert all(finding.holds for finding in conclusion.findings), conclusion.findings
    unit, case = list(plan(SETTINGS).items())[3]
    assert torch.equal(measure(SETTINGS, case, CONTEXT)["after_along"], results[unit]["after_along"])


def test_findings_fail_on_wrong_numbers(results):
    """Laws of the shortest step at all step sizes: then no step size is the best, and no exponent is found."""
    last = {unit: results[f"{unit.rsplit('-', 1)[0]}-{SETTINGS.step_sizes - 1}"] for unit in results}
    assert not any(finding.holds for finding in conclude(SETTINGS, last).findings)
    # Errors that fall like those of order one, under the name of order two.
    swapped = {unit: results[unit.replace("srk-ld", "em")] for unit in results}
    broken = conclude(SETTINGS, swapped)
    missed = [finding.text for finding in broken.findings if not finding.holds]
    assert any("SRK-LD needs ε" in text for text in missed)


def test_what_has_no_law_is_refused_by_name(conclusion):
    with pytest.raises(ConfigError, match="'mala', which has none here"):
        Settings(step_sizes=10, schemes=("em", "mala"))
    with pytest.raises(ConfigError, match="even numbers"):
        Settings(step_sizes=10, dims=(1, 2, 3))
    assert [row["scheme"] for row in conclusion.tables["refused"]] == ["tamed"]
    assert "taming" in " ".join(conclusion.notes)
    quartic = Settings(step_sizes=6, targets=("quartic",), schemes=("em", "baoab"))
    assert {scheme for _, scheme, _ in plan(quartic).values()} == {"em"}


def test_fewest_steps_are_those_for_good():
    traces = [torch.tensor(values).double() for values in ([0.5, 0.5], [1.0, 0.2, 0.4, 0.3], [0.9, 0.8, 0.1], [1.0])]
    epsilons = [0.35, 0.1, 0.01]
    found = fewest(traces, epsilons)
    assert found == [(2, 3), (2, 3), None]
    assert steps_below(traces[1], 0.35) == 4
    assert fewest(traces[2:], epsilons) == [None, None, None]  # the first that was tried, which may not be the best


def test_step_sizes_span_the_same_errors():
    first, second = (step_sizes(SETTINGS, "mixture", scheme) for scheme in ("em", "srk-ld"))
    assert first[0] == second[0] == 0.5
    assert first[0] / first[-1] == pytest.approx((second[0] / second[-1]) ** 2)


def test_fit_finds_a_power():
    line = fit([1.0, 2.0, 4.0, 8.0], [3.0, 12.0, 48.0, 192.0])
    assert line.slope == pytest.approx(2.0)
    assert line.half_width < 1e-6
    assert math.isnan(fit([1.0], [1.0]).slope)
