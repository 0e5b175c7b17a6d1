r"""
An energy-based model
=====================

A network learns the energy of a pinwheel: low where there are data, high elsewhere. The
gradient of its log likelihood needs draws from the model itself, and these come from
persistent chains that make twelve steps after every update. ``Chain`` keeps where they
are, and counts steps, so that no two of them share noise.
"""

import math

import matplotlib.pyplot as plt
import torch
from torch import nn

from torchsrk import Chain, Langevin
from torchsrk.potentials import FunctionPotential


def pinwheel(points, seed):
    """Five bent arms around the origin, (points, 2)."""
    generator = torch.Generator().manual_seed(seed)
    arm = torch.randint(5, (points,), generator=generator)
    along, across = torch.randn(2, points, generator=generator)
    radius, aside = 1.5 + 0.45 * along, 0.2 * across
    angle = arm * (2.0 * math.pi / 5) + 0.5 * radius
    x = radius * angle.cos() - aside * angle.sin()
    return torch.stack((x, radius * angle.sin() + aside * angle.cos()), dim=-1)


torch.manual_seed(0)
network = nn.Sequential(
    nn.Linear(2, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1)
)
# A wide parabola keeps chains from drifting off.
energy = FunctionPotential(
    lambda x: network(3.0 * x).squeeze(-1) + 0.05 * x.square().sum(-1), dim=2
)

# %%
# The chain reads the network's weights anew at every call. Compiled, nothing is traced
# again while they change.

chain = Chain(
    Langevin(energy),
    2.0 * torch.randn(500, 2),
    integrator="lm",
    step_size=0.02,
    seed=0,
    compile=True,
)
UPDATES = 800
optimizer = torch.optim.Adam(network.parameters(), lr=1e-2, betas=(0.9, 0.99))
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, UPDATES)
data = pinwheel(20_000, seed=1)
for _ in range(UPDATES):
    rows = torch.randint(len(data), (500,))
    draws = chain.advance(12).final
    loss = energy(data[rows]).mean() - energy(draws).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
print(chain.step, "steps, energies of data less those of draws:", f"{loss.item():.3f}")

# %%
# Left the data, in the middle what the chains hold, and right the density that was
# learned: in two dimensions it can be normalised on a grid, which gives the held-out
# log likelihood, too.

side = torch.linspace(-3.5, 3.5, 200)
grid = torch.cartesian_prod(side, side)
with torch.no_grad():
    cell = float(side[1] - side[0]) ** 2
    log_normaliser = (-energy(grid)).logsumexp(0) + math.log(cell)
    density = (-energy(grid) - log_normaliser).exp().view(200, 200).T
    held_out = -energy(pinwheel(5000, seed=2)) - log_normaliser
print(f"held-out log likelihood: {held_out.mean():.3f}")

figure, axes = plt.subplots(1, 3, figsize=(10.5, 3.9), sharex=True, sharey=True)
clouds = ((data[:4000], "data", "k"), (chain.advance(12).final, "chains", "C0"))
for axis, (points, title, colour) in zip(axes, clouds, strict=False):
    axis.scatter(*points.T, s=3, color=colour, alpha=0.5, linewidths=0)
    axis.set_title(title)
axes[2].pcolormesh(side, side, density, cmap="magma", shading="gouraud")
axes[2].set_title("the density that was learned")
for axis in axes:
    axis.set(xlim=(-3.5, 3.5), ylim=(-3.5, 3.5), xticks=[], yticks=[], aspect="equal")
plt.show()
