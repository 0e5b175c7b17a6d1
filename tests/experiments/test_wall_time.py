"""Wall time: errors without a clock are exact and repeatable; findings follow the numbers."""

import math

import pytest
import torch

from torchsrk.experiments.base import Context
from torchsrk.experiments.wall_time import SCHEMES, Case, Settings, conclude, first_at, law_errors, measure, plan

SETTINGS = Settings(
    dim=20,
    step_sizes=(0.1, 0.2, 0.5, 0.8),
    shown=(0.2,),
    levels=(1.0, 0.05),
    particles=50,
    steps=20,
    rounds=2,
    points=100,
    repeats=8,
)
CONTEXT = Context(seed=0, device=torch.device("cpu"), dtype=torch.float64, compile=False, progress=False)


@pytest.fixture(scope="module")
def results() -> dict[str, dict]:
    cases = {unit: case for unit, case in plan(SETTINGS).items() if isinstance(case, Case)}
    measured = {unit: measure(SETTINGS, case, CONTEXT) for unit, case in cases.items()}
    return {**measured, "round-0": {"em": 1.0, "srk-ld": 2.4}, "round-1": {"em": 1.1, "srk-ld": 2.4}}


def test_first_at_wants_the_error_below_for_good():
    curves = {0.5: torch.tensor([4.0, 0.5, 2.0, 0.5]), 0.1: torch.tensor([3.0, 2.0, 0.9, 0.8, 0.7])}
    assert first_at(1.0, curves, cost=0.1)[:2] == (0.1, 3)
    assert first_at(0.6, curves, cost=0.1)[:2] == (0.5, 4)
    assert math.isinf(first_at(0.1, curves, cost=0.1).seconds)


def test_findings_hold_and_errors_are_repeatable(results):
    conclusion = conclude(SETTINGS, results)
    assert all(finding.holds for finding in conclusion.findings), conclusion.findings
    assert torch.equal(law_errors(SETTINGS, "em", 0.2), results["law-em-h0.2"]["w2_squared"])
    again = measure(SETTINGS, Case("cloud", "srk-ld", 0.2), CONTEXT)["estimates"]
    assert torch.equal(again, results["cloud-srk-ld-h0.2"]["estimates"])


def test_findings_fail_on_wrong_numbers(results):
    dear = {**results, "round-0": {"em": 1.0, "srk-ld": 50.0}, "round-1": {"em": 1.0, "srk-ld": 50.0}}
    cost, sooner, _, clouds = (finding.holds for finding in conclude(SETTINGS, dear).findings)
    assert (cost, sooner, clouds) == (False, False, True)
    swapped = {unit.replace("srk-ld", "other"): result for unit, result in results.items()}
    swapped = {unit.replace("em-", "srk-ld-").replace("other", "em"): result for unit, result in swapped.items()}
    assert [finding.holds for finding in conclude(SETTINGS, swapped).findings][1:3] == [False, False]


def test_a_round_times_every_scheme():
    seconds = measure(SETTINGS, 1, CONTEXT)
    assert set(seconds) == set(SCHEMES)
    assert all(isinstance(value, float) for value in seconds.values())
