r"""
Schemes per gradient
====================

A gradient is what sampling costs. So: sixty gradients for every particle, whatever the
scheme makes of them, from one corner of a target that is bent like a banana. Each
scheme runs at step sizes from short to long; its best is what counts.
"""

import matplotlib.pyplot as plt
import torch

from torchsrk import Langevin, NonFiniteStateError, UnderdampedLangevin, sample
from torchsrk.integrators import integrator_named
from torchsrk.metrics import sliced_wasserstein2_squared
from torchsrk.potentials import Banana

target = Banana(spread=1.0)
exact = target.sample((4000,), seed=1)
start = torch.tensor([1.0, -2.0]) + 0.1 * torch.randn(
    4000, 2, generator=torch.Generator().manual_seed(0)
)
BUDGET = 60


def reached(name, step_size):
    """Particles after BUDGET gradients each."""
    scheme = integrator_named(name)
    sde = (
        Langevin(target)
        if scheme.is_for(Langevin(target))
        else UnderdampedLangevin(target, friction=1.5)
    )
    steps = BUDGET // scheme.gradients_per_step
    try:
        return sample(
            sde,
            start,
            integrator=scheme,
            step_size=step_size,
            num_steps=steps,
            seed=0,
            compile=True,
        ).final
    except NonFiniteStateError:
        return None


# %%
# The sliced W2² to exact draws, over step sizes. Too short a step does not get there;
# too long a one bends the law, or breaks.

SCHEMES = {
    "em": "Euler-Maruyama",
    "srk-ld": "SRK-LD",
    "sra1": "SRA1",
    "lm": "Leimkuhler-Matthews",
    "ubu": "UBU",
    "baoab": "BAOAB",
}
STEP_SIZES = [0.02 * 1.35**k for k in range(12)]
directions = {"projections": 100, "seed": 0}
distances, best = {}, {}
for name in SCHEMES:
    clouds = [reached(name, h) for h in STEP_SIZES]
    distances[name] = [
        float("inf")
        if x is None
        else float(sliced_wasserstein2_squared(x, exact, **directions))
        for x in clouds
    ]
    k = min(range(len(clouds)), key=lambda k: distances[name][k])
    best[name] = clouds[k]
    found = f"best step {STEP_SIZES[k]:<6.3f} W2² {distances[name][k]:.4f}"
    print(f"{SCHEMES[name]:22s}", found)

# %%
figure = plt.figure(figsize=(10, 5))
left, right = figure.subfigures(1, 2, width_ratios=(1, 1.25))
axis = left.subplots()
for number, (name, label) in enumerate(SCHEMES.items()):
    axis.loglog(
        STEP_SIZES, distances[name], "o-", color=f"C{number}", label=label, markersize=4
    )
axis.set(
    xlabel="step size",
    ylabel="sliced W2² to the target",
    title=f"after {BUDGET} gradients a particle",
    ylim=(None, 3),
)
axis.set_xticks([0.02, 0.05, 0.1, 0.2, 0.4], ["0.02", "0.05", "0.1", "0.2", "0.4"])
axis.minorticks_off()
axis.legend(fontsize=8)
panels = right.subplots(2, 3, sharex=True, sharey=True)
for panel, (number, (name, label)) in zip(
    panels.flat, enumerate(SCHEMES.items()), strict=True
):
    panel.scatter(*exact[::2].T, s=2, color="0.8", linewidths=0)
    panel.scatter(*best[name][::2].T, s=2, color=f"C{number}", alpha=0.5, linewidths=0)
    panel.set(xlim=(-3.2, 3.2), ylim=(-2.5, 8), xticks=[], yticks=[])
    panel.set_title(label, fontsize=9)
right.supxlabel("at its best step size (grey: exact draws)", fontsize=9)
plt.show()
