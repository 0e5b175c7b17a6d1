r"""
A score model, sampled in reverse
=================================

A small network learns to tell noise from data, and its reverse diffusion turns noise
into data. In *variance time* that diffusion has unit noise,
:math:`d\hat X = \nabla\log p_\tau(\hat X)\,ds + dB_s`, so schemes for additive noise
keep their order.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import make_moons
from torch import nn

from torchsrk import ReverseDiffusion, VariancePreserving, sample
from torchsrk.metrics import energy_distance_squared

points, _ = make_moons(20_000, noise=0.06, random_state=0)
data = torch.tensor(points, dtype=torch.float32)
data = (data - data.mean(0)) / data.std(0)
schedule = VariancePreserving()

# %%
# The network sees a noisy point :math:`x = \alpha x_0 + s\varepsilon` and the time, and
# is to say which :math:`\varepsilon` was added.


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Linear(6, 96), nn.SiLU(), nn.Linear(96, 96), nn.SiLU()),
            *(nn.Linear(96, 96), nn.SiLU(), nn.Linear(96, 2)),
        )

    def forward(self, x, t):
        level = schedule.variance(t).log().unsqueeze(-1) / 4.0
        angles = (torch.sin(level), torch.cos(level), torch.sin(3.0 * level), level)
        return self.layers(torch.cat((x, *angles), dim=-1))


torch.manual_seed(0)
network, updates = Denoiser(), 2500
optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
for _ in range(updates):
    x0, noise = data[torch.randint(len(data), (512,))], torch.randn(512, 2)
    t = torch.empty(512).uniform_(schedule.first, schedule.last)
    scale = schedule.scale(schedule.variance(t)).unsqueeze(-1)
    noisy = scale * x0 + (1.0 - scale.square()).sqrt() * noise
    loss = (network(noisy, t) - noise).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    cosine.step()
print(f"loss {loss.item():.3f}")

# %%
# Thousands of points in a few dozen steps, whose lengths shrink with the noise.

reverse = ReverseDiffusion(network, schedule, predicts="noise")
start = reverse.prior(3000, 2, seed=1)


def drawn(scheme, steps, callbacks=()):
    sizes = reverse.step_sizes(steps)
    options = {"step_sizes": sizes, "callbacks": callbacks, "seed": 0}
    return reverse.data(sample(reverse, start, integrator=scheme, **options).final)


GRADIENTS = {"em": 1, "shark": 2, "srk-ld": 3}
LABELS = {"em": "Euler-Maruyama", "shark": "ShARK", "srk-ld": "SRK-LD"}
BUDGETS = (24, 48, 96, 192)
distances = {
    scheme: [
        float(energy_distance_squared(drawn(scheme, budget // cost), data[:6000]))
        for budget in BUDGETS
    ]
    for scheme, cost in GRADIENTS.items()
}
floor = float(energy_distance_squared(data[6000:9000], data[:6000]))
for scheme, values in distances.items():
    print(f"{LABELS[scheme]:15s}", "  ".join(f"{value:.4f}" for value in values))
print(f"draws of the data themselves: {floor:.4f}")

# %%
# Above, noise on its way to data, shown on the scale that it has at each time; below,
# how far 3,000 draws are from the data after so many evaluations of the network. Eight
# steps are too long for SRK-LD, and in the end the network's own error is what is left.

kept = {}
drawn("shark", 24, callbacks=[lambda step, x: kept.update({step: x.clone()})])
shown = [min(kept), 10, 16, 20, max(kept)]
figure, axes = plt.subplot_mosaic(
    "abcde;fffff", figsize=(10, 6), height_ratios=(1, 1.25)
)
for name, step in zip("abcde", shown, strict=True):
    cloud = kept[step] / kept[step].std()
    axes[name].scatter(*cloud.T, s=1.5, color="C0", alpha=0.5, linewidths=0)
    axes[name].set(xlim=(-2.6, 2.6), ylim=(-2.6, 2.6), xticks=[], yticks=[])
    axes[name].set_title(f"step {step} of 24", fontsize=9)
for scheme, values in distances.items():
    axes["f"].loglog(BUDGETS, values, "o-", label=LABELS[scheme])
axes["f"].axhline(
    floor, color="0.6", linestyle="--", label="draws of the data themselves"
)
axes["f"].set_xticks(BUDGETS, [str(budget) for budget in BUDGETS])
axes["f"].minorticks_off()
axes["f"].set(xlabel="evaluations of the network", ylabel="squared energy distance")
axes["f"].legend()
plt.show()
