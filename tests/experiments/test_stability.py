"""Stability: the bisection finds linear theory's limit, and findings can fail."""

import copy

import pytest
import torch

from torchsrk.experiments.base import Context
from torchsrk.experiments.stability import Settings, conclude, measure, moment, plan, problem

SETTINGS = Settings(particles=20, steps=600, bisections=8, observations=50, dim=5)
CONTEXT = Context(seed=0, device=torch.device("cpu"), dtype=torch.float64, compile=False, progress=False)


@pytest.fixture(scope="module")
def mixture() -> dict[str, dict]:
    return {f"mixture-{scheme}": measure(SETTINGS, ("mixture", scheme), CONTEXT) for scheme in ("em", "srk-ld")}


@pytest.mark.parametrize("scheme", ["em", "srk-ld"])
def test_mixture_is_stable_up_to_two_over_smoothness(mixture, scheme):
    found = mixture[f"mixture-{scheme}"]
    assert found["largest_stable"] < found["smallest_unstable"] < 1.05 * found["largest_stable"]
    assert 1.9 < found["largest_stable"] < 2.1


def test_measuring_again_gives_the_same_numbers(mixture):
    assert measure(SETTINGS, ("mixture", "em"), CONTEXT) == mixture["mixture-em"]


def test_a_run_that_diverges_has_no_moment():
    case = problem(SETTINGS, "mixture", CONTEXT)
    assert moment(SETTINGS, case, "em", 9.0, CONTEXT).mean == float("inf")
    assert moment(SETTINGS, case, "em", 0.1, CONTEXT).mean == pytest.approx(5.5 * 1.05, rel=0.15)


def test_lipschitz_constants():
    case = problem(SETTINGS, "regression", CONTEXT)
    x = 1e4 * torch.randn(200, SETTINGS.dim, generator=torch.Generator().manual_seed(0))
    far = case.sde.drift(0.0, 2 * x) - case.sde.drift(0.0, x)
    assert float((far.norm(dim=-1) / x.norm(dim=-1)).max()) <= 1.01 * case.far_smoothness
    assert case.far_smoothness < case.smoothness


def test_findings_follow_the_numbers(mixture):
    results = {unit: mixture["mixture-srk-ld" if unit.endswith("ld") else "mixture-em"] for unit in plan(SETTINGS)}
    assert all(finding.holds for finding in conclude(SETTINGS, results).findings)
    wrong = {unit: copy.deepcopy(result) for unit, result in results.items()}
    for unit, result in wrong.items():
        result["largest_stable"] *= 2
        result["linear"][0] *= {"em": 1, "ld": 100, "id": 0.1}[unit[-2:]]
    assert not any(finding.holds for finding in conclude(SETTINGS, wrong).findings)
