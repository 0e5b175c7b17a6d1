"""Series that read the state's entries one by one: their gradients are stacks, and no sums of rows of zeros."""

import pytest
import torch

from tests.compiled.test_same_numbers import ONE_BY_ONE, SIDE_BY_SIDE, assert_same, both, start
from torchsrk import Langevin
from torchsrk.compiled import lowering, programs
from torchsrk.potentials import FunctionPotential, Potential

# As long as traces have particles, and a few rounds longer: lengths that look like the particles' dimension.
LENGTHS = (40, 197, 200, 214)


def latent(x):
    """Every entry but the first is a step of the series."""
    level, loss = x[..., 0], x.square().sum(-1)
    for t in range(1, x.shape[-1]):
        level = 0.5 * level + 0.1 * x[..., t]
        loss = loss + (1.0 - level).square()
    return loss


def with_gaps(x):
    """Two of three entries, one of them twice, and from the last to the first."""
    level, loss = 0.0, 0.5 * x.square().sum(-1)
    for t in reversed(range(x.shape[-1])):
        if t % 3:
            level = 0.5 * level + 0.1 * x[..., t].sin() + 0.05 * x[..., t - t % 2]
            loss = loss + level.square()
    return loss


def of_pairs(x):
    """Rows of a matrix, by a dimension that is not the last."""
    pairs, loss = x.reshape(*x.shape[:-1], -1, 2), x.square().sum(-1)
    level = torch.zeros_like(pairs[..., 0, :])
    for t in range(pairs.shape[-2]):
        level = 0.5 * level + 0.1 * pairs[..., t, :]
        loss = loss + (1.0 - level).square().sum(-1)
    return loss


def few(x):
    """Too few entries of many to be a stack."""
    return x.square().sum(-1) + sum((x[..., t] * x[..., t + 1]).cos() for t in range(9))


def from_the_end(x):
    """Places counted from the end."""
    level, loss = 0.0, x.square().sum(-1)
    for t in range(x.shape[-1]):
        level = 0.5 * level + x[..., -1 - t]
        loss = loss + level.cos()
    return loss


def across_the_start(x):
    """Places -9 to -1, and then from 0 on."""
    level, loss = 0.0, x.square().sum(-1)
    for t in range(-9, x.shape[-1] - 9):
        level = 0.5 * level + x[..., t] + x[..., t - 3 : t or None][..., :1].sum(-1)
        loss = loss + level.cos()
    return loss


ENERGIES = {f.__name__: f for f in (latent, with_gaps, of_pairs, few, from_the_end, across_the_start)}


@pytest.fixture
def sources(monkeypatch):
    """The C of what is compiled."""
    found, lower = [], lowering.lower
    programs._PROGRAMS.clear()

    def noting(*given, **more):
        code = lower(*given, **more)
        found.append(code.source)
        return code

    monkeypatch.setattr(programs, "lower", noting)
    return found


CASES = [("with_gaps", 40), ("of_pairs", 80), ("of_pairs", 400), ("few", 50)]
CASES += [("from_the_end", 300), ("across_the_start", 200)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize(("name", "length"), CASES)
def test_the_same_numbers(name, length, dtype):
    sde = Langevin(FunctionPotential(ENERGIES[name]))
    for particles in (1, ONE_BY_ONE, SIDE_BY_SIDE):
        assert_same(*both(sde, 0.5 * start(particles, length, dtype), "em", step_size=1e-3, num_steps=5))


@pytest.mark.parametrize("length", LENGTHS)
def test_no_round_has_a_row(length, sources):
    sde = Langevin(FunctionPotential(latent))
    assert_same(*both(sde, 0.5 * start(SIDE_BY_SIDE, length), "em", step_size=1e-3, num_steps=5))
    # A row in a round is a mask of it: one is left at most, of an entry that is no part of the series.
    assert sources[0].count("splat_mask(p[") <= 1


class Repaired(Potential):
    """A gradient that is not a number in one place of one particle, and is made 0 there."""

    def forward(self, x):
        return x.square().sum(-1) + sum((x[..., t] - 1.0).abs().sqrt() for t in range(x.shape[-1]))

    def grad(self, x):
        return super().grad(x).nan_to_num(0.0)


def test_a_part_that_is_not_a_number_stays_in_its_place():
    x0 = 0.5 * start(SIDE_BY_SIDE, 40)
    x0[5, 7] = 1.0
    eager, compiled = both(Langevin(Repaired()), x0, "em", step_size=1e-3, num_steps=1)
    assert_same(eager, compiled)
