"""A zoo of SDEs and potentials with known answers, shared by the tests."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchsrk import SDE, ItoDiffusion, Langevin
from torchsrk.potentials import (
    AffinePotential,
    Banana,
    DistributionPotential,
    FunctionPotential,
    GaussianMixture,
    LogisticRegression,
    MinibatchPotential,
    NonConvex,
    Potential,
    UnconstrainedPotential,
)


def mixture(dim: int = 20, dtype: torch.dtype = torch.float64) -> GaussianMixture:
    """The paper's mixture, with ‖a‖² = ½."""
    return GaussianMixture(torch.full((dim,), (2.0 * dim) ** -0.5, dtype=dtype))


def potentials(dtype: torch.dtype = torch.float64) -> dict[str, tuple[Potential, int]]:
    """Every exported potential but the stochastic one, with its dimension."""
    positive = torch.distributions.constraints.independent(torch.distributions.constraints.positive, 1)
    normal = torch.distributions.MultivariateNormal(torch.ones(3, dtype=dtype), torch.eye(3, dtype=dtype) * 2.0)
    return {
        "mixture": (mixture(5, dtype), 5),
        "affine": (AffinePotential(mixture(3, dtype), torch.ones(3, dtype=dtype), lower_triangle(3, dtype)), 3),
        "regression": (LogisticRegression.synthetic(50, 4, seed=1, dtype=dtype), 4),
        "banana": (Banana(spread=0.7), 2),
        "non-convex": (NonConvex(beta=2.0, gamma=0.7, dim=3), 3),
        "function": (FunctionPotential(lambda x: x.pow(4).sum(-1) + x[..., 0]), 2),
        "distribution": (DistributionPotential(normal), 3),
        "unconstrained": (UnconstrainedPotential(lambda x: (2 * x.log() - x).sum(-1), (2,), positive), 2),
    }


def lower_triangle(dim: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """A well-conditioned one."""
    entries = torch.linspace(-0.5, 0.5, dim * dim, dtype=dtype).reshape(dim, dim)
    return entries.tril(-1) + torch.diag(torch.linspace(0.5, 2.0, dim, dtype=dtype))


def minibatch(batch_size: int = 5, seed: int = 3) -> MinibatchPotential:
    """Linear regression with unit noise and a standard normal prior."""
    features = torch.arange(40.0).reshape(20, 2).sin()
    targets = features @ torch.tensor([1.0, -1.0]) + 0.1 * torch.arange(20.0).cos()

    def loss(x: Tensor, batch_features: Tensor, batch_targets: Tensor) -> Tensor:
        return 0.5 * (x @ batch_features.T - batch_targets).square()

    prior = FunctionPotential(lambda x: 0.5 * x.square().sum(-1), dim=2)
    return MinibatchPotential(loss, (features, targets), batch_size=batch_size, seed=seed, prior=prior)


def matrix_field(x: Tensor) -> Tensor:
    """A non-commutative (..., 3, 4) diffusion of x (..., 3)."""
    turned = torch.stack((x[..., 1].sin(), x[..., 2].cos(), x[..., 0].tanh()), dim=-1)
    tilt = torch.linspace(-1.0, 1.0, 12, dtype=x.dtype, device=x.device).view(3, 4)
    return 0.5 * tilt + 0.3 * turned.unsqueeze(-1) * torch.linspace(1.0, 2.0, 4, dtype=x.dtype, device=x.device)


def matrix_columns(points: Tensor) -> Tensor:
    """Row i: column i of matrix_field at point i, (..., 4, 3)."""
    return matrix_field(points).diagonal(dim1=-3, dim2=-1).mT


def sdes() -> dict[str, tuple[SDE | Langevin | ItoDiffusion, int]]:
    """One SDE of every noise type and class, with its dimension."""
    non_convex = NonConvex(beta=2.0, gamma=0.5, dim=3)
    skew = torch.tensor([[0.0, 1.0, -2.0], [-1.0, 0.0, 0.5], [2.0, -0.5, 0.0]], dtype=torch.float64)
    return {
        "langevin": (Langevin(mixture(3)), 3),
        "isotropic": (ItoDiffusion(non_convex, non_convex.scale, noise_type="isotropic"), 3),
        "skew": (ItoDiffusion(non_convex, non_convex.scale, skew, noise_type="isotropic"), 3),
        "additive": (SDE(lambda x: -x.sin(), torch.linspace(-1, 1, 12).view(3, 4), "additive"), 3),
        "diagonal": (SDE(lambda x: -x, lambda x: 1.0 + 0.5 * x.sin(), "diagonal"), 3),
        "scalar": (SDE(lambda x: -x, lambda x: (1.0 + 0.5 * x.sin()).unsqueeze(-1), "scalar"), 3),
        "general": (SDE(lambda x: -x, matrix_field, "general"), 3),
        "timed": (SDE(lambda t, x: -x + t, lambda t, x: 1.0 + 0.1 * x.cos(), "diagonal", time_dependent=True), 2),
    }


class CountingPotential(Potential):
    """A quadratic energy that counts its gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.gradients = 0

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x.square().sum(-1)

    def grad(self, x: Tensor) -> Tensor:
        self.gradients += 1
        return x


def networks(dim: int) -> SDE:
    """Small networks for drift and diagonal diffusion."""
    torch.manual_seed(0)
    drift = nn.Sequential(nn.Linear(dim, 8), nn.Tanh(), nn.Linear(8, dim))
    # One network for every entry: entry i is a function of x_i alone.
    scale = nn.Sequential(
        nn.Unflatten(-1, (dim, 1)), nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1), nn.Flatten(-2), nn.Sigmoid()
    )
    return SDE(drift, scale, "diagonal")


class Scaled(torch.autograd.Function):
    """x·w, by hand."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, gradient):
        x, w = ctx.saved_tensors
        return gradient * w, (gradient * x).sum(tuple(range(x.ndim - 1)))
