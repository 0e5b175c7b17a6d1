"""Theory beside laws: plans, what was needed, findings that can fail, and the command."""

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from torchsrk.brownian.noise import derive_seed
from torchsrk.cli import main
from torchsrk.experiments import theory_laws
from torchsrk.experiments.base import Context
from torchsrk.experiments.rate_targets import LINES, PAIRS, block_from, block_of, law_from
from torchsrk.experiments.spectral import Fineness, Transport
from torchsrk.experiments.theory import Settings, conclude, measure, plan
from torchsrk.experiments.theory_laws import law_of, needed_steps, told_steps
from torchsrk.experiments.theory_targets import bounds_of, minimiser_of, radius_of, smoothness_of, start_of
from torchsrk.integrators import EulerMaruyama
from torchsrk.metrics import wasserstein2_squared
from torchsrk.potentials import GaussianMixture, LogisticRegression, NonConvex
from torchsrk.sampling import sample
from torchsrk.sde import ItoDiffusion, Langevin, UnderdampedLangevin

SETTINGS = Settings(errors=(1.0, 0.5), dim=3, condition=4.0, per_decade=3, smallest=0.1)
CONTEXT = Context(seed=0, device=torch.device("cpu"), dtype=torch.float64, compile=False, progress=False)


@pytest.fixture(scope="module")
def results():
    """With a coarse law of the regression under schemes with momentum, whose fine one takes minutes."""
    coarse = Fineness(2, 2, 2, (("W", 3), ("H", 2), ("Z", 2), ("u", 2)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(theory_laws, "_NEARLY_NORMAL", coarse)
        theory_laws.law_of.cache_clear()
        found = {target: measure(SETTINGS, target, CONTEXT) for target in plan(SETTINGS)}
    theory_laws.law_of.cache_clear()
    return found


def test_plans_are_longer_than_needed_and_bounds_hold(results):
    conclusion = conclude(SETTINGS, results)
    assert [finding.holds for finding in conclusion.findings] == [True] * 6
    rows = conclusion.tables["plans"]
    assert {row["target"] for row in rows} == set(SETTINGS.targets)
    assert all(row["gradients"] >= row["needed_gradients"] for row in rows if row["needed_gradients"] != "")
    assert sum(row["times_too_many"] != "" for row in rows) == 2 * (9 + 9 + 9 + 2)


def test_a_bound_below_the_law_is_reported(results):
    checks = results["gaussian"]["checks"].clone()
    checks[4, 1, 1] = 0.9
    broken = {**results, "gaussian": {**results["gaussian"], "checks": checks}}
    finding = conclude(SETTINGS, broken).findings[0]
    assert not finding.holds
    assert "0.9 times" in finding.text


def test_a_constant_that_is_contradicted_is_reported(results):
    for change in ({"refuted": True}, {"contraction": 2 * results["mixture"]["assumptions"]["coupled_chains"]}):
        broken = {**results["mixture"], "assumptions": {**results["mixture"]["assumptions"], **change}}
        found = conclude(SETTINGS, {**results, "mixture": broken}).findings
        assert [finding.holds for finding in found].count(False) == 1


def test_checks_say_where_they_were_made(results):
    rows = conclude(SETTINGS, results).tables["checks"]
    assert len(rows) == 2 * (9 + 9 + 9 + 2)
    limits = {
        (target, bound.name): bound.largest_step for target in SETTINGS.targets for bound in bounds_of(SETTINGS, target)
    }
    for row in rows:
        largest = limits[row["target"], row["bound"]]
        assert row["step_size"] == pytest.approx(row["share_of_largest_step"] * largest)
        assert row["settled_after_steps"] * row["step_size"] > 2.0
    halved = [row for row in rows if row["share_of_largest_step"] not in (1.0, 0.1)]
    assert {row["target"] for row in halved} <= {"regression"}


@pytest.mark.parametrize("target", ["gaussian", "mixture", "regression", "non-convex"])
def test_needed_steps_are_those_of_the_law(target):
    steps, h = needed_steps(SETTINGS, target, "em")[0].tolist()
    errors = law_of(SETTINGS, target, "em", h).after(range(1, 201))
    assert float(errors[int(steps) - 1 :].max()) <= 1.0
    assert steps == 1 or float(errors[int(steps) - 2]) > 1.0


def test_told_steps():
    assert told_steps(5) == [1, 2, 3, 4, 5]
    long = told_steps(100_000)
    assert long[:300] == list(range(1, 301))
    assert long[-1] == 100_000
    assert len(long) < 400
    assert max(b / a for a, b in pairwise(long[300:])) < 1.2


def test_moments_of_the_mixture_say_what_quadrature_says():
    """Of Euler-Maruyama along a, from a start that is no Gaussian of the target's: W2 is never told too large."""
    start = (torch.full((1,), SETTINGS.shift).double(), torch.ones(1).double())
    steps = [1, 4, 16, 40]
    chain_, transport = law_from(
        block_of("mixture", "along"), EulerMaruyama(), 0.2, start=start, curvature=1.0, fineness=LINES[False]
    )
    told = transport.at_least(chain_.moments_at(steps)).sqrt()
    line = Settings(errors=(1.0,), dim=1)
    exact = law_of(line, "mixture", "em", 0.2).after(steps)
    assert torch.allclose(told, exact, rtol=5e-3)
    assert torch.allclose(chain_.moments_at(steps), chain_.moments(40)[torch.tensor(steps) - 1], atol=1e-9)


def test_normals_of_the_same_moments_are_no_farther():
    """In the plane: a shift and a covariance whose root is not that of its entries."""
    block = block_of("quartic", "pair")
    transport = Transport(block, LINES[True])
    x = transport.basis.nodes
    weights = transport.basis.weights
    turn = torch.tensor([[0.9, 0.3], [-0.2, 1.1]], dtype=torch.float64)
    moved = x @ turn.T + 0.3
    moments = (weights @ transport.basis.raw(moved) @ transport.basis.inverse).unsqueeze(0)
    own = torch.diag(block.deviation.square())
    other = turn @ own @ turn.T
    values, vectors = torch.linalg.eigh(own.sqrt() @ other @ own.sqrt())
    root = vectors @ values.sqrt().diag() @ vectors.T
    expected = float(2 * 0.3**2 + (own + other - 2 * root).trace())
    assert float(transport.of_normals(moments)) == pytest.approx(expected, rel=1e-6)


def test_the_regressions_law_is_that_of_particles():
    """Euler-Maruyama after three steps and at rest, whose errors are about 0.01: W2 of normals of their moments."""
    potential, centre = TARGETS["regression"], minimiser_of(SETTINGS)
    assert torch.allclose(centre, minimiser(potential)[0], atol=1e-6)
    x0 = (centre + SETTINGS.shift / math.sqrt(2.0)).repeat(100_000, 1)
    transport = Transport(block_from(potential), PAIRS[False])
    told = law_of(Settings(errors=(1.0,)), "regression", "em", 3.0).after([3, 30])
    for steps, own in zip((3, 30), told.tolist(), strict=True):
        final = sample(Langevin(potential), x0, integrator="em", step_size=3.0, num_steps=steps, seed=1).final
        moments = (transport.basis.raw(final) @ transport.basis.inverse).mean(0, keepdim=True)
        assert math.sqrt(float(transport.of_normals(moments))) == pytest.approx(own, abs=0.04)


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
        (["--settings.errors", "[.nan]"], "settings.errors[0]: expected a finite number"),
        (["--settings.condition", "0.5"], "settings.condition: expected a number from 1"),
        (["--settings.beta", "0"], "settings.beta: expected a number above 0"),
        (["--settings.beta", "0.001"], "beta, gamma: no bound applies to non-convex with these: Theorem 1 needs"),
        (
            ["--profile", "full", "--settings.observations", "1"],
            "observations: no bound applies to regression with these: LogisticRegression(observations=1",
        ),
    ],
)
def test_command_refuses(change, message, tmp_path, capsys):
    assert main(["theory", "theory", "--output", str(tmp_path / "run"), *change]) == 2
    assert message in capsys.readouterr().err
    assert not Path(tmp_path / "run").exists()


def test_command_is_for_its_own_experiment(capsys):
    assert main(["theory", "rates"]) == 2
    assert "expected theory; got rates: `torchsrk run` is for that" in capsys.readouterr().err
