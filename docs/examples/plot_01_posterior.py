r"""
A real posterior, without a number
==================================

A robust regression of the progress of diabetes on ten measurements (scikit-learn's
data set): slopes with a normal prior, an unknown noise level, and Student's t for the
errors, so that a few odd patients do not decide. We write down the log density and
nothing else. No step size, no warm-up, no length.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_diabetes
from torch.distributions import Normal, StudentT

from torchsrk.distributions import DiffusionDistribution

table = load_diabetes()
X = torch.tensor(table.data, dtype=torch.float32)
X = (X - X.mean(0)) / X.std(0)
y = torch.tensor(table.target, dtype=torch.float32)
y = (y - y.mean()) / y.std()

# %%
# The density takes points ``(..., 12)`` to numbers ``(...)``: a slope for each
# measurement, an intercept and the logarithm of the noise level. It may leave out
# constants.


def log_density(x):
    slopes, intercept, log_scale = x[..., :10], x[..., 10:11], x[..., 11:]
    errors = StudentT(4.0, slopes @ X.T + intercept, log_scale.exp())
    prior = Normal(0.0, 1.0).log_prob(x).sum(-1)
    return errors.log_prob(y).sum(-1) + prior


posterior = DiffusionDistribution(log_density, event_shape=(12,), seed=0)
draws = posterior.sample((10_000,))

# %%
# The first call has found coordinates, a step size and a length, and measured what
# the step's bias is. What speaks for the draws, and what against them, is printed by:

diagnosis = posterior.diagnose()
print(diagnosis)

# %%
# Slopes with their posterior densities, beside least squares (crosses). Two of the
# blood measurements are nearly the same number, and so both are badly known: together
# they are not.

least_squares = torch.linalg.lstsq(X, y.unsqueeze(1)).solution.squeeze(1)
order = draws[:, :10].mean(0).argsort()

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4.2), width_ratios=(1.35, 1))
for height, k in enumerate(order.tolist()):
    density, edges = torch.histogram(draws[:, k], bins=80, density=True)
    middle = 0.5 * (edges[1:] + edges[:-1])
    left.fill_between(
        middle,
        height,
        height + 0.085 * density,
        color="C0",
        alpha=0.75,
        linewidth=0,
        zorder=20 - height,
    )
    left.plot(least_squares[k], height, "kx", markersize=6, zorder=30)
left.axvline(0.0, color="0.7", linewidth=1)
left.set_yticks(range(10), [table.feature_names[k] for k in order.tolist()])
left.set_xlabel("slope, in standard deviations")
left.set_title("posterior of each slope")

s1, s2 = table.feature_names.index("s1"), table.feature_names.index("s2")
right.hexbin(
    draws[:, s1], draws[:, s2], gridsize=45, cmap="Blues", mincnt=1, linewidths=0
)
right.plot(least_squares[s1], least_squares[s2], "kx")
right.set(
    xlabel="slope of s1 (total cholesterol)",
    ylabel="slope of s2 (LDL)",
    title="only their sum is well known",
)
plt.show()
