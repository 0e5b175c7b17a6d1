"""Biases and factors that a matrix product takes on: the same numbers, and only where all particles share them."""

import pytest
import torch
from torch import nn

from tests.compiled.test_products import OPTIONS, PARTICLES, quiet, weights
from tests.compiled.test_same_numbers import assert_same, both, start
from torchsrk import Langevin, sample
from torchsrk.compiled import explain
from torchsrk.potentials import FunctionPotential

INTO, OUT, ROW, OTHER = weights(3, 40), weights(40, 3), weights(40), weights(41)[:40]

FUSED = {
    "a bias": lambda x: torch.tanh(x @ INTO + ROW) @ OUT,
    "a bias that comes first": lambda x: torch.tanh(ROW + x @ INTO) @ OUT,
    "factors": lambda x: (torch.tanh(x @ INTO) * ROW) @ OUT,
    "factors that come first": lambda x: (ROW * torch.tanh(x @ INTO)) @ OUT,
    "factors and a bias": lambda x: (torch.tanh(x @ INTO + OTHER) * ROW) @ OUT + OUT[0],
    "factors among others": lambda x: ((ROW * torch.tanh(x @ INTO)) * x[:, :1]) @ OUT,
    "factors by a product with 1": lambda x: (torch.tanh(x @ INTO) * (torch.ones_like(x[:, :1]) @ ROW[None])) @ OUT,
    "factors of a product with a bias": lambda x: torch.addmm(OUT[0], torch.tanh(x @ INTO) * ROW, OUT),
}
LEFT_ALONE = {
    "a number that is not 1": lambda x: (torch.tanh(x @ INTO) * (torch.full_like(x[:, :1], 0.5) @ ROW[None])) @ OUT,
    "a bias taken twice": lambda x: torch.tanh(torch.add(x @ INTO, ROW, alpha=2)) @ OUT,
    "a product read twice": lambda x: (lambda y: torch.tanh(y + ROW) + y)(x @ INTO) @ OUT,
    "factors of what is read twice": lambda x: (lambda y: y @ OUT + y.sum(-1, keepdim=True))(
        torch.tanh(x @ INTO) * ROW
    ),
    "factors of each particle": lambda x: (torch.tanh(x @ INTO) * x[:, :1]) @ OUT,
    "a sum of rows": lambda x: (x[:, :1] * ROW) @ OUT,
    "one factor for all": lambda x: (torch.tanh(x @ INTO) * ROW[:1]) @ OUT,
    "one number to add": lambda x: torch.tanh(x @ INTO + ROW[:1]) @ OUT,
}


@pytest.mark.parametrize("name", [*FUSED, *LEFT_ALONE])
def test_numbers_are_the_same(name):
    drift = {**FUSED, **LEFT_ALONE}[name]
    for particles in PARTICLES:
        assert_same(*both(quiet(lambda x: drift(x) - x), start(particles, 3), "em"))


@pytest.mark.parametrize("name", FUSED)
def test_entries_are_added_and_multiplied_by_the_product(name):
    """The loop over the activation reads no row."""
    source = explain(quiet(FUSED[name]), "em", start(16, 3)).source
    (activation,) = (line for line in source.splitlines() if "v_tanh" in line)
    assert "v_tanh(t0[i1])" in activation
    assert "p[" not in activation


def test_the_last_layer_of_a_network_is_in_the_weights_of_its_gradient():
    """What autograd writes: ones, times the last layer's weights, times derivatives."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(3, 40), nn.SiLU(), nn.Linear(40, 40), nn.SiLU(), nn.Linear(40, 1))
    sde = Langevin(FunctionPotential(lambda x: layers(x).squeeze(-1)))
    for particles in PARTICLES:
        assert_same(*both(sde, start(particles, 3), "srk-ld"))
    graph = explain(sde, "em", start(16, 3)).graph
    assert "(particles, 1)" not in graph
    assert graph.count("addmm.default") == 2


def test_weights_that_change_in_place_are_scaled_anew():
    row, x0 = ROW.clone(), start(16, 3)
    sde = quiet(lambda x: (torch.tanh(x @ INTO) * row) @ OUT - x)
    for factor in (1.0, -2.0, 0.0):
        row.copy_(factor * ROW)
        assert_same(sample(sde, x0, **{**OPTIONS, "compile": False}).final, sample(sde, x0, **OPTIONS).final)
