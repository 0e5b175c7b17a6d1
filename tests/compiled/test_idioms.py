"""What users write that takes a way of its own through the compiler."""

import logging
import random

import pytest
import torch
from torch import distributions as D
from torch.nn import functional as F

from torchsrk import Langevin, sample
from torchsrk.compiled.decomposed import _strided
from torchsrk.potentials import FunctionPotential

OPTIONS = {"integrator": "srk-ld", "step_size": 0.01, "num_steps": 3, "seed": 5}
DATA = torch.linspace(-1.0, 1.5, 40, dtype=torch.float64).sin() + 0.3
LOG = logging.getLogger("density")


def quadratic(x):
    return 0.5 * x.square().sum(-1)


def series_written_in_place(x):
    data = DATA.to(x.dtype)
    level = torch.zeros(*x.shape[:-1], len(data), dtype=x.dtype)
    for step in range(1, len(data)):
        level[..., step] = 0.1 * x[..., 0] * data[step - 1].abs() + torch.tanh(x[..., 1]) * level[..., step - 1].clone()
    return 0.5 * (level + data.square() * torch.exp(-level)).sum(-1) + quadratic(x)


def matrices_written_in_place(x):
    factor = torch.zeros(*x.shape[:-1], 2, 2, dtype=x.dtype)
    for row in range(2):
        for column in range(row + 1):
            factor[..., row, column] = x[..., row + column] + 2.0 * (row == column)
    return (factor @ factor.mT).square().sum((-1, -2)) + quadratic(x)


def volatility_that_starts_at_the_data(x):
    data = DATA.to(x.dtype)
    variance, total = torch.full_like(x[..., 0], float(data.var())), quadratic(x)
    for step in range(1, len(data)):
        variance = x[..., 1].exp() + 0.3 * data[step - 1].square() + torch.sigmoid(x[..., 2]) * variance
        total = total + 0.5 * (variance.log() + data[step].square() / variance)
    return total


def series_with_missing_entries(x):
    data, missing = DATA.to(x.dtype), DATA > 1.2
    level, total = x[..., 0], quadratic(x)
    for step in range(len(data)):
        if not missing[step]:
            total = total + (data[step] - level).square()
            level = 0.9 * level + 0.1 * data[step]
    return total


def correlations(x):
    transform = D.CorrCholeskyTransform()
    factor = transform(x)
    return (
        quadratic(x)
        - D.LKJCholesky(3, torch.tensor(2.0, dtype=x.dtype)).log_prob(factor)
        - transform.log_abs_det_jacobian(x, factor)
    )


def bins_counted(x):
    edges = torch.tensor([-1.0, 0.0, 1.0], dtype=x.dtype)
    heights = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=x.dtype)
    inside = x.clamp(-0.9, 2.0)
    place = (inside.unsqueeze(-1) >= edges).sum(-1) - 1
    return (heights[place] * inside).square().sum(-1) + quadratic(x)


def continuous_bernoulli(x):
    return quadratic(x) - D.ContinuousBernoulli(logits=x).log_prob(torch.full((3,), 0.3, dtype=x.dtype)).sum(-1)


def either_of_two_conditions(x):
    return torch.where(torch.maximum(x > 1.0, x < -1.0), x.abs(), 0.5 * x.square()).sum(-1) + quadratic(x)


def logging_density(x):
    LOG.debug("a density")
    return F.softplus(x).sum(-1) + quadratic(x)


@pytest.mark.parametrize(
    "energy",
    [
        series_written_in_place,
        matrices_written_in_place,
        volatility_that_starts_at_the_data,
        series_with_missing_entries,
        correlations,
        bins_counted,
        continuous_bernoulli,
        either_of_two_conditions,
        logging_density,
    ],
    ids=lambda energy: energy.__name__,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.filterwarnings("error:compile=True. this run is eager:RuntimeWarning")
def test_compiles_to_the_same_numbers(energy, dtype):
    sde, x0 = Langevin(FunctionPotential(energy)), torch.linspace(-1.5, 1.5, 21, dtype=dtype).view(7, 3)
    found, eager = (sample(sde, x0, **OPTIONS, **how).final for how in ({"compile": True}, {}))
    torch.testing.assert_close(found, eager, rtol=2e3 * torch.finfo(dtype).eps, atol=2e3 * torch.finfo(dtype).eps)


def test_a_part_by_strides_is_the_one_by_indices():
    rng, memory, found = random.Random(0), torch.arange(200.0), 0
    for _ in range(3000):
        shape = [rng.choice((1, 2, 3, 5)) for _ in range(rng.randint(1, 3))]
        whole = memory[7:].as_strided(shape, torch.empty(shape).stride())
        part = whole
        for _ in range(rng.randint(0, min(3, whole.ndim))):
            dim = rng.randrange(part.ndim) if part.ndim else 0
            if part.ndim and rng.random() < 0.5:
                part = part.select(dim, rng.randrange(part.shape[dim]))
            elif part.ndim:
                part = part.narrow(dim, 0, rng.randint(1, part.shape[dim]))
        for size, stride, offset in (
            (part.shape, part.stride(), part.storage_offset()),
            ([rng.randint(1, 4) for _ in range(2)], [rng.randint(0, 8) for _ in range(2)], rng.randint(0, 30)),
        ):
            by_indices = _strided(whole, size, stride, offset)
            if by_indices is not NotImplemented:
                found += 1
                assert torch.equal(by_indices, torch.as_strided(whole, size, stride, offset))
    assert found > 2500


def test_the_reason_is_that_of_the_way_that_came_further():
    """Where a step that was traced by running it has no C form, torch's own trace may end sooner."""

    def energy(x):
        factor = D.CorrCholeskyTransform()(x)
        return quadratic(x) - D.LKJCholesky(3, torch.tensor(2.0, dtype=torch.float32)).log_prob(factor)

    x0 = torch.linspace(-1.5, 1.5, 21, dtype=torch.float64).view(7, 3)
    with pytest.warns(RuntimeWarning, match="torch.float64 .* torch.float32"):
        sample(Langevin(FunctionPotential(energy)), x0, **OPTIONS, compile=True)
