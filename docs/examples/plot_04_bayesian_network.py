r"""
A Bayesian network, with minibatches
====================================

Two half-moons of points, a network with one hidden layer, and a posterior over its 97
weights in place of one best setting. Every gradient sees 64 of the 2,000 points:
``MinibatchPotential`` draws them, and ``compile=True`` puts them, the network, its
gradient and the noise into one C loop.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import make_moons
from torch.nn.functional import binary_cross_entropy_with_logits

from torchsrk import UnderdampedLangevin, sample
from torchsrk.potentials import FunctionPotential, MinibatchPotential

points, labels = make_moons(2000, noise=0.15, random_state=0)
X = torch.tensor(points, dtype=torch.float32)
y = torch.tensor(labels, dtype=torch.float32)

HIDDEN = 24
DIM = 2 * HIDDEN + HIDDEN + HIDDEN + 1


def logits(weights, x):
    """Of points x (points, 2), for weights (..., 97): (..., points)."""
    into = weights[..., : 2 * HIDDEN].unflatten(-1, (2, HIDDEN))
    bias = weights[..., 2 * HIDDEN : 3 * HIDDEN].unsqueeze(-2)
    out = weights[..., 3 * HIDDEN : 4 * HIDDEN].unsqueeze(-1)
    return (torch.tanh(x @ into + bias) @ out).squeeze(-1) + weights[..., -1:]


def loss(weights, x, y):
    """Of every observation of a minibatch, (..., observations)."""
    z = logits(weights, x)
    return binary_cross_entropy_with_logits(z, y.expand_as(z), reduction="none")


prior = FunctionPotential(lambda w: 0.5 * w.square().sum(-1), dim=DIM)
target = MinibatchPotential(loss, (X, y), batch_size=64, prior=prior, seed=1)

# %%
# A hundred chains from the prior. Momentum averages the minibatches' noise over
# several steps.

sde = UnderdampedLangevin(target, friction=1.0)
start = torch.randn(100, DIM, generator=torch.Generator().manual_seed(0))
run = sample(
    sde,
    start,
    integrator="baoab",
    step_size=0.01,
    burn_in=1500,
    num_steps=1000,
    thin=250,
    seed=0,
    compile=True,
)
weights = run.trajectory.flatten(0, 1)
right = (torch.sigmoid(logits(weights, X)).mean(0) > 0.5) == y.bool()
print(f"{len(weights)} networks; accuracy of their mean: {right.float().mean():.3f}")

# %%
# On the left what the posterior predicts; on the right how far its networks disagree:
# along the boundary, and in ever wider fans where there are no data to decide. A
# single network has no such picture.

side = torch.linspace(-2.2, 3.2, 120)
grid = torch.cartesian_prod(side, side)
with torch.no_grad():
    probability = torch.sigmoid(logits(weights, grid))
mean, spread = probability.mean(0).view(120, 120).T, probability.std(0).view(120, 120).T

figure, axes = plt.subplots(1, 2, figsize=(9, 4.1), sharex=True, sharey=True)
for axis, values, cmap, colour, title in (
    (axes[0], mean, "RdBu_r", "k", "probability of the lower moon"),
    (axes[1], spread, "magma", "w", "standard deviation over networks"),
):
    image = axis.pcolormesh(side, side, values, cmap=cmap, vmin=0.0, shading="gouraud")
    axis.scatter(*X[::5].T, c=colour, s=4, alpha=0.6, linewidths=0)
    axis.set(title=title, xlim=(-2.2, 3.2), ylim=(-2.2, 3.2), xticks=[], yticks=[])
    figure.colorbar(image, ax=axis, shrink=0.9)
axes[0].contour(side, side, mean, levels=[0.5], colors="k", linewidths=1)
plt.show()
