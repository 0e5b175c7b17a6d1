r"""
A neural SDE
============

Trajectories of a noisy oscillator (simulated), and two networks that learn drift and
diffusion from them by gradients through the solver. ``integrate`` is differentiable;
with ``compile=True`` a solve runs as C loops, forward and back.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

from torchsrk import SDE, integrate

# %%
# The truth: van der Pol's oscillator, whose noise depends on the state.


def true_drift(x):
    first, second = x.unbind(-1)
    return torch.stack((first - first.pow(3) / 3 + second, -first), dim=-1)


def true_diffusion(x):
    return 0.25 + 0.15 * torch.tanh(x)


truth = SDE(true_drift, true_diffusion, noise_type="diagonal")
starts = 5.0 * torch.rand(512, 2, generator=torch.Generator().manual_seed(0)) - 2.5
with torch.no_grad():
    ts = torch.linspace(0.0, 2.5, 11)
    observed = integrate(
        truth, starts, ts, integrator="srk-id", step_size=0.025, seed=1
    )

# %%
# A network for the drift, and one for each entry of the diagonal: entry *i* is a
# function of :math:`x_i` alone, which is what "diagonal" means.


class EntryByEntry(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1), nn.Softplus()
        )

    def forward(self, x):
        return 0.3 * self.layers(x.unsqueeze(-1)).squeeze(-1)


UPDATES = 400
torch.manual_seed(0)
drift = nn.Sequential(
    nn.Linear(2, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 2)
)
model = SDE(drift, EntryByEntry(), noise_type="diagonal")
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, UPDATES)

# %%
# From every observation to the next: the model starts 8 particles where the data were,
# and a quarter of a unit of time later they are held against where the data went, by
# the energy score :math:`E|X - y| - \frac12 E|X - X'|`, which the true law minimises.
# All particles are rows of one ``(particles, dim)`` tensor, which is what a compiled
# solve takes.

here, there = observed[:-1].flatten(0, 1), observed[1:].flatten(0, 1)
for update in range(UPDATES):
    batch = torch.randint(
        len(here), (192,), generator=torch.Generator().manual_seed(update)
    )
    x0 = here[batch].repeat(8, 1)
    options = {
        "integrator": "srk-id",
        "step_size": 0.125,
        "seed": update,
        "compile": True,
    }
    reached = integrate(model, x0, (0.0, 0.25), **options)[-1].unflatten(0, (8, 192))
    miss = (reached - there[batch]).norm(dim=-1).mean()
    apart = (reached[:, None] - reached[None] + 1e-6).norm(dim=-1)
    spread = apart.sum((0, 1)).mean() / (8 * 7)
    loss = miss - 0.5 * spread
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
with torch.no_grad():
    off = (drift(here) - true_drift(here)).norm() / true_drift(here).norm()
    spread_off = (model.sigma(0.0, here) - true_diffusion(here)).norm()
    spread_off = spread_off / true_diffusion(here).norm()
print(f"relative errors on the data: drift {off:.3f}, diffusion {spread_off:.3f}")

# %%
# The drift as a stream, with twelve solutions from one start on the same noise: the
# truth's and those of the model.

side = torch.linspace(-3.0, 3.0, 25)
grid = torch.stack(torch.meshgrid(side, side, indexing="xy"), dim=-1)
one, fine = torch.tensor([0.3, 0.2]).expand(12, 2), torch.linspace(0.0, 8.0, 161)
figure, axes = plt.subplots(1, 2, figsize=(9, 4.4), sharex=True, sharey=True)
shades = plt.Normalize(0.0, 8.0)  # of speed, the same for both
for axis, sde, title in ((axes[0], truth, "truth"), (axes[1], model, "learned")):
    with torch.no_grad():
        u, v = sde.drift_function(grid).unbind(-1)
        paths = integrate(sde, one, fine, integrator="srk-id", step_size=0.05, seed=5)
    speed = (u.square() + v.square()).sqrt().numpy()
    stream = {"color": speed, "cmap": "Greys", "density": 1.1, "linewidth": 0.8}
    axis.streamplot(*2 * [side.numpy()], u.numpy(), v.numpy(), norm=shades, **stream)
    axis.plot(*paths.unbind(-1), linewidth=1.1, alpha=0.8)
    axis.plot(*one[0], "ko", markersize=6)
    axis.set(title=title, xlabel="x₁", xlim=(-3, 3), ylim=(-3, 3))
axes[0].set_ylabel("x₂")
plt.show()
