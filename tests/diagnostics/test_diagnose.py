"""Correct runs are trusted, and every trouble is named."""

import math
import warnings

import pytest
import torch
from torch.distributions import constraints

from torchsrk import Capped, EulerMaruyama, Langevin, Run, UnderdampedLangevin, diagnose, sample, tune
from torchsrk.diagnostics import Diagnosis, inference_data
from torchsrk.potentials import FunctionPotential, MinibatchPotential, UnconstrainedPotential

CURVATURES = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
GAUSSIAN = FunctionPotential(lambda x: 0.5 * (CURVATURES * x.square()).sum(-1), dim=3)
UNDERDAMPED = UnderdampedLangevin(GAUSSIAN, friction=1.5)
BAOAB = {"integrator": "baoab", "step_size": 0.4}


def normals(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def good_run(seed=0, particles=500, **options):
    options = {"num_steps": 100, "burn_in": 60, "thin": 10, **BAOAB, **options}
    return sample(UNDERDAMPED, normals(particles, 3, seed=seed), seed=seed, **options)


def run_of(trajectory):
    return Run(trajectory[-1], trajectory, trajectory[-1], len(trajectory))


def troubled(match, run, **options) -> Diagnosis:
    with pytest.warns(RuntimeWarning, match=f"these draws should not be trusted.*{match}"):
        diagnosis = diagnose(run, **options)
    assert not diagnosis.trusted
    assert "should not be trusted" in str(diagnosis)
    return diagnosis


@pytest.mark.parametrize("seed", range(6))
def test_a_correct_run_is_trusted_and_its_numbers_are_right(seed):
    diagnosis = diagnose(good_run(seed), sde=UNDERDAMPED, **BAOAB, names=["a", "b", "c"])
    assert diagnosis.trusted, diagnosis
    table, sd = diagnosis.table, CURVATURES.rsqrt()
    deviations = table["mean"] / table["error"]
    assert float(deviations.abs().max()) < 4.0
    torch.testing.assert_close(table["sd"], sd, rtol=0.05, atol=0.0)
    torch.testing.assert_close(table["q95"], 1.645 * sd, rtol=0.1, atol=0.0)
    assert bool((table["bias_sd"].abs() < 3.0 * table["bias_sd_error"] + 1e-3).all())
    assert bool((table["ess"] > 1000.0).all())
    assert set(diagnosis.rows()[1]) == {"name", *table}
    assert diagnosis.rows()[1]["name"] == "b"
    assert "Nothing speaks against these draws." in str(diagnosis)
    assert diagnosis.energy.shape == (10,)
    # ½ a coordinate; errors are over 500 particles
    assert float(((diagnosis.energy - 1.5) / diagnosis.energy_error).abs().max()) < 4.5
    assert float(diagnosis.identities.virial.abs().max()) < 4.5


def test_independent_draws_are_worth_their_number():
    pytest.importorskip("arviz")
    table = diagnose(run_of(normals(200, 50, 2))).table
    for column in ("ess", "ess_bulk", "ess_tail"):
        torch.testing.assert_close(table[column], torch.full((2,), 10_000.0).double(), rtol=0.5, atol=0.0)
    torch.testing.assert_close(table["rhat"], torch.ones(2).double(), rtol=0.01, atol=0.0)


def test_modes_that_nobody_crosses():
    def energy(x):
        return -torch.logaddexp(-0.5 * (x - 5.0).square().sum(-1), -0.5 * (x + 5.0).square().sum(-1))

    sde = Langevin(FunctionPotential(energy, dim=2))
    run = sample(sde, 6.0 * normals(400, 2), integrator="lm", step_size=0.3, burn_in=50, num_steps=100, thin=5, seed=0)
    troubled("modes that they do not cross", run, sde=sde, integrator="lm", step_size=0.3)
    # The classical four chains see it, too, without an SDE.
    troubled("remember|do not agree", run_of(normals(500, 4, 1) + torch.tensor([5.0, 5.0, -5.0, 5.0])[:, None]))


def test_a_slow_direction_wants_a_longer_run():
    wide = Langevin(FunctionPotential(lambda x: 0.5 * (x / 10.0).square().sum(-1), dim=1))
    run = sample(wide, 10.0 * normals(400, 1), integrator="lm", step_size=0.5, num_steps=400, thin=4, seed=0)
    troubled("falls as the run goes on: run longer", run, sde=wide)


def test_a_far_start_and_few_steps():
    sde = Langevin(GAUSSIAN)
    options = {"integrator": "lm", "step_size": 0.1}
    run = sample(sde, torch.full((300, 3), 8.0).double(), num_steps=20, thin=2, seed=0, **options)
    troubled("had not arrived", run, sde=sde, **options)
    final = sample(sde, torch.full((300, 3), 8.0).double(), num_steps=20, seed=0, **options)
    troubled("do not have the density's law", final, sde=sde)


def test_a_step_that_biases():
    """Euler-Maruyama at 0.3: standard deviations are larger by (1 - hλ/2)^-½ - 1, 0.195 at λ = 2."""
    sde, options = Langevin(GAUSSIAN), {"integrator": "em", "step_size": 0.3}
    run = sample(sde, normals(500, 3), burn_in=40, num_steps=100, thin=10, seed=0, **options)
    diagnosis = troubled(r"biases the standard deviation of x\[2\].*Take a step size of", run, sde=sde, **options)
    assert float(diagnosis.table["bias_sd"][2]) > 0.1
    shorter = {"integrator": "em", "step_size": 0.02}
    run = sample(sde, normals(500, 3), burn_in=200, num_steps=1000, thin=100, seed=0, **shorter)
    assert diagnose(run, sde=sde, **shorter).trusted


def test_heavy_tails():
    cauchy = torch.distributions.StudentT(2.0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        draws = cauchy.sample((10, 1000, 1)).double()
    troubled("Student-t with .* degrees of freedom", run_of(draws))


def test_capped_kicks_and_few_acceptances():
    scheme, sde = Capped(EulerMaruyama(), 0.2), Langevin(GAUSSIAN)
    run = sample(sde, normals(500, 3), integrator=scheme, step_size=0.1, num_steps=50, thin=5, seed=0)
    troubled("of kicks were capped", run)
    run = sample(sde, normals(500, 3), integrator="mala", step_size=3.0, num_steps=50, thin=5, seed=0)
    troubled("proposals were accepted: the chain hardly moves", run)


def test_an_exact_scheme_has_no_bias():
    sde = Langevin(GAUSSIAN)
    run = sample(sde, normals(500, 3), integrator="mala", step_size=0.4, burn_in=30, num_steps=200, thin=20, seed=0)
    diagnosis = diagnose(run, sde=sde, integrator="mala", step_size=0.4)
    assert diagnosis.trusted, diagnosis
    assert "mala has an exact law" in str(diagnosis)
    assert diagnosis.bias is None


def test_draws_where_there_is_no_density():
    edge = FunctionPotential(lambda x: torch.where(x[..., 0] > -0.5, 0.5 * x.square().sum(-1), math.inf), dim=2)
    troubled("it has an edge", run_of(normals(10, 500, 2)), sde=Langevin(edge))


def test_parameters_are_what_is_read():
    """Of a positive parameter, its value and not its logarithm; a triangle's zeros are left out."""
    positive = UnconstrainedPotential(
        lambda x: (2.0 * x.log() - x).sum(-1), (2,), constraints.independent(constraints.positive, 1)
    )
    sde = UnderdampedLangevin(positive, friction=1.5)
    options = {"integrator": "baoab", "step_size": 0.3}
    run = sample(sde, normals(400, 2), burn_in=50, num_steps=120, thin=12, seed=0, **options)
    diagnosis = diagnose(run, sde=sde, **options)
    torch.testing.assert_close(diagnosis.table["mean"], torch.full((2,), 3.0).double(), rtol=0.05, atol=0.0)
    assert diagnosis.trusted, diagnosis

    triangle = diagnose(good_run(), parameters=lambda x: torch.stack((x[..., 0], 0.0 * x[..., 0], x[..., 1].sin()), -1))
    assert triangle.trusted, triangle
    assert "x[1] never changes, and is left out" in str(triangle)
    stuck = good_run().trajectory.clone()
    stuck[..., 2] = 1.0
    troubled("x\\[2\\] never changes: the chain is stuck", run_of(stuck))


def test_a_tuned_run():
    plan = tune(GAUSSIAN, seed=0, particles=500, start=torch.zeros(3).double())
    run = plan.sample(8)
    diagnosis = plan.diagnose(run, names={"scale": (), "slope": (2,)})
    assert diagnosis.trusted, diagnosis
    assert diagnosis.names == ("scale", "slope[0]", "slope[1]")
    assert diagnosis.bias.step_size == plan.step_size
    assert "when tuned: particles have forgotten" in str(diagnosis)
    measured = plan.diagnose(run, parameters=lambda x: x[..., :1])
    assert measured.table["bias_mean"].shape == (1,)
    with pytest.raises(ValueError, match="leave them out"):
        diagnose(run, tuning=plan, step_size=0.1)


def test_superchains():
    starts = 20.0 * normals(25, 3).repeat_interleave(20, 0)
    sde = Langevin(GAUSSIAN)
    options = {"integrator": "lm", "step_size": 0.3, "seed": 0, "thin": 1, "num_steps": 1}
    early = sample(sde, starts, burn_in=5, **options)
    troubled("superchains still differ", early, superchains=25)
    late = sample(sde, starts, burn_in=100, **options)
    assert diagnose(late, superchains=25).trusted


def test_little_to_look_at():
    """What can be told of the last positions alone, of one particle, and of few draws; and what can't is said."""
    final = diagnose(good_run(thin=None), sde=UNDERDAMPED, **BAOAB)
    assert final.trusted, final
    assert (final.draws, final.particles) == (1, 500)
    assert any("there is one draw of each particle" in reason for reason in final.left_out)
    assert float(final.table["ess"][0]) == pytest.approx(500.0)
    alone = diagnose(good_run(particles=1, num_steps=8000, thin=10), sde=UNDERDAMPED, **BAOAB)
    assert alone.trusted, alone
    assert "nested_rhat" not in alone.table
    assert bool((alone.table["mean"].abs() < 5.0 * alone.table["error"]).all())
    few = troubled("ESS .*, and 400 is asked for", good_run(particles=4))
    assert any("Monte Carlo error" in reason for reason in few.left_out)
    troubled("worth 100 independent ones", good_run(particles=100, thin=None))


def test_without_arviz_the_rest_is_told(monkeypatch):
    def missing():
        raise ImportError("this needs ArviZ")

    monkeypatch.setattr(inference_data, "loaded", missing)
    diagnosis = diagnose(good_run())
    assert diagnosis.trusted
    assert "rhat" not in diagnosis.table
    assert "this needs ArviZ" in str(diagnosis)
    with pytest.raises(ImportError, match="ArviZ"):
        inference_data.to_arviz(good_run())


def test_noisy_gradients_are_not_measured():
    def loss(x, y):
        return 0.5 * (x.unsqueeze(-2) - y).square().sum(-1)

    noisy = MinibatchPotential(loss, normals(20, 3), batch_size=5, seed=0)
    diagnosis = diagnose(good_run(), sde=Langevin(noisy), integrator="em", step_size=0.01)
    assert any("gradients are noisy" in reason for reason in diagnosis.left_out)
    assert any("estimates its gradients" in reason for reason in diagnosis.left_out)


def test_more_dimensions_of_particles():
    run = good_run()
    split = Run(run.final.reshape(50, 10, 3), run.trajectory.reshape(10, 50, 10, 3), run.state, run.step)
    torch.testing.assert_close(diagnose(split).table, diagnose(run).table)


def nan_run():
    trajectory = good_run().trajectory.clone()
    trajectory[4:, 7, 1] = math.nan
    return run_of(trajectory)


@pytest.mark.parametrize(
    ("run", "options", "message"),
    [
        (nan_run, {}, "6 entries that are infinite or NaN, of 1 of 500 particles, from kept draw 4 on"),
        (lambda: run_of(torch.zeros(3, 0, 2)), {}, "no draws"),
        (lambda: run_of(torch.zeros(1, 1, 2)), {}, "a single position"),
        (good_run, {"names": ["a", "b"]}, "names are for 2 parameters, and there are 3"),
        (good_run, {"names": ["a", "b", "b"]}, "come twice"),
        (good_run, {"names": {"a": (2, 2)}}, "names are for 4 parameters"),
        (good_run, {"parameters": lambda x: x.sum()}, "it gave"),
        (good_run, {"parameters": lambda x: x.log()}, "what parameters makes of the positions"),
        (good_run, {"tolerance": 0.0}, "tolerance"),
        (good_run, {"superchains": 7}, "of different sizes"),
        (good_run, {"integrator": "nonsense"}, "unknown integrator"),
        (good_run, {"step_size": -1.0}, "step_size"),
    ],
)
def test_bad_input(run, options, message):
    with pytest.raises(ValueError, match=message):
        diagnose(run(), **options)


@pytest.mark.parametrize("options", [{"tuning": 3}, {"sde": 3}, {"names": "abc"}])
def test_bad_types(options):
    with pytest.raises(TypeError):
        diagnose(good_run(), **options)
    with pytest.raises(TypeError, match=r"torchsrk\.sample"):
        diagnose(torch.zeros(3, 4, 2))


def test_the_same_again_and_no_warning_of_its_own():
    run = good_run()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, second = (diagnose(run, sde=UNDERDAMPED, **BAOAB) for _ in range(2))
    assert str(first) == str(second)


def test_the_error_of_a_standard_deviation():
    """Of normal draws it is sd/√(2n), and of their squares, whose fourth moment is 15 times Var², √(14/4n) of it."""
    draws = normals(10, 2000, 1, seed=3)
    table = diagnose(run_of(torch.cat((2.0 * draws, draws.square()), -1)), seed=0).table
    share = table["sd_error"] / table["sd"]
    expected = torch.tensor([1.0 / math.sqrt(2 * 20_000), math.sqrt(14 / (4 * 20_000))], dtype=torch.float64)
    # Of 2,000 averages, and of a tail: to a tenth.
    torch.testing.assert_close(share, expected, rtol=0.1, atol=0.0)
