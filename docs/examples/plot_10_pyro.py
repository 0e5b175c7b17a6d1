r"""
A model written in Pyro, beside Pyro's own NUTS
===============================================

Radon in the houses of fifteen counties (simulated): every county has a level of its
own, drawn from a population with mean :math:`\mu` and spread :math:`\tau`, and houses
measured on the ground floor have less of it. The model is Pyro's and so is the
density; torchsrk takes it for all of its particles at once.
"""

import time

import arviz as az
import matplotlib.pyplot as plt
import pyro
import pyro.distributions as dist
import torch
from pyro.infer import MCMC, NUTS

from torchsrk import diagnose, tune
from torchsrk.interop import potential_from_pyro

COUNTIES, HOUSES = 15, 120
generator = torch.Generator().manual_seed(3)
levels = 1.5 + 0.4 * torch.randn(COUNTIES, generator=generator)
weights = torch.rand(COUNTIES, generator=generator) ** 2 + 0.02  # some have few houses
county = torch.multinomial(weights, HOUSES, replacement=True, generator=generator)
floor = (torch.rand(HOUSES, generator=generator) < 0.3).float()
noise = torch.randn(HOUSES, generator=generator)
radon = levels[county] - 0.7 * floor + 0.8 * noise


def model(county, floor, radon):
    mu = pyro.sample("mu", dist.Normal(0.0, 3.0))
    tau = pyro.sample("tau", dist.HalfNormal(1.0))
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
    sigma = pyro.sample("sigma", dist.HalfNormal(1.0))
    with pyro.plate("counties", COUNTIES):
        z = pyro.sample("z", dist.Normal(0.0, 1.0))
    with pyro.plate("houses", HOUSES):
        mean = mu + tau * z[county] + slope * floor
        pyro.sample("radon", dist.Normal(mean, sigma), obs=radon)


# %%
# torchsrk: tuned, and ten draws of each of a thousand particles. What is read are the
# sites of the model, ``tau`` and not its logarithm. Seconds here are the processor's.

start = time.process_time()
potential = potential_from_pyro(model, county, floor, radon)
plan = tune(potential, seed=0)
tuned = time.process_time() - start
run = plan.sample(10)
drawn = time.process_time() - start - tuned
ours = potential.values(run.trajectory.flatten(0, 1))
diagnosis = diagnose(run, tuning=plan, names=potential.names)
print(diagnosis)

# %%
# Pyro's NUTS, as it comes, on the same model: one chain.

pyro.set_rng_seed(0)
WARMUP, DRAWS = 150, 250
clock = [time.process_time()]
nuts = MCMC(
    NUTS(model),
    warmup_steps=WARMUP,
    num_samples=DRAWS,
    disable_progbar=True,
    hook_fn=lambda *_: clock.append(time.process_time()),
)
nuts.run(county, floor, radon)
theirs = nuts.get_samples()
warm, sampled = clock[WARMUP] - clock[0], clock[-1] - clock[WARMUP]

# %%
# How many independent draws these are worth, by the parameter that is worth the
# least: of the particles by ``diagnose``, which compares them with one another, and
# of the one chain by ArviZ. After the set-up seconds grow with the draws.


def seconds_to(wanted, setup, sampling, worth):
    return setup, sampling * wanted / worth


worth = min(row["ess"] for row in diagnosis.rows())
chain = az.from_dict({name: value[None].numpy() for name, value in theirs.items()})
worth_of_nuts = float(min(value.min() for value in az.ess(chain).values()))
print(f"worth: torchsrk {worth:.0f} in {drawn:.1f} s after {tuned:.1f} s")
print(f"worth: NUTS {worth_of_nuts:.0f} in {sampled:.1f} s after {warm:.1f} s")
bars = {
    "NUTS": seconds_to(1000, warm, sampled, worth_of_nuts),
    "torchsrk": seconds_to(1000, tuned, drawn, worth),
}

# %%
# The two agree on every county, small ones (above) and large ones; and what the same
# precision costs.

figure, (left, right) = plt.subplots(
    1, 2, figsize=(10, 4.6), width_ratios=(1.5, 1), layout="constrained"
)
order = torch.bincount(county, minlength=COUNTIES).argsort(descending=True)
ends = torch.tensor([0.05, 0.95])
for sites, label, colour, shift in (
    (ours, "torchsrk", "C0", 0.15),
    (theirs, "Pyro's NUTS", "C1", -0.15),
):
    level = sites["mu"][:, None] + sites["tau"][:, None] * sites["z"]
    low, high = level.quantile(ends, dim=0)[:, order]
    at = torch.arange(COUNTIES) + shift
    left.hlines(at, low, high, color=colour, linewidth=3, alpha=0.6, label=label)
    left.scatter(level.mean(0)[order], at, color=colour, s=16, zorder=3)
left.plot(levels[order], torch.arange(COUNTIES), "k|", markersize=13, label="truth")
houses = torch.bincount(county, minlength=COUNTIES)[order]
left.set_yticks(range(COUNTIES), [f"{count}" for count in houses.tolist()])
left.set(ylabel="counties, by their houses", xlabel="level: mean, 90 % interval")
left.legend(fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
for part, name, shade in ((0, "tuning, warm-up", 0.4), (1, "draws", 0.9)):
    widths = [bar[part] for bar in bars.values()]
    begin = [sum(bar[:part]) for bar in bars.values()]
    right.barh(
        list(bars), widths, left=begin, color=["C1", "C0"], alpha=shade, label=name
    )
for row, bar in enumerate(bars.values()):
    right.text(sum(bar), row, f" {sum(bar):.0f} s", va="center")
right.set(xlabel="processor seconds to 1,000 effective draws")
right.set_xlim(0.0, 1.15 * max(map(sum, bars.values())))
keys = [plt.Rectangle((0, 0), 1, 1, color="0.3", alpha=shade) for shade in (0.4, 0.9)]
right.legend(
    keys,
    ["tuning, warm-up", "draws"],
    fontsize=8,
    loc="lower center",
    bbox_to_anchor=(0.5, 1.0),
    ncols=2,
)
plt.show()
