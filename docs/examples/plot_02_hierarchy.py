r"""
A hierarchy with constrained parameters, and ArviZ
==================================================

Thirty schools, a few pupils each (simulated). Each school's mean comes from a
population with mean :math:`\mu` and spread :math:`\tau > 0`; pupils scatter by
:math:`\sigma > 0`. Positive parameters are declared by their *support*: draws come
back positive, and the logarithm with its Jacobian is none of our business.
"""

import arviz as az
import matplotlib.pyplot as plt
import torch
from torch.distributions import HalfNormal, Normal, constraints

from torchsrk import to_arviz
from torchsrk.distributions import DiffusionDistribution

SCHOOLS = 30
generator = torch.Generator().manual_seed(4)
true_means = 5.0 + 1.5 * torch.randn(SCHOOLS, generator=generator)
pupils = torch.randint(2, 15, (SCHOOLS,), generator=generator)
school = torch.arange(SCHOOLS).repeat_interleave(pupils)
scores = true_means[school] + 3.0 * torch.randn(len(school), generator=generator)

# %%
# Points are ``(z, μ, τ, σ)``, with the school's mean :math:`\mu + \tau z` (the
# *non-centred* form: its geometry is that of one scale, which is what a sampler
# likes). ``constraints.cat`` puts supports side by side.


def log_density(x):
    z, mu, tau, sigma = x[..., :SCHOOLS], x[..., -3:-2], x[..., -2:-1], x[..., -1:]
    means = (mu + tau * z)[..., school]
    prior = Normal(0.0, 1.0).log_prob(z).sum(-1) + Normal(0.0, 10.0).log_prob(mu).sum(
        -1
    )
    prior = (
        prior
        + HalfNormal(5.0).log_prob(tau).sum(-1)
        + HalfNormal(5.0).log_prob(sigma).sum(-1)
    )
    return prior + Normal(means, sigma).log_prob(scores).sum(-1)


support = constraints.cat(
    [
        constraints.independent(constraints.real, 0),
        constraints.independent(constraints.positive, 0),
    ],
    dim=-1,
    lengths=[SCHOOLS + 1, 2],
)
posterior = DiffusionDistribution(
    log_density, event_shape=(SCHOOLS + 3,), support=support, seed=0
)
draws = posterior.sample((8_000,))
mu, tau, sigma = draws[:, -3], draws[:, -2], draws[:, -1]
print("all positive:", bool((draws[:, -2:] > 0).all()))

# %%
# For ArviZ: chains of the tuned plan, taken to the support.

run = posterior.tuning.sample(20)
names = {"z": (SCHOOLS,), "mu": (), "tau": (), "sigma": ()}
data = to_arviz(run, names=names, parameters=posterior.constrain)
print(az.summary(data, var_names=["mu", "tau", "sigma"], kind="stats"))

# %%
# Small schools are drawn towards the population's mean, large ones keep their own:
# that is what the hierarchy buys.

means = mu[:, None] + tau[:, None] * draws[:, :SCHOOLS]
raw = torch.zeros(SCHOOLS).index_add(0, school, scores) / pupils
low, high = means.quantile(torch.tensor([0.05, 0.95]), dim=0)
order = raw.argsort()

figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4), width_ratios=(1.7, 1))
at = torch.arange(SCHOOLS)
left.vlines(
    at,
    low[order],
    high[order],
    color="C0",
    alpha=0.5,
    linewidth=3,
    label="90 % of the posterior",
)
left.scatter(
    at, means.mean(0)[order], color="C0", s=18, label="posterior mean", zorder=3
)
left.scatter(
    at,
    raw[order],
    s=8 * pupils[order],
    facecolors="none",
    edgecolors="k",
    label="mean of its pupils (area: how many)",
)
left.plot(at, true_means[order], "C3_", markersize=9, label="truth")
left.axhline(float(mu.mean()), color="0.6", linewidth=1, linestyle="--")
left.set(xlabel="schools, by the mean of their pupils", ylabel="mean score", xticks=[])
left.legend(fontsize=8, loc="upper left")
for values, name, truth, colour in ((tau, "τ", 1.5, "C0"), (sigma, "σ", 3.0, "C1")):
    right.hist(
        values.numpy(),
        bins=70,
        density=True,
        color=colour,
        alpha=0.7,
        label=f"{name}, truth {truth:g}",
    )
    right.axvline(truth, ymax=0.9, color=colour, linestyle=":")
right.set(xlabel="spread between schools τ, of pupils σ", yticks=[], ylim=(0.0, 3.9))
right.legend(loc="upper center", ncols=2)
plt.show()
