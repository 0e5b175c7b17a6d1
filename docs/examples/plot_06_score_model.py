r"""
A score model, sampled in reverse
=================================

A small network learns to tell noise from data, and its reverse diffusion turns noise
into data. In *variance time* that diffusion has unit noise,
:math:`d\hat X = \nabla\log p_\tau(\hat X)\,ds + dB_s`, so schemes for additive noise
keep their order. Beside it: Euler-Maruyama in the model's own time, as such models are
usually sampled.
"""

import math

import matplotlib.pyplot as plt
import torch
from torch import nn

from torchsrk import SDE, ReverseDiffusion, VariancePreserving, sample
from torchsrk.metrics import energy_distance_squared

# %%
# The data: two moons of 24 normals each. So the score is known in closed form at every
# time, and so is the density of the draws' own target.

COUNT = 24
angle = math.pi * (torch.arange(COUNT) + 0.5) / COUNT
upper = torch.stack((angle.cos(), angle.sin()), dim=-1)
centres = torch.cat((upper, torch.tensor([1.0, 0.5]) - upper))
centres = (centres - centres.mean(0)) / 0.72
WIDTH, schedule = 0.125, VariancePreserving()


def draw(points, generator):
    chosen = centres[torch.randint(2 * COUNT, (points,), generator=generator)]
    return chosen + WIDTH * torch.randn(points, 2, generator=generator)


def exact_score(x, t):
    tau = schedule.variance(t[:1])  # all points of a step have one time
    scale = schedule.scale(tau)
    variance = scale.square() * (WIDTH**2 + tau)
    near = (-torch.cdist(x, scale * centres).square() / (2.0 * variance)).softmax(-1)
    return (near @ (scale * centres) - x) / variance


# %%
# The network sees a noisy point :math:`x = \alpha x_0 + s\varepsilon` and the time, and
# is to say which :math:`\varepsilon` was added. It learns what the best linear guess
# leaves open, of unit variance at every time, and sees more of the noise levels that
# shape the moons than times drawn evenly would show it.


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Linear(6, 96), nn.SiLU(), nn.Linear(96, 96), nn.SiLU()),
            *(nn.Linear(96, 96), nn.SiLU(), nn.Linear(96, 2)),
        )

    def forward(self, x, t):
        tau = schedule.variance(t).unsqueeze(-1)
        level = tau.log() / 4.0
        angles = (level.sin(), level.cos(), (3.0 * level).sin(), level)
        rest = self.layers(torch.cat((x, *angles), dim=-1))
        return (tau.sqrt() * x - rest) / (1.0 + tau).sqrt()


generator = torch.Generator().manual_seed(0)
torch.manual_seed(0)
data, network, updates = draw(20_000, generator), Denoiser(), 3000
optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
for _ in range(updates):
    x0, noise = data[torch.randint(len(data), (640,))], torch.randn(640, 2)
    level = (1.4 * torch.randn(640, 1) - 1.0).clamp(-4.5, 5.0).exp()  # √τ
    noisy = (x0 + level * noise) * schedule.scale(level.square())
    guess = network(noisy, schedule.time(level.square()).squeeze(-1))
    loss = ((1.0 + level.square()) * (guess - noise).square()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    cosine.step()

# %%
# Thousands of points in a few dozen steps. In variance time the lengths of steps shrink
# with the noise. In the usual time :math:`dx = \beta(\frac12 x + \nabla\log p_t)\,du +
# \sqrt\beta\,dB`, with :math:`u = 1 - t`, and steps are equal.

PARTICLES = 4000


def in_variance_time(reverse, scheme, steps, callbacks=()):
    options = {"integrator": scheme, "callbacks": callbacks, "seed": 0}
    start, sizes = reverse.prior(PARTICLES, 2, seed=1), reverse.step_sizes(steps)
    return reverse.data(sample(reverse, start, step_sizes=sizes, **options).final)


def in_usual_time(score, steps):
    def beta(u):
        return 0.1 + 19.9 * (1.0 - u)

    def drift(u, x):
        return beta(u) * (0.5 * x + score(x, x.new_full((len(x),), 1.0 - u)))

    def diffusion(u, x):
        return x.new_full((), beta(u) ** 0.5)

    sde = SDE(drift, diffusion, "additive", time_dependent=True)
    start = torch.randn(PARTICLES, 2, generator=torch.Generator().manual_seed(1))
    length = (schedule.last - schedule.first) / steps
    options = {"step_size": length, "num_steps": steps, "seed": 0}
    return sample(sde, start, integrator="em", **options).final


def network_score(x, t):
    tau = schedule.variance(t).unsqueeze(-1)
    return -network(x, t) * ((1.0 + tau) / tau).sqrt()


# %%
# The error is the mean of :math:`-\log p` over draws less that over data, in nats: how
# much less likely draws are than they should be. Draws that lie too close to the moons
# have a negative one, and errors of both signs can cancel: so, for the shortest runs,
# the squared energy distance to exact draws, too.

least, _ = schedule.variances
variance = (WIDTH**2 + least) / (1.0 + least)


def surprise(x):
    apart = torch.cdist(x.double(), (centres / (1.0 + least) ** 0.5).double())
    normals = (-apart.square() / (2.0 * variance)).logsumexp(-1)
    return -float(normals.mean()) + math.log(4.0 * COUNT * math.pi * variance)


noise = least**0.5 * torch.randn(500_000, 2, generator=generator)
exact = (draw(500_000, generator) + noise) / (1.0 + least) ** 0.5
truth = surprise(exact)
GRADIENTS = {"em": 1, "srk-ld": 3, "shark": 2}
LABELS = {"em": "Euler-Maruyama", "srk-ld": "SRK-LD", "shark": "ShARK"}
BUDGETS = (24, 48, 96, 192)
trained = ReverseDiffusion(network, schedule, predicts="noise")
models = {
    "score in closed form": (ReverseDiffusion(exact_score, schedule), exact_score),
    "trained network": (trained, network_score),
}
errors = {}
for title, (reverse, score) in models.items():
    print(f"{title}: errors in nats, and the energy distance after {BUDGETS[0]}")
    runs = {
        LABELS[scheme]: [
            in_variance_time(reverse, scheme, budget // cost) for budget in BUDGETS
        ]
        for scheme, cost in GRADIENTS.items()
    }
    usual = [in_usual_time(score, budget) for budget in BUDGETS]
    runs["Euler-Maruyama, usual time"] = usual
    errors[title] = {
        label: [surprise(x) - truth for x in clouds] for label, clouds in runs.items()
    }
    for label, values in errors[title].items():
        distance = float(energy_distance_squared(runs[label][0], exact[:PARTICLES]))
        listed = "  ".join(f"{value:+.3f}" for value in values)
        print(f"  {label:27s} {listed}   {distance:.4f}")
floor = float(energy_distance_squared(exact[PARTICLES:][:PARTICLES], exact[:PARTICLES]))
print(f"energy distance between exact draws: {floor:.4f}")

# %%
# Above, noise on its way to data, shown on the scale that it has at each time; below,
# the size of the error, hollow where it is negative; grey is the error of 4,000 draws.
# With the exact score, errors of ShARK and SRK-LD fall faster than Euler-Maruyama's in
# either time, and at 192 evaluations are lost in noise. Few steps are another matter:
# at 24 evaluations ShARK's draws are too close to the moons and unevenly spread, by
# their energy distance worse than Euler-Maruyama's, and SRK-LD's eight steps are far
# too long. Euler-Maruyama is better off in the usual time from 48 evaluations on. With
# the network what is left in the end is the network's own error.

kept = {}
in_variance_time(trained, "shark", 48, [lambda step, x: kept.update({step: x.clone()})])
figure, axes = plt.subplot_mosaic(
    [[*"aabbccddee"], [*"fffffggggg"]],
    figsize=(10, 6.4),
    height_ratios=(1, 1.5),
    layout="constrained",
)
for name, step in zip("abcde", (min(kept), 24, 32, 40, max(kept)), strict=True):
    cloud = kept[step] / kept[step].std()
    axes[name].scatter(*cloud.T, s=1.5, color="C0", alpha=0.5, linewidths=0)
    axes[name].set(xlim=(-2.6, 2.6), ylim=(-2.6, 2.6), xticks=[], yticks=[])
    axes[name].set_box_aspect(1)
    axes[name].set_title(f"step {step} of 48", fontsize=9)
for name, (title, curves) in zip("fg", errors.items(), strict=True):
    for number, (label, values) in enumerate(curves.items()):
        usual = "usual" in label  # Euler-Maruyama again, in its colour
        colour = "C0" if usual else f"C{number}"
        style = {"color": colour, "linestyle": "--" if usual else "-"}
        sizes = [abs(value) for value in values]
        axes[name].loglog(BUDGETS, sizes, label=label, marker="o", **style)
        hollow = [(b, -v) for b, v in zip(BUDGETS, values, strict=True) if v < 0]
        axes[name].plot(*zip(*hollow, strict=True) if hollow else ((), ()), "wo", ms=4)
    axes[name].axhspan(1e-4, 0.016, color="0.92", linewidth=0)
    axes[name].set_xticks(BUDGETS, [str(budget) for budget in BUDGETS])
    axes[name].minorticks_off()
    axes[name].set(title=title, xlabel="evaluations of the score", ylim=(3e-3, 20))
axes["f"].set_ylabel("error of -log p, nats")
axes["g"].legend(fontsize=9)
plt.show()
