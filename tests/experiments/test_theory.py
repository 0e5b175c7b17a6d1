"""Theory beside laws: plans, what was needed, findings that can fail, and the command."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from torchsrk.brownian.noise import derive_seed
from torchsrk.cli import main
from torchsrk.experiments.base import Context
from torchsrk.experiments.theory import (
    Settings,
    bounds_of,
    conclude,
    law,
    measure,
    needed_steps,
    plan,
    radius_of,
    smoothness_of,
    start_of,
)
from torchsrk.metrics import wasserstein2_squared
from torchsrk.potentials import GaussianMixture, LogisticRegression, NonConvex
from torchsrk.sampling import sample
from torchsrk.sde import ItoDiffusion, Langevin, UnderdampedLangevin

SETTINGS = Settings(errors=(1.0, 0.5), dim=3, condition=4.0, per_decade=3, smallest=0.1)
CONTEXT = Context(seed=0, device=torch.device("cpu"), dtype=torch.float64, compile=False, progress=False)


@pytest.fixture(scope="module")
def results():
    return {target: measure(SETTINGS, target, CONTEXT) for target in plan(SETTINGS)}


def test_plans_are_longer_than_needed_and_bounds_hold(results):
    conclusion = conclude(SETTINGS, results)
    assert [finding.holds for finding in conclusion.findings] == [True] * 6
    rows = conclusion.tables["plans"]
    assert {row["target"] for row in rows} == set(SETTINGS.targets)
    assert all(row["gradients"] >= row["needed_gradients"] for row in rows if row["needed_gradients"] != "")
    assert sum(row["times_too_many"] != "" for row in rows) == 2 * (9 + 5)


def test_a_bound_below_the_law_is_reported(results):
    broken = {**results, "gaussian": {**results["gaussian"], "ratios": 0.9 * torch.ones(9, 2)}}
    finding = conclude(SETTINGS, broken).findings[0]
    assert not finding.holds
    assert "0.9 times" in finding.text


def test_a_constant_that_is_contradicted_is_reported(results):
    for change in ({"refuted": True}, {"contraction": 2 * results["mixture"]["assumptions"]["coupled_chains"]}):
        broken = {**results["mixture"], "assumptions": {**results["mixture"]["assumptions"], **change}}
        found = conclude(SETTINGS, {**results, "mixture": broken}).findings
        assert [finding.holds for finding in found].count(False) == 1


def test_needed_steps_are_those_of_the_law():
    steps, h = needed_steps(SETTINGS, "gaussian", "em")[0].tolist()
    errors = law(SETTINGS, "gaussian", "em", h, 500)
    assert float(errors[int(steps) - 1 :].max()) <= 1.0 < float(errors[int(steps) - 2])


TARGETS = {
    "mixture": GaussianMixture(torch.full((3,), (1 / 6) ** 0.5, dtype=torch.float64)),
    "regression": LogisticRegression.synthetic(50, 2, seed=0, dtype=torch.float64),
    "non-convex": NonConvex(beta=0.33, gamma=0.5, dim=1),
}
PARTICLES, STEPS = 200, 30


def chain(target, potential, bound, x0, h):
    if target == "non-convex":
        sde = ItoDiffusion(potential, diffusion=potential.scale, noise_type="isotropic")
    elif bound.scheme in ("em", "srk-ld"):
        sde = Langevin(potential)
    else:
        sde = UnderdampedLangevin(potential, friction=2.0, u=1 / smoothness_of(SETTINGS, target).smoothness)
    return sample(sde, x0, integrator=bound.scheme, step_size=h, num_steps=STEPS, seed=1).final


def minimiser(potential):
    """Of a convex potential, by gradient descent."""
    x = torch.zeros(1, potential.dim, dtype=torch.float64)
    for _ in range(3000):
        x = x - potential.grad(x) / potential.smoothness
    return x


@pytest.mark.parametrize("target", ["mixture", "regression", "non-convex"])
def test_every_bound_holds_on_every_shipped_target(target):
    """Particles against draws: plain W2² of clouds is too large rather than too small."""
    potential = TARGETS[target]
    if target == "regression":
        centre = minimiser(potential)
        settled = sample(
            Langevin(potential), centre.repeat(PARTICLES, 1), integrator="srk-ld", step_size=1.0, num_steps=300, seed=2
        )
        draws = settled.final
    else:
        draws = potential.sample((PARTICLES,), seed=derive_seed(0, 1)).double()
        centre = torch.zeros(1, draws.shape[-1], dtype=torch.float64)
    direction = torch.ones_like(centre) / math.sqrt(centre.shape[-1])
    x0 = (centre + SETTINGS.shift * direction).repeat(PARTICLES, 1)
    for bound in bounds_of(SETTINGS, target):
        for share in (1.0, 0.1):
            h = share * bound.largest_step
            final = chain(target, potential, bound, x0, h)
            seen = math.sqrt(float(wasserstein2_squared(final, draws)))
            started = math.sqrt(float(wasserstein2_squared(x0, draws)))
            from_here = replace(bound, start=max(bound.start, started))
            assert from_here.after(STEPS, step_size=h) >= seen, (bound.name, share)


def test_starts():
    assert start_of(SETTINGS, "gaussian") == pytest.approx(math.sqrt(27 + 1 + 1 / 2 + 1 / 4))
    assert radius_of(SETTINGS, "mixture") == pytest.approx(4.0)
    assert start_of(SETTINGS, "mixture") == pytest.approx(math.sqrt(9.5))


def test_command(tmp_path, capsys):
    config = tmp_path / "mine.yaml"
    config.write_text(
        "experiment: theory\ndescription: mine\nsettings: {errors: [1.0], targets: [gaussian], dim: 2, condition: 2.0,"
        " per_decade: 3, smallest: 0.1}\n"
    )
    output = tmp_path / "run"
    assert main(["theory", str(config), "--output", str(output)]) == 0
    printed = capsys.readouterr().out
    assert "| gaussian | Theorem 2 | 1 |" in printed
    assert "times too many" in printed
    assert all((output / name).is_file() for name in ("plans.csv", "checks.csv", "looseness.png"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--settings.errors", "[0.0]"], "settings.errors[0]: expected a number above 0"),
        (["--settings.targets", "[banana]"], "settings.targets[0]: expected one of gaussian, mixture"),
        (["--settings.dimm", "3"], "did you mean dim?"),
        (["--settings.errors", "[0.1, 100.0]"], "errors: below shift (3)"),
    ],
)
def test_command_refuses(change, message, tmp_path, capsys):
    assert main(["theory", "theory", "--output", str(tmp_path / "run"), *change]) == 2
    assert message in capsys.readouterr().err
    assert not Path(tmp_path / "run").exists()


def test_command_is_for_its_own_experiment(capsys):
    assert main(["theory", "rates"]) == 2
    assert "expected theory; got rates: `torchsrk run` is for that" in capsys.readouterr().err
