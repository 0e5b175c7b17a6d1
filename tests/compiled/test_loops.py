"""Long series: loops that Python has unrolled are loops in C again, with the eager run's numbers."""

from itertools import cycle

import pytest
import torch

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


ENERGIES = {f.__name__: f for f in (garch, second_order, level, errors, matrices, path)}


# Side by side, and one by one: by turns a single one, and some.
CASES = [(name, SIDE_BY_SIDE) for name in ENERGIES] + list(zip(ENERGIES, cycle((1, ONE_BY_ONE))))


@pytest.mark.parametrize(("name", "particles"), CASES)
def test_series(name, particles, monkeypatch):
    codes = []
    programs._PROGRAMS.clear()
    lower = lowering.lower
    monkeypatch.setattr(programs, "lower", lambda *given, **more: codes.append(lower(*given, **more)) or codes[-1])
    sde = Langevin(FunctionPotential(lambda x: 0.1 * ENERGIES[name](x) + x.square().sum(-1)))
    assert_same(
        *both(sde, 0.5 * start(particles, STEPS - 10 if name == "path" else 3), "em", step_size=1e-3, num_steps=5)
    )
    assert codes[0].source.count("it++") >= 2  # there and back
    assert len(codes[0].source) < 60_000


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
