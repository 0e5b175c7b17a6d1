"""From a density to draws, without a number."""

import math
import warnings

import pytest
import torch
from torch.distributions import constraints

from tests.tuning.test_metric import gaussian
from torchsrk import Run, checkpoints
from torchsrk.potentials import FunctionPotential, UnconstrainedPotential
from torchsrk.tuning import Tuning, tune

DRAWS = 10
pytestmark = pytest.mark.filterwarnings("ignore:draws of this density should not be trusted:RuntimeWarning")


def drawn(plan):
    return plan.sample(DRAWS).trajectory.flatten(0, 1)


def assert_moments(draws, mean, sd, *, sds=0.05, means=0.1):
    """The bar for real posteriors: standard deviations within 5 %, means within 0.1 of them."""
    off = (draws.mean(0) - mean).abs() / sd
    ratio = draws.std(0) / sd
    assert float(off.max()) < means
    assert float((ratio - 1.0).abs().max()) < sds


def test_a_gaussian_of_condition_a_million():
    precision, mean = gaussian(20, 1e6)
    plan = tune(
        lambda x: -0.5 * ((x - mean) @ precision * (x - mean)).sum(-1), dim=20, seed=1, start=torch.zeros(20).double()
    )
    sd = torch.linalg.inv(precision).diagonal().sqrt()
    assert_moments(drawn(plan), mean, sd)
    assert plan.report.trusted, plan.report
    assert sum(plan.report.gradients.values()) + DRAWS * plan.length < 250


def regression(x):
    """Heights of 60 children on their ages in months: coefficients of a raw covariate, and log σ. Flat priors."""
    ages = torch.linspace(100.0, 160.0, 60, dtype=torch.float64)
    heights = 75.0 + 0.5 * ages + 4.0 * (7.0 * ages).sin()
    residuals = heights - x[..., :1] - x[..., 1:2] * ages
    return -0.5 * residuals.square().sum(-1) * torch.exp(-2.0 * x[..., 2]) - 59.0 * x[..., 2]


def test_data_in_double_precision_and_no_start():
    """A product of points in float32 with it would be an error; an error of the density's own stays one."""
    precision, mean = gaussian(3, 10.0)
    plan = tune(lambda x: -0.5 * (((x - mean) @ precision) * (x - mean)).sum(-1), dim=3, particles=64, seed=0)
    assert plan.state.dtype == torch.float64
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        tune(lambda x: (x @ torch.eye(7)).sum(-1), dim=3, particles=64, seed=0)


def test_a_regression_on_a_raw_covariate_from_a_start_that_knows_nothing():
    """Its coefficients are 75 and 0.5, with a correlation of 0.99; exact moments of the Student-t posterior."""
    plan = tune(regression, dim=3, seed=2)
    ages = torch.linspace(100.0, 160.0, 60, dtype=torch.float64)
    design = torch.stack((torch.ones_like(ages), ages), -1)
    heights = 75.0 + 0.5 * ages + 4.0 * (7.0 * ages).sin()
    fit = torch.linalg.lstsq(design, heights).solution
    rss, freedom = (heights - design @ fit).square().sum(), 57.0
    variance = rss / (freedom - 2.0) * torch.linalg.inv(design.mT @ design).diagonal()
    assert_moments(drawn(plan)[:, :2], fit, variance.sqrt())
    assert plan.report.trusted, plan.report


def banana(x):
    return -0.5 * x[..., 0].square() - 2.0 * (x[..., 1] - x[..., 0].square()).square()


def funnel(x):
    return -x[..., 0].square() / 18.0 - 0.5 * x[..., 1:].square().sum(-1) * torch.exp(-x[..., 0]) - 4.5 * x[..., 0]


def two_modes(x):
    apart = torch.full((5,), 4.0, dtype=x.dtype)
    near, far = -0.5 * (x - apart).square().sum(-1), -0.5 * (x + apart).square().sum(-1)
    return torch.logaddexp(math.log(0.2) + near, math.log(0.8) + far)


def student(x):
    return -2.0 * torch.log1p(x.square() / 3.0).sum(-1)


def test_a_banana_is_right_or_says_so():
    plan = tune(banana, dim=2, seed=0)
    assert_moments(drawn(plan), torch.tensor([0.0, 1.0]), torch.tensor([1.0, math.sqrt(2.25)]))


@pytest.mark.parametrize(
    ("density", "dim", "trouble"),
    [(two_modes, 5, "modes that they do not cross"), (student, 5, "heavi"), (funnel, 10, "remember|capped|heavi")],
)
def test_what_one_metric_can_not_serve_is_named(density, dim, trouble):
    with pytest.warns(RuntimeWarning, match=f"should not be trusted.*({trouble})"):
        plan = tune(density, dim=dim, particles=400, seed=0)
    assert not plan.report.trusted
    assert "should not be trusted" in str(plan.report)


def test_an_edge_through_a_bijection_is_right():
    """An exponential law, and one of a normal's far tail, both on x > 0."""
    positive = constraints.independent(constraints.positive, 1)

    def log_density(x):
        return -x[..., 0] - 0.5 * (x[..., 1] + 3.0).square()

    potential = UnconstrainedPotential(log_density, (2,), positive)
    plan = tune(potential, seed=0)
    hazard = math.exp(-4.5) / math.sqrt(2.0 * math.pi) / (0.5 * math.erfc(3.0 / math.sqrt(2.0)))
    mean, variance = hazard - 3.0, 1.0 + 3.0 * hazard - hazard**2
    assert_moments(
        potential.constrain(drawn(plan)), torch.tensor([1.0, mean]), torch.tensor([1.0, math.sqrt(variance)])
    )


def test_far_starts_and_half_a_space_of_nan():
    def log_density(x):
        return torch.where(x[..., 0] > -1.0, -0.5 * (x - 5.0).square().sum(-1), math.nan)

    one, five = torch.ones(2), torch.full((2,), 5.0)
    for start in (None, torch.full((2,), 50.0)):
        plan = tune(log_density, dim=2, seed=0, start=start)
        assert_moments(drawn(plan), five, one)
        assert plan.report.trusted, plan.report


@pytest.mark.parametrize(
    ("log_density", "message"),
    [
        (lambda x: torch.zeros_like(x[..., 0]), "does not depend on coordinate 0, 1"),
        (lambda x: -0.5 * x[..., 0].square(), "does not depend on coordinate 1"),
        (lambda x: x.sum(-1) * math.nan, "at all of 100 starting points"),
        (lambda x: -x.exp().sum(-1), "improper"),
        (lambda x: x, "one number a point"),
    ],
)
def test_densities_with_nothing_to_sample(log_density, message):
    with pytest.raises(ValueError, match=message):
        tune(log_density, dim=2, seed=0, particles=100)


def test_an_edge_without_a_bijection_is_named():
    def log_density(x):
        return torch.where(x[..., 0] > 0.0, -0.5 * x.square().sum(-1), -math.inf)

    with pytest.warns(RuntimeWarning, match="it has an edge"):
        tune(log_density, dim=2, seed=0, particles=200)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim": None}, "dimension"),
        ({"dim": 0}, "positive integer"),
        ({"particles": 3}, "at least 32"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"seed": -1}, "seed"),
        ({"start": torch.zeros(3)}, r"\(1000, 2\) or \(2,\)"),
        ({"start": torch.full((2,), math.nan)}, "infinite or NaN"),
        ({"start": torch.zeros(2, dtype=torch.long)}, "floating"),
        ({"integrator": "nonsense"}, "unknown integrator"),
    ],
)
def test_bad_input(options, message):
    with pytest.raises(ValueError, match=message):
        tune(lambda x: -x.square().sum(-1), **{"dim": 2, "seed": 0, **options})


def test_the_same_bits_on_any_number_of_threads_and_from_a_saved_plan(tmp_path):
    precision, mean = gaussian(3, 10.0)
    potential = FunctionPotential(lambda x: 0.5 * ((x - mean) @ precision * (x - mean)).sum(-1), dim=3)
    before, plans = torch.get_num_threads(), []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        plans.append(tune(potential, seed=5, particles=300))
    torch.set_num_threads(before)
    assert torch.equal(plans[0].state, plans[1].state)
    checkpoints.save_checkpoint(tmp_path / "plan", plans[0].state_dict())
    again = Tuning.restored(potential, checkpoints.load_checkpoint(tmp_path / "plan"))
    assert torch.equal(again.sample(2).trajectory, plans[1].sample(2).trajectory)
    assert str(again.report) == str(plans[1].report)
    first = again.sample(2)
    assert torch.equal(again.sample(1, after=first).trajectory[0], again.sample(3).trajectory[2])


def test_an_adjusted_plan_has_no_bias_and_tells_its_acceptance():
    plan = tune(lambda x: -0.25 * x.pow(4).sum(-1), dim=3, seed=0, adjust=True)
    sd = math.sqrt(2.0 * math.gamma(0.75) / math.gamma(0.25))
    assert_moments(drawn(plan), torch.zeros(3), torch.full((3,), sd))
    assert plan.report.acceptance > 0.8


@pytest.mark.parametrize("scheme", ["lm", "ubu", "obabo", "shark"])
def test_other_schemes(scheme):
    precision, mean = gaussian(4, 100.0)

    def log_density(x):
        return -0.5 * ((x - mean) @ precision * (x - mean)).sum(-1)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan = tune(log_density, dim=4, seed=0, integrator=scheme)
    sd = torch.linalg.inv(precision).diagonal().sqrt()
    # 5 % of bias is allowed to these, and what 1,000 particles leave of noise comes on top.
    assert_moments(drawn(plan), mean, sd, sds=0.08)
    assert plan.report.bound <= 0.05 * (1.0 + 1e-9)


def test_a_plateau_of_a_hierarchical_model_is_not_jumped_onto():
    """At first the best that 40 wrong effects can do is not to count, log τ → -∞: a plateau 60 above the bulk."""
    generator = torch.Generator().manual_seed(0)
    y = 1.0 + 0.5 * torch.randn(40, 1, generator=generator) + 0.3 * torch.randn(40, 6, generator=generator)

    def log_density(x):
        mu, log_tau, log_sigma, eta = x[..., 0:1], x[..., 1:2], x[..., 2:3], x[..., 3:]
        off = (y - (mu + log_tau.exp() * eta).unsqueeze(-1)).square().sum((-1, -2))
        prior = -0.5 * (mu.square() + log_tau.exp().square() + log_sigma.exp().square()).squeeze(-1)
        prior = prior - 0.5 * eta.square().sum(-1) + (log_tau + log_sigma).squeeze(-1)
        return prior - 0.5 * off * (-2.0 * log_sigma.squeeze(-1)).exp() - 240.0 * log_sigma.squeeze(-1)

    plan = tune(log_density, dim=43, seed=0)
    assert plan.report.trusted, plan.report
    assert float(drawn(plan)[:, 1].min()) > -2.0
    assert sum(plan.report.gradients.values()) < 400


def test_a_matrix_that_is_not_definite_costs_one_particle():
    """The determinant of [[1, r], [r, 1]], as a user writes it: torch raises for all particles where one has r > 1."""

    def log_density(x):
        r = x[..., 0]
        matrix = torch.stack((torch.ones_like(r), r, r, torch.ones_like(r)), -1).reshape(*r.shape, 2, 2)
        return torch.linalg.cholesky(matrix).diagonal(dim1=-2, dim2=-1).log().sum(-1) - 50.0 * r.square()

    plan = tune(log_density, dim=1, seed=0, particles=200)
    assert abs(float(drawn(plan).std()) - 0.0995) < 0.008


def test_float32_finds_a_badly_scaled_target():
    scales = torch.tensor([1.0, 1e2, 1e-3], dtype=torch.float32)
    start = torch.zeros(3, dtype=torch.float32)
    plan = tune(lambda x: -0.5 * (x / scales).square().sum(-1), dim=3, seed=0, start=start)
    assert plan.state.dtype == torch.float32
    assert_moments(drawn(plan), torch.zeros(3), scales)


def much_data(seed, dtype=torch.float64):
    """Of much data, whose energies hide in single precision what another set of them makes of the density."""
    generator = torch.Generator().manual_seed(seed)
    design = torch.randn(4000, 2, generator=generator, dtype=torch.float64)
    seen = (design.sum(-1) + torch.randn(4000, generator=generator, dtype=torch.float64)).to(dtype)
    design = design.to(dtype)
    return FunctionPotential(lambda x: 0.5 * (seen - x @ design.T).square().sum(-1) + 1e5, dim=2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_plan_of_another_density_is_refused(dtype, tmp_path):
    start = torch.zeros(2, dtype=dtype)
    plan = tune(much_data(0, dtype), seed=0, particles=100, start=start)
    checkpoints.save_checkpoint(tmp_path / "plan", plan.state_dict())
    state = checkpoints.load_checkpoint(tmp_path / "plan")
    Tuning.restored(much_data(0, dtype), state)
    with pytest.raises(ValueError, match="tuned for another density"):
        Tuning.restored(much_data(1, dtype), state)
    with pytest.warns(RuntimeWarning, match="can't be told"):
        Tuning.restored(much_data(1, dtype), {name: part for name, part in state.items() if name != "seen"})


def test_a_plan_goes_on_from_its_own_runs_alone():
    plan, other = (tune(much_data(0), seed=seed, particles=100) for seed in (0, 1))
    run = plan.sample(3)
    assert plan.sample(1, after=Run.restored(run.state_dict())).step == run.step + plan.length
    with pytest.raises(ValueError, match="a run of another plan"):
        other.sample(1, after=run)
    with pytest.raises(TypeError, match=r"got Tensor\. A trajectory has positions alone"):
        plan.sample(1, after=run.trajectory)
    with pytest.raises(ValueError, match=r"give a run that plan\.sample made"):
        plan.sample(1, after=Run(run.final, None, run.state[:, :1], 0))
