"""The bias of W2² estimators: the closed forms behind it, and findings that can fail."""

import copy

import pytest
import torch

from torchsrk.experiments import w2_bias
from torchsrk.experiments.base import Context
from torchsrk.experiments.w2_bias import Case, Settings, conclude, draw_clouds, dual_value, laws, measure, plan
from torchsrk.metrics import wasserstein2_squared

SETTINGS = Settings(dims=(2, 5), points=(40,), interpolation_dim=20, alphas=(0.0, 0.5, 1.0), repeats=12)
CONTEXT = Context(seed=3, device=torch.device("cpu"), dtype=torch.float64, compile=False, progress=False)


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, torch.Tensor]]:
    return {unit: measure(SETTINGS, case, CONTEXT) for unit, case in plan(SETTINGS).items()}


@pytest.mark.parametrize("panel", w2_bias.TITLES)
def test_dual_value_has_the_distance_as_its_mean_and_is_below_every_estimate(panel):
    case = Case(panel, dim=4, alpha=0.25, points=100)
    both = laws(case, torch.float64)
    values = []
    for seed in range(200):
        x, _, y, _ = draw_clouds(both, case, seed)
        values.append(dual_value(both, x, y))
        if seed < 5:
            assert values[-1] <= wasserstein2_squared(x, y, "exact")
    spread = torch.tensor(values)
    assert abs(spread.mean() - both.distance()) < 4.5 * spread.std() / 200**0.5 + 1e-12


def test_known_distances():
    assert laws(Case("mean", 3, 0.0, 1), torch.float64).distance() == pytest.approx(3.0)
    assert laws(Case("mean-interpolated", 20, 0.5, 1), torch.float64).distance() == pytest.approx(20.0)
    # I/2 + 11ᵀ/5 in 20-D: 19 eigenvalues of ½ and one of 4.5, against 2.
    assert laws(Case("covariance-interpolated", 20, 0.0, 1), torch.float64).distance() == pytest.approx(
        19 * (2**0.5 - 0.5**0.5) ** 2 + (4.5**0.5 - 2**0.5) ** 2
    )


def test_findings_hold_and_measuring_again_gives_the_same_bits(results):
    assert all(finding.holds for finding in conclude(SETTINGS, results).findings)
    unit, case = next(iter(plan(SETTINGS).items()))
    again = measure(SETTINGS, case, CONTEXT)
    assert all(torch.equal(again[name], value) for name, value in results[unit].items())


def test_findings_fail_on_wrong_numbers(results):
    swapped = copy.deepcopy(results)
    for result in swapped.values():
        result["estimates"], result["duals"] = result["estimates"].flip(1), result["duals"].flip(1)
    assert not any(finding.holds for finding in conclude(SETTINGS, swapped).findings)
