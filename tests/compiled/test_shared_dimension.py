"""Particles in one dimension with other entries, as flattening a batch of copies makes it."""

import pytest
import torch
from torch import nn

from tests.compiled.test_same_numbers import ONE_BY_ONE, SIDE_BY_SIDE, assert_same, both, start
from torchsrk import Langevin, sample
from torchsrk.compiled import programs
from torchsrk.potentials import FunctionPotential

DIM = 3
SCALE = torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64)
LAYER = nn.Sequential(nn.Linear(DIM, 4), nn.Tanh(), nn.Linear(4, 1)).double()


def bowl(x):
    """Of its own for every entry, so that one in another's place shows."""
    return (SCALE * x.square() + 0.3 * x.sin()).sum(-1)


def copies_first(x):
    y = torch.stack((x, 2.0 * x.sin(), x - 1.0)).reshape(-1, DIM)
    return bowl(y).view(3, -1).mul(torch.tensor([[1.0], [2.0], [3.0]], dtype=x.dtype)).sum(0)


def copies_last(x):
    y = torch.stack((x, 2.0 * x.sin(), x - 1.0), dim=1).reshape(-1, DIM)
    return (bowl(y).view(-1, 3) * torch.tensor([1.0, 2.0, 3.0], dtype=x.dtype)).sum(-1)


def copies_on_either_side(x):
    y = torch.stack((x, x.cos()))[:, :, None] * torch.tensor([[1.0], [2.0], [3.0]], dtype=x.dtype)  # (2, n, 3, DIM)
    back = bowl(y.reshape(-1, DIM)).reshape(2, -1, 3)
    return (back[0] * torch.tensor([1.0, 0.5, 0.2], dtype=x.dtype)).sum(-1) + 0.1 * back[1].sin().sum(-1)


def entries_too(x):
    """All of a particle's numbers beside it, and taken apart again."""
    y = (x.flatten() * 2.0).view(-1, 1).expand(-1, 2).reshape(-1)
    return bowl(y.view(-1, DIM, 2).sum(-1))


def with_constants(x):
    flat = torch.stack((x, x + 1.0)).reshape(-1, DIM)
    kept = torch.where(flat > 0.2, flat, torch.zeros_like(flat)) + flat.new_full((len(flat), 1), 0.5)
    bare = torch.ones(len(flat), dtype=x.dtype).view(2, -1)
    return (bowl(kept).view(2, -1) * bare).sum(0)


def by_products(x):
    flat = torch.cat((x, x.sin()), -1).repeat(2, 2, 1)[1, :, :DIM]
    return (LAYER(flat).view(2, -1) * torch.tensor([[1.0], [3.0]], dtype=x.dtype)).sum(0) + bowl(x)


def by_solving(x):
    factor = torch.tensor([[1.0, 0.0, 0.0], [0.3, 2.0, 0.0], [-0.4, 0.5, 1.5]], dtype=x.dtype)
    flat = torch.stack((x, 2.0 * x.sin())).reshape(-1, DIM)
    solved = torch.linalg.solve_triangular(factor, flat.mT, upper=False)
    return bowl(solved.mT).view(2, -1).mul(torch.tensor([[1.0], [2.0]], dtype=x.dtype)).sum(0)


def by_places(x):
    flat = torch.stack((x, x.sin()), dim=1).reshape(-1, DIM)
    picked = flat.gather(-1, torch.tensor([2, 0]).expand(len(flat), 2)) * flat[:, [1, 2]]
    return picked.sum(-1).view(-1, 2)[:, 0] + bowl(x)


ENERGIES = (
    *(copies_first, copies_last, copies_on_either_side, entries_too, with_constants),
    *(by_products, by_solving, by_places),
)


@pytest.mark.parametrize("particles", [ONE_BY_ONE, SIDE_BY_SIDE])
@pytest.mark.parametrize("energy", ENERGIES, ids=lambda energy: energy.__name__)
def test_energies(energy, particles):
    assert_same(*both(Langevin(FunctionPotential(energy)), start(particles, DIM), "em"))


@pytest.mark.parametrize("scheme", ["ozaki", "tamed"])
def test_a_network_of_copies_of_the_particles(scheme):
    potential = FunctionPotential(lambda x: LAYER(x).squeeze(-1) + bowl(x))
    assert_same(*both(Langevin(potential), start(SIDE_BY_SIDE, DIM), scheme))


def in_two_orders(x):
    first, last = (torch.stack((x, 2.0 * x), dim=dim).reshape(-1, DIM) for dim in (0, 1))
    return bowl(first * last).view(2, -1).sum(0)


def taken_apart_otherwise(x):
    return bowl(torch.stack((x, 2.0 * x)).reshape(-1, DIM)).view(-1, 2).sum(-1)


def cut_across(x):
    return bowl(torch.stack((x, 2.0 * x)).reshape(-1, DIM)[: len(x)])


def joined(x):
    flat = torch.stack((x, 2.0 * x)).reshape(-1, DIM)
    return bowl(torch.cat((flat, x))).view(3, -1).sum(0)


def joined_with_others(x):
    return bowl(torch.cat((x, torch.ones(2, DIM, dtype=x.dtype)))[: len(x)])


def summed(x):
    flat = torch.stack((x, 2.0 * x)).reshape(-1, DIM)
    return bowl(x) + flat.square().sum(0).sum(-1)


def numbered(x):
    flat = torch.stack((x, 2.0 * x)).reshape(-1, DIM)
    return bowl(flat * torch.arange(len(flat), dtype=x.dtype).unsqueeze(-1)).view(2, -1).sum(0)


def fewer_places(x):
    flat = torch.stack((x, 2.0 * x)).reshape(-1, DIM)
    return bowl(flat.gather(-1, torch.tensor([2, 0, 1]).expand(len(x), 3)))


MIXING = {
    in_two_orders: "meets them in two orders at once",
    taken_apart_otherwise: "into another dimension|in two orders at once",
    cut_across: "picks or joins particles",
    joined: "particles",
    joined_with_others: "picks or joins particles",
    summed: "mixes its particles",
    numbered: "depends on the number of particles",
    fewer_places: "picks or joins particles",
}


@pytest.mark.parametrize("energy", MIXING, ids=lambda energy: energy.__name__)
def test_what_mixes_particles_is_found_out(energy):
    sde, x0 = Langevin(FunctionPotential(energy)), start(6, DIM)
    options = {"integrator": "em", "step_size": 0.01, "num_steps": 3, "seed": 5}
    with pytest.warns(RuntimeWarning, match=f"this run is eager, as .*({MIXING[energy]})"):
        compiled = sample(sde, x0, compile=True, **options).final
    assert torch.equal(compiled, sample(sde, x0, **options).final)


@pytest.mark.parametrize("rows", [programs._MARKERS[0], 2 * programs._MARKERS[1]])
def test_data_that_are_as_many_as_the_particles_of_a_trace(rows):
    data = torch.linspace(-1.0, 1.0, rows * 2, dtype=torch.float64).view(rows, 2)
    potential = FunctionPotential(lambda x: (x @ data.T).cos().mean(-1) + 0.5 * x.square().sum(-1))
    assert_same(*both(Langevin(potential), start(SIDE_BY_SIDE, 2), "em"))
