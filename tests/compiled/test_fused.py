"""Biases and factors that a matrix product takes on: the same numbers, and only where all particles share them."""

import pytest
import torch

from tests.compiled.test_products import OPTIONS, PARTICLES, quiet, weights
from tests.compiled.test_same_numbers import assert_same, both, start
from torchsrk import sample
from torchsrk.compiled import explain

INTO, OUT, ROW, OTHER = weights(3, 40), weights(40, 3), weights(40), weights(41)[:40]

FUSED = {
    "a bias": lambda x: torch.tanh(x @ INTO + ROW) @ OUT,
    "a bias that comes first": lambda x: torch.tanh(ROW + x @ INTO) @ OUT,
    "factors": lambda x: (torch.tanh(x @ INTO) * ROW) @ OUT,
    "factors that come first": lambda x: (ROW * torch.tanh(x @ INTO)) @ OUT,
    "factors and a bias": lambda x: (torch.tanh(x @ INTO + OTHER) * ROW) @ OUT + OUT[0],
    "factors of a product with a bias": lambda x: torch.addmm(OUT[0], torch.tanh(x @ INTO) * ROW, OUT),
}
LEFT_ALONE = {
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
    """Between the products there is an activation, and nothing else."""
    source = explain(quiet(FUSED[name]), "em", start(16, 3)).source
    (activation,) = (line for line in source.splitlines() if "v_tanh" in line)
    assert "v_tanh(t0[i1])" in activation
    assert "*" not in activation.partition("*/")[2]


def test_weights_that_change_in_place_are_scaled_anew():
    row, x0 = ROW.clone(), start(16, 3)
    sde = quiet(lambda x: (torch.tanh(x @ INTO) * row) @ OUT - x)
    for factor in (1.0, -2.0, 0.0):
        row.copy_(factor * ROW)
        assert_same(sample(sde, x0, **{**OPTIONS, "compile": False}).final, sample(sde, x0, **OPTIONS).final)
