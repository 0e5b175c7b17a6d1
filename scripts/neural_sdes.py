"""The contenders of bench_training.py: one training step of a neural SDE, by this library and by others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from torchsrk import SDE, integrate

Update = Callable[[], object]


@dataclass(frozen=True)
class Size:
    """Of a training step over [0, 1]: steps are best a power of two, where torchsde is at its best."""

    batch: int = 256
    dim: int = 4
    hidden: int = 64
    steps: int = 128


class EntryByEntry(nn.Module):
    """One network for every entry of a diagonal: entry i is a function of x_i alone."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(1, hidden), nn.Tanh(), nn.Linear(hidden, 1), nn.Softplus())

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x.unsqueeze(-1)).squeeze(-1)


def network(size: Size, noise_type: str) -> SDE:
    """A drift of two linear layers with tanh; a diffusion of the same kind and a softplus, or a constant matrix."""
    torch.manual_seed(0)
    drift = nn.Sequential(nn.Linear(size.dim, size.hidden), nn.Tanh(), nn.Linear(size.hidden, size.dim))
    if noise_type == "additive":
        return SDE(drift, nn.Parameter(0.3 * torch.eye(size.dim)), "additive")
    return SDE(drift, EntryByEntry(size.hidden), "diagonal")


def ours(size: Size, noise_type: str, scheme: str, **options: bool) -> Update:
    """Forward and backward through ``integrate``."""
    sde, x0 = network(size, noise_type), torch.randn(size.batch, size.dim)
    seed = iter(range(1 << 30))

    def update() -> None:
        sde.zero_grad()
        step = {"step_size": 1.0 / size.steps, "seed": next(seed)}
        integrate(sde, x0, (0.0, 1.0), integrator=scheme, **step, **options)[-1].square().mean().backward()

    return update


def torchsdes(size: Size, noise_type: str, method: str, adjoint: bool = False) -> Update:
    """The same by torchsde."""
    import torchsde

    sde, x0 = network(size, noise_type), torch.randn(size.batch, size.dim)
    solve = torchsde.sdeint_adjoint if adjoint else torchsde.sdeint
    ts = torch.tensor([0.0, 1.0])

    def update() -> None:
        sde.zero_grad()
        solve(sde, x0, ts, dt=1.0 / size.steps, method=method)[-1].square().mean().backward()

    return update


def products(size: Size, noise_type: str, drifts: int, diffusions: int) -> Update:
    """The matrix products of so many evaluations of the networks at every step, forward and backward, and no more."""
    calls = [(size.batch, size.dim, size.hidden, size.dim)] * drifts
    calls += [(size.batch * size.dim, 1, size.hidden, 1)] * (diffusions if noise_type == "diagonal" else 0)
    layers = [
        (torch.randn(rows, inner), torch.randn(inner, outer), torch.randn(rows, outer))
        for rows, *widths in calls
        for inner, outer in pairwise(widths)
    ]

    def update() -> None:
        for _ in range(size.steps):
            for x, weight, slope in layers:
                x @ weight
                slope @ weight.T
                x.T @ slope

    return update


def diffraxes(size: Size, noise_type: str) -> Update:
    """Euler-Maruyama by diffrax, with its recursive checkpointing, as one compiled function of the parameters."""
    import diffrax
    import jax
    import jax.numpy as jnp
    import lineax

    sde = network(size, noise_type)
    weights = {name: jnp.asarray(value.detach().numpy()) for name, value in sde.named_parameters()}
    x0 = jnp.asarray(torch.randn(size.batch, size.dim).numpy())

    def layers(w: dict, name: str, x: jax.Array) -> jax.Array:
        hidden = jnp.tanh(x @ w[f"{name}.0.weight"].T + w[f"{name}.0.bias"])
        return hidden @ w[f"{name}.2.weight"].T + w[f"{name}.2.bias"]

    def diffusion(t: float, x: jax.Array, w: dict) -> jax.Array:
        return jax.nn.softplus(layers(w, "diffusion_function.layers", x[..., None])[..., 0])

    def solved(w: dict, key: jax.Array) -> jax.Array:
        path = diffrax.VirtualBrownianTree(0.0, 1.0, 0.5 / size.steps, x0.shape, key)
        noise = diffrax.MultiTerm(
            diffrax.ODETerm(lambda t, x, w: layers(w, "drift_function", x)),
            diffrax.ControlTerm(lambda t, x, w: lineax.DiagonalLinearOperator(diffusion(t, x, w)), path),
        )
        ends = diffrax.diffeqsolve(
            noise,
            diffrax.Euler(),
            0.0,
            1.0,
            1.0 / size.steps,
            x0,
            w,
            adjoint=diffrax.RecursiveCheckpointAdjoint(),
            max_steps=size.steps + 1,
        )
        return jnp.square(ends.ys[-1]).mean()

    gradient = jax.jit(jax.grad(solved))
    keys = iter(range(1 << 30))
    return lambda: jax.block_until_ready(gradient(weights, jax.random.key(next(keys))))
