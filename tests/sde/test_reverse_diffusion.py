"""Score models in reverse: in variance time the noise is one, and schemes for additive noise keep their order."""

import math
from itertools import pairwise

import pytest
import torch

from torchsrk import ReverseDiffusion, VarianceExploding, VariancePreserving, integrate, sample
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
            "are reached at",
        ),
    ],
)
def test_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()
