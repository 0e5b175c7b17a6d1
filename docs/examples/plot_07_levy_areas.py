r"""
State-dependent noise, with and without Lévy areas
==================================================

Where noise depends on the state, two Brownian paths with the same increments may end
a solution in different places. What tells them apart is the *Lévy area*, which lies
between a path and its chord. A scheme of strong order 1 needs it; here is what goes
wrong without.

The diffusion is that of the paper's non-convex target in two dimensions, :math:`dX =
b(X)\,dt + \sqrt{g(X)}\,dB` with :math:`g(x) = \sqrt{\beta + \|x\|^2}`: noise that
grows with the distance from the origin.
"""

from dataclasses import replace

import matplotlib.pyplot as plt
import torch

from torchsrk import SRKID, EulerMaruyama, ItoDiffusion
from torchsrk.brownian import BrownianPath, Needs
from torchsrk.potentials import NonConvex
from torchsrk.reference import fine_solution

target = NonConvex(beta=0.1, gamma=0.5, dim=2)
sde = ItoDiffusion(target, diffusion=target.scale, noise_type="isotropic")
x0 = target.sample((500,), seed=1).double()

# %%
# One path for all: a fine solution, and coarse ones on the same increments.
# ``BrownianPath`` composes the areas of coarse steps from those of its finest cells,
# so that they are the areas *of this path*.

path = BrownianPath((500, 2), num_steps=256, seed=0)
with torch.no_grad():
    truth = fine_solution(sde, x0, path)


def solve(scheme, steps, change):
    """The end of the path in so many steps, each with its increment changed."""
    x, h = x0, 1.0 / steps
    for k in range(steps):
        increment = path.increment(
            k, k * h, h, Needs.INCREMENT | Needs.SPACE_TIME_AREA | Needs.LEVY_AREA
        )
        x = scheme.step(sde, k * h, x, change(increment))
    return x


def of_the_path(increment):
    return increment


def set_to_zero(increment):
    return replace(increment, A=torch.zeros_like(increment.A))


def of_another_path(increment):
    """Areas of the right law, and of a path that is a neighbour's."""
    return replace(increment, A=increment.A.roll(1, 0))


# %%
# With its own areas SRK-ID has order 1. Without them, or with areas of the right law
# drawn anew, it has Euler-Maruyama's order ½, and gains a constant factor at most. In
# law, drawn areas are as good: for sampling it is the law that counts.

STEPS = (4, 8, 16, 32, 64)
cases = {
    "Euler-Maruyama": (EulerMaruyama(), of_the_path, "C0o-"),
    "SRK-ID, areas set to 0": (SRKID(), set_to_zero, "C7s--"),
    "SRK-ID, areas of another path": (SRKID(), of_another_path, "C3^--"),
    "SRK-ID, areas of the path": (SRKID(), of_the_path, "C2o-"),
}
with torch.no_grad():
    ends = {
        name: [solve(scheme, n, change) for n in STEPS]
        for name, (scheme, change, _) in cases.items()
    }

figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4.2), width_ratios=(1, 1.15))
coarse = STEPS.index(64)
for name in ("Euler-Maruyama", "SRK-ID, areas of the path"):
    colour = cases[name][2][:2]
    left.scatter(
        truth[:, 0],
        (ends[name][coarse] - truth)[:, 0],
        s=5,
        color=colour,
        alpha=0.5,
        linewidths=0,
        label=name,
    )
left.set(
    xlabel="truth, first coordinate",
    ylabel="error",
    title="64 steps, one dot a path",
    ylim=(-0.2, 0.2),
    xlim=(-5, 5),
)
left.legend(loc="upper left", markerscale=3)
for name, (_, _, mark) in cases.items():
    errors = [float((x - truth).square().sum(-1).mean().sqrt()) for x in ends[name]]
    print(f"{name:30s}", "  ".join(f"{error:.4f}" for error in errors))
    right.loglog([1.0 / n for n in STEPS], errors, mark, label=name)
right.set(
    xlabel="step size", ylabel="root-mean-square error of a path", title="strong error"
)
right.set_xticks([1 / n for n in STEPS], [f"1/{n}" for n in STEPS])
right.minorticks_off()
right.legend()
plt.show()
