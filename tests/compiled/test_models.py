"""Operations of users' models that are written by simpler ones, or whose data decide what is computed."""

import pytest
import torch
import torch.nn.functional as F
from torch import distributions, nn

from tests.compiled.test_same_numbers import (
    ONE_BY_ONE,
    SIDE_BY_SIDE,
    added_up,
    assert_same,
    both,
    some_at_a_time,
    start,
)
from torchsrk import Langevin, sample
from torchsrk.potentials import FunctionPotential

DIM = 8
_GENERATOR = torch.Generator().manual_seed(0)


def constant(*shape):
    return torch.randn(*shape, generator=_GENERATOR, dtype=torch.float64)


LINE, PLANE, GROUPED = constant(3, 1, 3), constant(2, 1, 2, 3), constant(4, 2, 2)
BIAS, TRIPLE, POINTS = constant(3), constant(2, DIM, DIM), constant(5, 2)
MASK, CLASSES = (
    torch.tensor([True, False, True, True, False, False, True, False]),
    torch.tensor([0, 2, 1, 2, 0, 1, 1, 2]),
)
GRID, TABLE = torch.linspace(-1.0, 1.0, 6, dtype=torch.float64), constant(6)


def total(x):
    return x.flatten(1).square().sum(-1)


def grid(x):
    return x.unflatten(-1, (1, 2, 4))


def masked_write(x):
    y = x.clone()
    y[:, MASK] = 2.0 * x[:, ~MASK].sin()
    return total(y)


def conditional_write(x):
    y = x.clone()
    y[x > 0.3] = 0.3
    return total(y)


def interpolated(x):
    inside = x.clamp(-0.9, 0.9)
    place = torch.searchsorted(GRID, inside.detach()).clamp(1, 5)
    weight = (inside - GRID[place - 1]) / (GRID[place] - GRID[place - 1])
    return (TABLE[place - 1] * (1 - weight) + TABLE[place] * weight).sum(-1)


def heads(x):
    tokens = x.view(-1, 1, 4, 2)
    mask = torch.ones(4, 4, dtype=torch.bool).tril()
    out = F.scaled_dot_product_attention(tokens, tokens, tokens.sin(), attn_mask=mask)
    return total(out) + total(F.scaled_dot_product_attention(tokens, tokens, tokens, is_causal=True, scale=0.7))


ENERGIES = {
    "convolution": lambda x: total(F.conv1d(x[:, None], LINE, BIAS, padding=1)),
    "convolution with strides": lambda x: total(F.conv1d(x[:, None], LINE, stride=2, dilation=2, padding=3)),
    "convolution of a plane": lambda x: total(F.conv2d(grid(x), PLANE, padding=(1, 0), stride=(1, 2))),
    "convolution by group": lambda x: total(F.conv1d(x.unflatten(-1, (4, 2)), GROUPED, groups=2, padding=1)),
    "average pool": lambda x: total(F.avg_pool2d(grid(x), 2).exp()),
    "largest of a pool": lambda x: total(F.max_pool2d(grid(x), (2, 1), stride=1).exp()),
    "distances": lambda x: torch.cdist(x.unflatten(-1, (4, 2)), POINTS.expand(len(x), 5, 2)).sum((-1, -2)),
    "distances to itself": lambda x: torch.cdist(x.unflatten(-1, (4, 2)), x.unflatten(-1, (4, 2))).sum((-1, -2)),
    "distances by axis": lambda x: torch.cdist(x.unflatten(-1, (4, 2)), POINTS.expand(len(x), 5, 2), p=1).sum((-1, -2)),
    "attention": heads,
    "bilinear": lambda x: F.bilinear(x, x.sin(), TRIPLE).square().sum(-1),
    "interpolation": lambda x: total(F.interpolate(x[:, None], size=13, mode="linear")),
    "group norm": lambda x: total(F.group_norm(x.unflatten(-1, (4, 2)), 2, TABLE[:4], TABLE[2:]).sin()),
    "running statistics": lambda x: total(F.batch_norm(x, TRIPLE[0, 0], TRIPLE[0, 1].square() + 0.5).sin()),
    "determinant": lambda x: torch.linalg.det(x.unflatten(-1, (2, 2, 2)) + torch.eye(2, dtype=x.dtype)).sum(-1),
    "mask of data": lambda x: x[:, MASK].square().sum(-1) + x[..., ~MASK].sin().sum(-1),
    "list of booleans": lambda x: x[:, MASK.tolist()].square().sum(-1) + x[..., [False] * 7 + [True]].exp().sum(-1),
    "selected": lambda x: torch.masked_select(x.exp(), MASK).reshape(len(x), -1).sum(-1),
    "written by a mask": masked_write,
    "written by a condition": conditional_write,
    "classes": lambda x: (F.one_hot(CLASSES, 3) * x[:, :, None]).square().sum((-1, -2)),
    "running product": lambda x: total((1.0 + x.relu()).cumprod(-1)) + total(x.unflatten(-1, (4, 2)).cumprod(-2)),
    "shrunk": lambda x: total(F.hardshrink(x, 0.3) + F.softshrink(x)),
    "windows": lambda x: total(x.unfold(-1, 3, 2).sin()),
    "places found": interpolated,
    "multinomial": lambda x: -distributions.Multinomial(28, logits=x).log_prob(torch.arange(8.0, dtype=x.dtype)),
    "one class": lambda x: -distributions.Categorical(logits=x).log_prob(torch.tensor(3)),
    "checked within vmap": torch.func.vmap(lambda v: -distributions.Normal(0.1, 1.0).log_prob(v).sum()),
}


@some_at_a_time(ENERGIES, 10)
def test_models(names):
    energy = added_up(ENERGIES, names)
    sde = Langevin(FunctionPotential(lambda x: 0.1 * energy(x) + x.square().sum(-1), DIM))
    for particles in (1, ONE_BY_ONE, SIDE_BY_SIDE):
        assert_same(*both(sde, 0.5 * start(particles, DIM), "em", step_size=2e-3, num_steps=8))


def test_a_mask_that_changes_makes_another_program():
    mask = MASK.clone()
    sde, x0 = Langevin(FunctionPotential(lambda x: x[:, mask].square().sum(-1), DIM)), start(SIDE_BY_SIDE, DIM)
    first = both(sde, x0, "em")
    mask[1:3] = ~mask[1:3]  # as many as before
    second = both(sde, x0, "em")
    assert_same(*first)
    assert_same(*second)
    assert not torch.equal(first[1], second[1])


def test_a_running_product_with_a_zero_has_its_derivative():
    x0 = start(SIDE_BY_SIDE, 4)
    x0[::2, 1], x0[::3, 2] = 0.0, 0.0
    assert_same(*both(Langevin(FunctionPotential(lambda x: total(x.cumprod(-1)), 4)), x0, "em"))


@pytest.mark.parametrize(
    "energy",
    [
        lambda x: total(F.conv_transpose1d(x[:, None], LINE.transpose(0, 1))),
        lambda x: total(F.avg_pool2d(grid(x), 2, ceil_mode=True, padding=1, count_include_pad=False)),
        lambda x: torch.cdist(x.unflatten(-1, (4, 2)), POINTS.expand(len(x), 5, 2), p=3).sum((-1, -2)),
        lambda x: (x.argmax(-1) * 10_000_000_000_000_000 // 3).to(x.dtype) * x.sum(-1),
    ],
)
def test_options_without_a_form_are_eager(energy):
    sde = Langevin(FunctionPotential(lambda x: energy(x) + x.square().sum(-1), DIM))
    run = {"integrator": "em", "step_size": 1e-3, "num_steps": 2, "seed": 0}
    with pytest.warns(RuntimeWarning, match="this run is eager"):
        sample(sde, start(SIDE_BY_SIDE, DIM), compile=True, **run)


def test_a_batch_norm_in_training_mixes_particles():
    layer = nn.BatchNorm1d(DIM, track_running_stats=False).to(torch.float64)
    sde = Langevin(FunctionPotential(lambda x: total(layer(x)), DIM))
    with pytest.warns(RuntimeWarning, match="mixes its particles|depends on the number"):
        sample(sde, start(SIDE_BY_SIDE, DIM), integrator="em", step_size=1e-3, num_steps=2, seed=0, compile=True)


def test_a_product_that_copies_for_some_batches_alone_is_no_loop_over_particles():
    """Steps of two and of three particles make other numbers of operations here, and those of more the same."""
    into, across = constant(3, 4, 5), constant(5, 2)

    def energy(x):
        mixed = torch.einsum("kl,ijk,...ij->l...", across, into, x.unflatten(-1, (3, 4)))
        return mixed.square().sum(0) * 0.1 + x.square().sum(-1)

    assert_same(*both(Langevin(FunctionPotential(energy, 12)), 0.5 * start(21, 12), "em", step_size=2e-3, num_steps=8))
