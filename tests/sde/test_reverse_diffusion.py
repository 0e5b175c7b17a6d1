"""Score models in reverse: in variance time the noise is one, and schemes for additive noise keep their order."""

import math
import re
import sys
import warnings
from itertools import pairwise

import pytest
import torch

from torchsrk import Chain, ReverseDiffusion, VarianceExploding, VariancePreserving, integrate, sample
from torchsrk.brownian import BrownianPath

SCHEDULES = [VariancePreserving(), VarianceExploding(sigma_min=0.05, sigma_max=20.0)]
NAMES = ["VP", "VE"]
MEANS, VARIANCE = torch.tensor([[1.5, 0.0], [-1.5, 0.5]], dtype=torch.float64), 0.2


def mixture_score(schedule):
    """Of x_t = αx₀ + sε, x₀ from a mixture of two normals."""

    def score(x, t):
        assert t.shape == x.shape[:-1]
        tau = schedule.variance(t)
        scale = schedule.scale(tau)
        variance = (scale.square() * (VARIANCE + tau)).unsqueeze(-1)
        apart = x.unsqueeze(-2) - scale[..., None, None] * MEANS
        weights = (-apart.square().sum(-1) / (2.0 * variance)).softmax(-1)
        return -(weights.unsqueeze(-1) * apart).sum(-2) / variance

    return score


@pytest.mark.parametrize("schedule", SCHEDULES, ids=NAMES)
def test_schedules(schedule):
    time = torch.linspace(schedule.first, schedule.last, 11, dtype=torch.float64)
    tau = schedule.variance(time)
    torch.testing.assert_close(schedule.time(tau), time)
    scale = schedule.scale(tau)
    if isinstance(schedule, VariancePreserving):
        torch.testing.assert_close(scale.square() * (1.0 + tau), torch.ones_like(tau))
        # dα/dt = -½βα, by differences
        h, beta = 1e-6, schedule.beta_min + time * (schedule.beta_max - schedule.beta_min)
        ahead, behind = (schedule.scale(schedule.variance(time + sign * h)) for sign in (1, -1))
        torch.testing.assert_close((ahead - behind) / (2 * h), -0.5 * beta * scale, rtol=1e-6, atol=1e-8)
    else:
        assert scale.eq(1.0).all()
        torch.testing.assert_close(tau[[0, -1]].sqrt(), torch.tensor([0.05, 20.0]))


@pytest.mark.parametrize("schedule", SCHEDULES, ids=NAMES)
@pytest.mark.parametrize("scheme", ["em", "shark", "srk-ld"])
def test_the_data_come_back(schedule, scheme):
    """Mean, variance and weights of 5,000 draws: within 5 standard errors, and what is left of the steps, 3 %."""
    reverse, particles = ReverseDiffusion(mixture_score(schedule), schedule), 5000
    count = 150 if scheme == "em" else 50
    start = reverse.prior(particles, 2, seed=1, dtype=torch.float64)
    run = sample(reverse, start, integrator=scheme, step_sizes=reverse.step_sizes(count), seed=0)
    x = reverse.data(run.final)
    low, _ = schedule.variances
    scale = float(schedule.scale(torch.tensor(low)))
    variance = scale**2 * (VARIANCE + low + MEANS.var(0, unbiased=False))
    assert ((x.mean(0) - scale * MEANS.mean(0)).abs() < 5 * (variance / particles).sqrt() + 0.01).all()
    assert ((x.var(0) / variance - 1.0).abs() < 5 * (2 / particles) ** 0.5 + 0.03).all()
    assert abs(float(x[:, 0].gt(0).double().mean()) - 0.5) < 5 * 0.5 / particles**0.5


def test_orders():
    """Mean-square errors on one path over the last of the noise: order 1 for Euler-Maruyama, 1.5 for the others."""
    schedule = VarianceExploding(sigma_min=0.5, sigma_max=2.0)
    reverse, particles = ReverseDiffusion(mixture_score(schedule), schedule), 300
    x0 = reverse.prior(particles, 2, seed=1, dtype=torch.float64)
    ts = [0.0, reverse.duration]
    path = BrownianPath((particles, 2), num_steps=256, seed=0, t1=reverse.duration)
    solve = {"path": path}
    fine = integrate(reverse, x0, ts, integrator="srk-ld", step_size=reverse.duration / 256, **solve)[-1]
    slopes = {}
    for scheme in ("em", "shark", "srk-ld"):
        errors = [
            integrate(reverse, x0, ts, integrator=scheme, step_size=reverse.duration / count, **solve)[-1] - fine
            for count in (8, 32)
        ]
        rough, finer = (float(error.square().mean().sqrt()) for error in errors)
        slopes[scheme] = math.log(rough / finer) / math.log(4.0)
    assert 0.85 < slopes["em"] < 1.25, slopes
    assert slopes["shark"] > 1.4, slopes
    assert slopes["srk-ld"] > 1.4, slopes


def test_a_network_that_predicts_noise():
    schedule = VariancePreserving()
    score = mixture_score(schedule)

    def noise(x, t):
        tau = schedule.variance(t)
        return -(schedule.scale(tau) * tau.sqrt()).unsqueeze(-1) * score(x, t)

    x = torch.randn(7, 2, dtype=torch.float64)
    by_score, by_noise = ReverseDiffusion(score, schedule), ReverseDiffusion(noise, schedule, predicts="noise")
    for t in (0.0, 100.0, 0.9 * by_score.duration):
        torch.testing.assert_close(by_noise.drift(t, x), by_score.drift(t, x))


def test_a_trained_network():
    """Denoising score matching on N(0.5, 0.3²) in a minute's tenth: mean and spread come back roughly."""
    schedule = VariancePreserving()
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.SiLU(), torch.nn.Linear(32, 1)).double()

    def predicted(x, t):
        return network(torch.cat((x, t.unsqueeze(-1)), -1))

    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    for _ in range(600):
        data, t = 0.5 + 0.3 * torch.randn(256, 1).double(), 1e-3 + (1.0 - 1e-3) * torch.rand(256).double()
        tau = schedule.variance(t)
        scale, noise = schedule.scale(tau).unsqueeze(-1), torch.randn(256, 1).double()
        x = scale * (data + tau.sqrt().unsqueeze(-1) * noise)
        loss = (predicted(x, t) - noise).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    reverse = ReverseDiffusion(predicted, schedule, predicts="noise")
    start = reverse.prior(2000, 1, seed=1, dtype=torch.float64)
    run = sample(reverse, start, integrator="shark", step_sizes=reverse.step_sizes(40), seed=0)
    x = reverse.data(run.final)
    assert abs(float(x.mean()) - 0.5) < 0.15
    assert 0.2 < float(x.std()) < 0.45


def normal_score(schedule, variance=0.5, mean=0.0):
    """Of x_t = αx₀ + sε, x₀ from N(mean, variance)."""

    def score(x, t):
        tau = schedule.variance(t).unsqueeze(-1)
        scale = schedule.scale(tau)
        return (scale * mean - x) / (scale.square() * (variance + tau))

    return score


def as_noise(schedule, score):
    def noise(x, t):
        tau = schedule.variance(t)
        return -(schedule.scale(tau) * tau.sqrt()).unsqueeze(-1) * score(x, t)

    return noise


VP, VE = VariancePreserving(), VarianceExploding()


def few_steps(reverse, **options):
    start = reverse.prior(40, 2, seed=1, dtype=torch.float64)
    return sample(reverse, start, integrator="em", step_sizes=reverse.step_sizes(5), seed=0, **options)


@pytest.mark.parametrize(
    "reverse",
    [
        *(ReverseDiffusion(mixture_score(schedule), schedule) for schedule in (VP, VE, *SCHEDULES)),
        *(ReverseDiffusion(as_noise(s, normal_score(s)), s, predicts="noise") for s in (VP, VE)),
        ReverseDiffusion(normal_score(VE, 900.0, mean=20.0), VE),
        ReverseDiffusion(normal_score(VE, 1e-6), VE),
        ReverseDiffusion(normal_score(VP, 1e4, mean=20.0), VP),
        *(ReverseDiffusion(normal_score(s, 1.0), s) for s in map(VariancePreserving, (0.1,) * 3, (1.0, 2.0, 6.0))),
        ReverseDiffusion(normal_score(VariancePreserving(beta_max=2.0), 0.0), VariancePreserving(beta_max=2.0)),
    ],
)
def test_models_that_fit_are_let_be(reverse):
    """Data that are wide, far from 0 or a point, and a schedule that ends long before all is noise, too."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        few_steps(reverse)


@pytest.mark.parametrize(
    ("model", "schedule", "predicts", "message"),
    [
        (as_noise(VP, normal_score(VP)), VP, "score", r'of -1\. predicts="noise" would make it 1;'),
        (as_noise(VE, normal_score(VE)), VE, "score", r'of -50\. predicts="noise" would make it 1;'),
        (normal_score(VE), VE, "noise", r'of -0\.02\. predicts="score" would make it 1;'),
        (normal_score(VP), VP, "noise", r'predicts="score" would make it 1;'),
        (lambda x, t: -normal_score(VP)(x, t), VP, "score", "the other sign would make it 1;"),
        (lambda x, t: -normal_score(VE)(x, t), VE, "score", r"of -1\. the other sign would make it 1;"),
        (normal_score(VE), VP, "score", "trained with another schedule"),
        (normal_score(VP), VE, "score", "trained with another schedule"),
        (lambda x, t: normal_score(VE)(x, 1.0 - t), VE, "score", "takes another time than the schedule's"),
        (lambda x, t: normal_score(VP, 0.1)(x, 1.0 - t), VP, "score", "takes another time than the schedule's"),
    ],
)
def test_a_model_that_does_not_fit_is_told(model, schedule, predicts, message):
    reverse = ReverseDiffusion(model, schedule, predicts=predicts)
    with pytest.warns(RuntimeWarning, match=message) as told:
        few_steps(reverse)
    assert told[0].filename == few_steps.__code__.co_filename


def test_a_start_in_the_models_coordinates_is_told():
    reverse = ReverseDiffusion(normal_score(VP), VP)
    sizes = reverse.step_sizes(5)
    with pytest.warns(RuntimeWarning, match=r"x0 has a root mean square of .*, and the noise of the last time alone"):
        sample(reverse, torch.randn(500, 2), integrator="em", step_sizes=sizes, seed=0)
    with pytest.warns(RuntimeWarning, match="start from reverse.prior"):
        integrate(reverse, torch.randn(500, 2), [0.0, reverse.duration], integrator="em", step_sizes=sizes, seed=0)


@pytest.mark.parametrize("schedule", [VP, VE])
@pytest.mark.parametrize("missing", [1, 15])
def test_a_run_that_ends_early(schedule, missing):
    """The last of 48 steps is shorter than a millionth of a percent of them all, and leaves half of the noise."""
    reverse = ReverseDiffusion(normal_score(schedule), schedule)
    start, sizes = reverse.prior(40, 2, seed=1), reverse.step_sizes(48)
    for steps in ({"step_sizes": sizes[:-missing]}, {"step_sizes": sizes, "num_steps": 48 - missing}):
        with pytest.warns(RuntimeWarning, match="this run ends at .*, and the data are reached at .* is left"):
            run = sample(reverse, start, integrator="em", seed=0, **steps)
        with pytest.raises(ValueError, match=r"the data are reached at .* scales states of any time"):
            reverse.data(run)
    rest = {"step_sizes": sizes, "first_step": run.step, "state": run.state}
    whole = sample(reverse, run.final, integrator="em", seed=0, **rest)
    assert math.isclose(whole.time, reverse.duration)
    assert reverse.data(whole).equal(reverse.data(whole.final))
    with pytest.warns(RuntimeWarning, match="this run ends at 1,"):
        integrate(reverse, start, [0.0, 1.0], integrator="em", step_size=0.5, seed=0)


@pytest.mark.parametrize("compile", [False, True])
def test_a_run_that_goes_beyond_the_data(compile):
    """Also where the last step begins before them, and where no step is looked at again, as in a compiled run."""
    reverse = ReverseDiffusion(normal_score(VE), VE)
    start, sizes = reverse.prior(40, 2, seed=1), reverse.step_sizes(48)
    with pytest.raises(ValueError, match=r"the data are reached at .* add up to reverse.duration"):
        sample(reverse, start, integrator="em", seed=0, step_sizes=[*sizes, sizes[0]], compile=compile)
    with pytest.raises(ValueError, match=r"the data are reached at .* add up to reverse.duration"):
        integrate(reverse, start, [0.0, 3000.0], integrator="em", seed=0, step_size=1000.0)


def test_a_chain_may_stop_anywhere():
    reverse = ReverseDiffusion(normal_score(VE), VE)
    chain = Chain(reverse, reverse.prior(40, 2, seed=1), integrator="em", step_size=reverse.duration / 8, seed=0)
    chain.advance(4)
    assert reverse.data(chain.advance(4)).shape == (40, 2)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="errors take notes from 3.11 on")
def test_a_score_of_exchanged_arguments():
    def exchanged(t, x):
        return torch.cat((x, t.unsqueeze(-1)), -1) @ torch.ones(3, 2, dtype=torch.float64)

    x = torch.ones(5, 2, dtype=torch.float64)
    for score in (exchanged, lambda x, t: t):
        with pytest.raises((ValueError, RuntimeError), match=r"shape|[Ss]ize|dim") as raised:
            ReverseDiffusion(score, VP).drift(0.0, x)
        assert re.search(
            r"score\(x, t\), in this order: x \(5, 2\) is \(\.\.\., dim\), and t \(5,\)", raised.value.__notes__[0]
        )


def test_step_sizes():
    reverse = ReverseDiffusion(mixture_score(SCHEDULES[0]), SCHEDULES[0])
    for rho in (1.0, 7.0, 100.0):
        sizes = reverse.step_sizes(30, rho=rho)
        assert len(sizes) == 30
        assert math.isclose(math.fsum(sizes), reverse.duration, rel_tol=1e-12)
        assert all(a > b > 0.0 for a, b in pairwise(sizes))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: ReverseDiffusion(3, SCHEDULES[0]), TypeError, "score is a callable"),
        (lambda: ReverseDiffusion(torch.sin, "vp"), TypeError, "schedule is a VariancePreserving"),
        (lambda: ReverseDiffusion(torch.sin, SCHEDULES[0], predicts="x"), ValueError, '"score" or "noise"'),
        (lambda: VariancePreserving(beta_min=0.0), ValueError, "0 < beta_min"),
        (lambda: VarianceExploding(sigma_max=0.001), ValueError, "sigma_min < sigma_max"),
        (lambda: ReverseDiffusion(torch.sin, SCHEDULES[0]).step_sizes(0), ValueError, "count is a positive integer"),
        (lambda: ReverseDiffusion(lambda x, t: t, SCHEDULES[0]).drift(0.0, torch.ones(2, 1)), ValueError, "score must"),
        (
            lambda: ReverseDiffusion(torch.sin, SCHEDULES[1]).drift(401.0, torch.ones(2, 1)),
            ValueError,
            "are reached at .* step_sizes=reverse.step_sizes",
        ),
        (lambda: ReverseDiffusion(torch.sin, VariancePreserving), TypeError, r"write VariancePreserving\(\)"),
        (lambda: ReverseDiffusion(torch.sin, SCHEDULES[0]).prior(-1, 2, seed=0), ValueError, "particles is a positive"),
        (lambda: ReverseDiffusion(torch.sin, SCHEDULES[0]).prior(10, 2.0, seed=0), ValueError, "dim is a positive int"),
        (lambda: ReverseDiffusion(torch.sin, SCHEDULES[0]).data([1.0]), TypeError, "a run of this diffusion, or its"),
        (lambda: VariancePreserving(last=1000), ValueError, "and not numbers of steps"),
        (lambda: VarianceExploding(last=1000), ValueError, "and not numbers of steps"),
    ],
)
def test_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()
