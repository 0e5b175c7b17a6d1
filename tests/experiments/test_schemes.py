"""Schemes compared: truths against quadrature, chains against exact laws, and findings that can be false."""

import math

import pytest
import torch

from torchsrk.experiments.base import Context
from torchsrk.experiments.config import ConfigError
from torchsrk.experiments.laws import LineMixture, transition
from torchsrk.experiments.scheme_moments import Chains, scheme_named
from torchsrk.experiments.scheme_targets import Target, case_of, regression_moments
from torchsrk.experiments.schemes import Settings, conclude, measure, plan
from torchsrk.potentials import LogisticRegression

CONTEXT = Context(seed=0, device=torch.device("cpu"), dtype=torch.float64, compile=False, progress=False)
MIXTURE = Target("mixture", 2, tolerance=0.1, particles=500, many=2000, timed=False)
GAUSSIAN = Target("gaussian", 4, tolerance=0.1, particles=500, many=500, condition=20.0)
SETTINGS = Settings(
    targets=(MIXTURE, GAUSSIAN),
    schemes=("em", "srk-ld", "sra1", "lm", "ozaki", "baoab", "mala"),
    per_octave=1,
    exact_per_octave=3,
    smallest=0.03,
    dear_dim=1,
    chains=5,
    timed_steps=10,
    rounds=1,
)


@pytest.fixture(scope="module")
def results() -> dict[str, dict]:
    clock = {"seconds": 0.5, "compiled": 1}
    return {
        unit: clock if case[0] == "seconds" else measure(SETTINGS, case, CONTEXT)
        for unit, case in plan(SETTINGS).items()
    }


def row(table, target, scheme):
    return next(row for row in table if (row["target"], row["scheme"]) == (target, scheme))


def test_findings_hold_and_figures_are_drawn(results, tmp_path):
    conclusion = conclude(SETTINGS, results)
    assert all(finding.holds for finding in conclusion.findings), conclusion.findings
    assert len(conclusion.findings) == 5
    for name, draw in conclusion.figures.items():
        draw(tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    reached = conclusion.tables["reached"]
    assert row(reached, "gaussian", "srk-ld")["gradients"] == 1.5 * row(reached, "gaussian", "sra1")["gradients"]
    assert row(reached, "gaussian", "baoab")["seconds"] == 0.5 * row(reached, "gaussian", "baoab")["steps"]
    assert math.isnan(row(reached, "mixture", "ozaki")["gradients"])  # dear, and no Gaussian
    assert row(reached, "gaussian", "ozaki")["gradients"] == 1
    assert any("left out" in note and "Ozaki" in note for note in conclusion.notes)


def test_findings_fail_on_wrong_numbers(results):
    swapped = {
        unit.replace("baoab", "other").replace("srk-ld", "baoab").replace("other", "srk-ld"): result
        for unit, result in results.items()
    }
    for target in ("mixture", "gaussian"):
        swapped[f"{target}-srk-ld"] = {
            **swapped[f"{target}-srk-ld"],
            "steps": torch.full_like(swapped[f"{target}-srk-ld"]["steps"], 0.1),
        }
    assert not any(finding.holds for finding in conclude(SETTINGS, swapped).findings)


def test_limits_are_those_of_theory(results):
    """Euler-Maruyama to 2/L, BAOAB to 2/√L: between two neighbours of the sweep."""
    reached = conclude(SETTINGS, results).tables["reached"]
    for scheme, limit in (("em", 2 / 20.0), ("baoab", 2 / math.sqrt(20.0))):
        own = row(reached, "gaussian", scheme)
        assert own["stable_to"] <= limit <= own["unstable_from"]
        assert own["unstable_from"] / own["stable_to"] == pytest.approx(2 ** (1 / 3))


def test_measuring_again_gives_the_same_bits(results):
    for unit in ("mixture-baoab", "gaussian-mala"):
        again = measure(SETTINGS, plan(SETTINGS)[unit], CONTEXT)
        assert torch.equal(again["error"], results[unit]["error"])
        assert torch.equal(again["steps"], results[unit]["steps"])


def test_an_explosion_is_the_limit():
    banana = Target("banana", 2, tolerance=0.5, particles=200, many=200, time=3.0)
    settings = Settings(**{**vars(SETTINGS), "targets": (banana,), "smallest": 0.1})
    result = measure(settings, ("errors", banana, "em"), CONTEXT)
    assert not result["stable"][0]
    assert result["error"][0] == math.inf


def test_coupled_chains_find_the_exact_law():
    """Euler-Maruyama on the mixture: along a by quadrature, across a 1/(1 - h/2). Noise is far below that alone."""
    h, target = 0.5, Target("mixture", 3, tolerance=0.01, particles=2000, many=2000)
    case = case_of(target, CONTEXT)
    chains = Chains(case, target, scheme_named("em"), 1.0, CONTEXT)
    values, errors = (part[0] for part in chains.trace(h, 40, chains.linear(h)).tail().values())
    grid = torch.linspace(-10, 10, 800, dtype=torch.float64)
    move = transition(LineMixture(math.sqrt(0.5)), "em", step_size=h, grid=grid)
    density = torch.linalg.matrix_power(move, 64).sum(1)
    along = float((density * grid.square()).sum() / density.sum()) / 1.5
    assert float(values[1, 0]) == pytest.approx(1 / (1 - h / 2), abs=1e-9)
    assert abs(float(values[1, 1]) - along) < 4.5 * float(errors[1, 1])
    assert float(errors[1, 1]) < 0.25 * math.sqrt(2 / 2000)


def test_the_regressions_truth_is_that_of_quadrature():
    target = Target("regression", 1, tolerance=0.01, particles=100, many=100, observations=12, data_seed=3)
    posterior = LogisticRegression.synthetic(12, 1, seed=3, dtype=torch.float64)
    grid = torch.linspace(-60, 60, 20_001, dtype=torch.float64)
    density = (-posterior(grid.unsqueeze(-1))).exp()
    mean = float((density * grid).sum() / density.sum())
    variance = float((density * (grid - mean).square()).sum() / density.sum())
    found, covariance, share = regression_moments(target, 0)
    assert float(found) == pytest.approx(mean, abs=0.01 * math.sqrt(variance))
    assert float(covariance) == pytest.approx(variance, rel=0.02)
    assert 0.5 < share <= 1


def test_seconds_say_whether_they_were_compiled():
    timed = measure(SETTINGS, plan(SETTINGS)["seconds-gaussian-em"], CONTEXT)
    assert timed["compiled"] == 0
    assert timed["seconds"] >= 0


def test_wrong_settings():
    with pytest.raises(ConfigError, match="dim: a banana has 2; got 3"):
        Target("banana", 3, tolerance=0.1, particles=100, many=100)
    with pytest.raises(ConfigError, match="targets: each kind once"):
        Settings(**{**vars(SETTINGS), "targets": (MIXTURE, MIXTURE)})
