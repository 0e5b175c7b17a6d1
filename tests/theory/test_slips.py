"""Slips of the paper that a number can show; REPRODUCTION.md has the derivations."""

import math

import pytest
import torch

from torchsrk.potentials import NonConvex
from torchsrk.theory.printed import chi_moment

DIM = 3


def test_the_correction_of_srk_id_is_of_order_h():
    """E Y² = (h²/2)(σσ')² to first order at d = m = 1: the paper's lemma has h³."""
    target = NonConvex(beta=0.33, gamma=0.5, dim=1)
    x = torch.tensor([[0.8]], dtype=torch.float64)
    sigma, slope = target.scale(x), torch.func.grad(lambda y: target.scale(y).sum())(x).squeeze(-1)
    normals = torch.randn(200_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for h in (1e-2, 1e-3):
        shift = (sigma * math.sqrt(h) * (normals.square() - 1) / 2).unsqueeze(-1)
        y = math.sqrt(h) / 2 * (target.scale(x + shift) - target.scale(x - shift))
        expected = float(h**2 / 2 * (sigma * slope) ** 2)
        assert float(y.square().mean()) == pytest.approx(expected, rel=0.05)


def test_the_fourth_power_of_the_norm():
    """Δ‖x‖⁴ = 4(d + 2)‖x‖², which is 12‖x‖² on a line alone."""
    x = torch.randn(DIM, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    hessian = torch.func.hessian(lambda y: y.square().sum() ** 2)(x)
    assert float(hessian.trace()) == pytest.approx(4 * (DIM + 2) * float(x.square().sum()))


def test_steins_lemma_gives_the_laplacian_of_f():
    """On f = ‖x‖²/2, where μ₃(f) = 0, E⟨∇f(H₁), v₁⟩ is 2h(½ + 1/√6)²d, and not 0."""
    h, factor = 0.01, 0.5 + 6**-0.5
    xi, eta = torch.randn(2, 100_000, DIM, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    first = math.sqrt(2 * h) * factor * xi
    stage = 1.0 + first + math.sqrt(h / 6) * eta
    assert float((stage * first).sum(-1).mean()) == pytest.approx(2 * h * factor**2 * DIM, rel=0.02)


def test_jensens_inequality_the_other_way():
    """E[χ^(2q)]^(1/q) ≥ E[χ²] = d."""
    assert all(chi_moment(DIM, q) ** (1 / q) > DIM for q in (2, 3, 4))
