"""Long series: loops that Python has unrolled are loops in C again, with the eager run's numbers."""

from itertools import cycle

import pytest
import torch
from torch import distributions as D

from tests.compiled.test_same_numbers import ONE_BY_ONE, SIDE_BY_SIDE, assert_same, both, start
from torchsrk import Langevin, sample
from torchsrk.compiled import lowering, programs
from torchsrk.potentials import FunctionPotential

STEPS = 100
SERIES = torch.randn(STEPS, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
NUMBERS = SERIES.tolist()


def garch(x):
    omega, alpha, beta = (x[..., 0] - 1).exp(), torch.sigmoid(x[..., 1] - 1), torch.sigmoid(x[..., 2] - 1)
    variance, loss = omega, 0.0
    for t in range(STEPS):
        loss = loss + variance.log() + SERIES[t] ** 2 / variance
        variance = omega + alpha * SERIES[t] ** 2 + beta * variance
    return 0.5 * loss


def second_order(x):
    """Two rounds back, numbers of Python, and a sum in place."""
    a, b = 0.3 * x[..., 0].tanh(), 0.3 * x[..., 1].tanh()
    before, last, loss = x[..., 2], x[..., 2] * 0.5, torch.zeros_like(a)
    for value in NUMBERS:
        before, last = last, a * last + b * before + 0.1 * value
        loss += (value - last).square()
    return loss


def level(x):
    q, r = x[..., 0].exp(), x[..., 1].exp()
    mean, variance, loss = torch.zeros_like(q), torch.ones_like(q), torch.zeros_like(q)
    for value in SERIES.unbind(0):
        variance = variance + q
        total = variance + r
        gain, off = variance / total, value - mean
        loss = loss + 0.5 * (total.log() + off.square() / total)
        mean, variance = mean + gain * off, (1 - gain) * variance
    return loss


def errors(x):
    """A stack of what all rounds give, and conditions that the derivative reads."""
    error, kept = torch.zeros_like(x[..., 0]), []
    for t in range(STEPS):
        error = SERIES[t] - x[..., 0] - x[..., 1].tanh() * torch.where(error > 0, error, 0.5 * error)
        kept.append(error)
    return torch.stack(kept, -1).square().sum(-1) * x[..., 2].exp()


def matrices(x):
    """A state of two numbers, and its covariance."""
    turn = 0.5 * torch.eye(2, dtype=x.dtype) + 0.1 * x[..., :2].tanh().unsqueeze(-1)
    mean, loss = torch.ones(2, 1, dtype=x.dtype), 0.0
    for t in range(STEPS):
        mean = turn @ mean + 0.1 * x[..., 2, None, None]
        loss = loss + (mean.squeeze(-1) - SERIES[t]).square().sum(-1)
    return loss


def path(x):
    """Every round reads an entry of the state, and the last ones two."""
    level, loss = x[..., 0], 0.0
    for t in range(1, x.shape[-1]):
        level = 0.5 * level + 0.1 * x[..., t]
        loss = loss + (SERIES[t] - level).square() + 0.1 * x[..., t - 1].cos()
    return loss


def hidden(x):
    """Three hidden states, by the forward algorithm."""
    means, turns = x[..., :3], x[..., 3:].unflatten(-1, (3, 3)).log_softmax(-1)
    alpha = D.Normal(means, 1.0).log_prob(SERIES[0])
    for t in range(1, STEPS):
        alpha = torch.logsumexp(alpha.unsqueeze(-1) + turns, -2) + D.Normal(means, 1.0).log_prob(SERIES[t])
    return -torch.logsumexp(alpha, -1)


def volatility(x):
    """A latent state a round, which this round and the next one read."""
    mean, pull, scale, states = x[..., 0], x[..., 1].tanh(), x[..., 2].exp(), x[..., 3:]
    log_density = D.Normal(mean, scale).log_prob(states[..., 0])
    for t in range(STEPS):
        log_density = log_density + D.Normal(0.0, (states[..., t] / 2).exp()).log_prob(SERIES[t])
        if t:
            expected = mean + pull * (states[..., t - 1] - mean)
            log_density = log_density + D.Normal(expected, scale).log_prob(states[..., t])
    return -log_density


def heavy_tails(x):
    omega, falls, carried = (x[..., 0] - 1).exp(), torch.sigmoid(x[..., 1] - 1), torch.sigmoid(x[..., 2])
    variance, log_density = omega, 0.0
    for value in SERIES:
        log_density = log_density + D.StudentT(2.0 + x[..., 3].exp(), x[..., 4], variance.sqrt()).log_prob(value)
        error = value - x[..., 4]
        variance = omega + falls * (error < 0) * error**2 + carried * variance
    return -log_density


def filtered(x, by_factor=True):
    """A Kalman filter of two numbers, one of which is seen."""
    turn = torch.tensor([[1.0, 1.0], [0.0, 0.9]], dtype=x.dtype) + 0.1 * x[..., :1, None]
    seen, noise = torch.tensor([[1.0, 0.0]], dtype=x.dtype), torch.diag_embed(x[..., :2].exp())
    mean, cov, loss = torch.zeros_like(x[..., :2, None]), torch.eye(2, dtype=x.dtype).expand_as(noise), 0.0
    for value in SERIES[: STEPS // 2]:
        mean, cov = turn @ mean, turn @ cov @ turn.mT + noise
        spread = seen @ cov @ seen.mT + x[..., 2, None, None].exp()
        off = value - seen @ mean
        if by_factor:
            factor = torch.linalg.cholesky(spread)
            loss = loss + factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
            loss = loss + 0.5 * torch.linalg.solve_triangular(factor, off, upper=False).square().sum((-2, -1))
            gain = torch.cholesky_solve(seen @ cov, factor).mT
        else:
            inverse = torch.linalg.inv(spread)
            loss = loss + 0.5 * (torch.logdet(spread) + (off.mT @ inverse @ off)[..., 0, 0])
            gain = cov @ seen.mT @ inverse
        mean, cov = mean + gain @ off, cov - gain @ seen @ cov
    return loss


def filtered_by_inverse(x):
    return filtered(x, by_factor=False)


SERIES_OF_NUMBERS = (garch, second_order, level, errors, matrices, path)
LONG_ROUNDS = (hidden, volatility, heavy_tails, filtered, filtered_by_inverse)
ENERGIES = {f.__name__: f for f in (*SERIES_OF_NUMBERS, *LONG_ROUNDS)}
WIDTHS = {"path": STEPS - 10, "hidden": 12, "volatility": STEPS + 3, "heavy_tails": 5}


# Side by side, and one by one: by turns a single one, and some.
ALONE = [f.__name__ for f in (*SERIES_OF_NUMBERS, hidden, filtered)]
CASES = [(name, SIDE_BY_SIDE) for name in ENERGIES] + list(zip(ALONE, cycle((1, ONE_BY_ONE))))


@pytest.mark.parametrize(("name", "particles"), CASES)
def test_series(name, particles, monkeypatch):
    codes = []
    programs._PROGRAMS.clear()
    lower = lowering.lower
    monkeypatch.setattr(programs, "lower", lambda *given, **more: codes.append(lower(*given, **more)) or codes[-1])
    sde = Langevin(FunctionPotential(lambda x: 0.1 * ENERGIES[name](x) + x.square().sum(-1)))
    assert_same(*both(sde, 0.5 * start(particles, WIDTHS.get(name, 3)), "em", step_size=1e-3, num_steps=5))
    assert codes[0].source.count("it++") >= 2  # there and back
    assert len(codes[0].source) < 60_000


@pytest.mark.parametrize("energy", [hidden, volatility], ids=lambda energy: energy.__name__)
def test_a_state_is_chosen_once_for_all_conditions(energy, monkeypatch):
    """Where every round's conditions chose anew between the state and NaN, they took most of a step."""
    traces, width = [], WIDTHS[energy.__name__]
    programs._PROGRAMS.clear()
    lower = lowering.lower
    monkeypatch.setattr(programs, "lower", lambda traced, **more: traces.append(traced) or lower(traced, **more))
    sde = Langevin(FunctionPotential(energy))
    sample(sde, 0.1 * start(SIDE_BY_SIDE, width), integrator="em", step_size=1e-3, num_steps=2, seed=0, compile=True)
    state = torch.Size((traces[0].particles, width))
    chosen = [node for node in traces[0].module.graph.nodes if "where" in str(node.target)]
    assert sum(node.meta["val"].shape == state for node in chosen) < 10


@pytest.mark.parametrize("at", [0, STEPS // 2, STEPS - 1])
def test_a_condition_of_any_round_ends_a_run(at):
    """The rate is less than 0 in one round alone, once the state has gone far enough."""
    shifts = torch.zeros(STEPS, dtype=torch.float64)
    shifts[at] = 1.0

    def energy(x):
        loss = 0.5 * (x - 4.0).square().sum(-1)
        for t in range(STEPS):
            loss = loss - 1e-3 * D.Exponential(1.0 - shifts[t] * x[..., 1]).log_prob(SERIES[t].abs())
        return loss

    sde, x0 = Langevin(FunctionPotential(energy)), torch.zeros(6, 2, dtype=torch.float64)
    for compiled in (False, True):
        with pytest.raises(ValueError, match="to satisfy the constraint"):
            sample(sde, x0, integrator="em", step_size=0.01, num_steps=100, seed=0, compile=compiled)


def test_a_series_that_looks_at_values_is_eager():
    def energy(x):
        loss = x.square().sum(-1)
        for t in range(2 * STEPS):
            loss = loss + 0.01 * (x[..., 0] - SERIES[t % STEPS]).square() * (1.0 if x.sum() > -1e9 else 2.0)
        return loss

    sde = Langevin(FunctionPotential(energy))
    with pytest.warns(RuntimeWarning, match="depends on values of tensors"):
        sample(sde, start(SIDE_BY_SIDE, 3), integrator="em", step_size=1e-3, num_steps=2, seed=0, compile=True)


def test_a_series_that_depends_on_the_number_of_particles_is_eager():
    def energy(x):
        loss = x.square().sum(-1)
        for t in range(2 * STEPS):
            loss = loss + 0.01 * (x[..., 0] - SERIES[t % STEPS]).square() / len(x)
        return loss

    sde = Langevin(FunctionPotential(energy))
    with pytest.warns(RuntimeWarning, match="depends on the number of particles"):
        sample(sde, start(SIDE_BY_SIDE, 3), integrator="em", step_size=1e-3, num_steps=2, seed=0, compile=True)
