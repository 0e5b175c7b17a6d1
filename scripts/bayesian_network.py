"""Bayesian networks on real data by Langevin dynamics, and what minibatches do to the law that is sampled.

Two data sets of scikit-learn: digits, whose labels are clean, and diabetes (does it get worse than in half of the
patients?), whose labels are noisy. The posterior mean of a small network's probabilities, over a group of chains,
stands beside point estimates of the same network, one by one and averaged in groups as large: accuracy, likelihood and
calibration on the test set. Standard errors are over networks or groups; all share the training and the test set.

On digits both schemes also run with exact gradients and with several batch sizes, at two step sizes and with equal
numbers of gradients. The oracle's variance is measured, its heat is predicted (see bayesian/oracle_noise.py), and
tables and a figure show where it drowns the scheme's own error. Some seven minutes; stop it at any moment, and go on
with --resume.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product

import torch
from torch import Tensor

from bayesian.calibration import Bin, Prediction, assess, draw_reliability, print_predictions, reliability
from bayesian.network_posterior import (
    BATCH_SIZE,
    Chains,
    Setting,
    Size,
    Task,
    in_groups,
    make_tasks,
    point_estimates,
    run_chains,
)
from bayesian.oracle_noise import (
    LABELS,
    compare,
    draw,
    measure_heats,
    measure_oracle,
    print_comparison,
    print_heats,
    print_oracles,
)
from torchsrk.experiments.folder import RunFolder
from training import parse_options, run_folder

QUICK = Size(
    chains=8,
    groups=4,
    hidden=8,
    digits=200,
    batch_sizes=(64, 16),
    gradients=24,
    kept=2,
    warm_up=12,
    burn_in=1,
    updates=4,
    point_updates=200,
    oracle_draws=200,
)


def compared(task: Task) -> tuple[Setting, Setting]:
    """The settings whose predictions are shown: they spend as many gradients on a stretch of time."""
    return Setting("em", task.step_size, BATCH_SIZE), Setting("srk-ld", 3 * task.step_size, BATCH_SIZE)


def sweep(task: Task, size: Size) -> list[Setting]:
    step_sizes = (task.step_size, 3 * task.step_size)
    return [Setting(*each) for each in product(LABELS, step_sizes, (None, *size.batch_sizes))]


def run_all(task: Task, settings: Sequence[Setting], size: Size, seed: int, folder: RunFolder) -> dict[Setting, Chains]:
    """All from the same states, that exact gradients have brought from the prior to the posterior."""
    prior, exact = task.draw_prior(size.chains, seed), Setting("srk-ld", 3 * task.step_size, None)
    kept = {"folder": folder, "unit": f"{task.name}-start"}
    # Another seed, for the start not to depend on the noise to come.
    start = run_chains(task, exact, prior, size, seed + 1, burn_in=size.warm_up, updates=0, **kept).x
    amount = {"burn_in": size.burn_in, "updates": size.updates, "folder": folder}
    return {
        setting: run_chains(task, setting, start.clone(), size, seed, **amount, unit=f"{task.name}-{setting}")
        for setting in settings
    }


def assess_all(
    task: Task, points: Tensor, runs: Mapping[Setting, Chains], groups: int
) -> tuple[list[Prediction], list[Bin]]:
    """Point estimates one by one, in groups, and posterior means over groups of as many chains."""
    probabilities = {"point estimate": points, f"{len(points) // groups} point estimates": in_groups(points, groups)}
    for setting in compared(task):
        probabilities[f"posterior, {LABELS[setting.scheme]}"] = runs[setting].posterior_mean
    rows = [assess(task.name, method, parts, task.test_labels) for method, parts in probabilities.items()]
    shown = ("point estimate", f"posterior, {LABELS['srk-ld']}")
    bins = [reliability(task.name, method, probabilities[method], task.test_labels) for method in shown]
    return rows, [row for some in bins for row in some]


@torch.no_grad()
def main() -> None:
    options = parse_options(__doc__, "results/bayesian_network")
    torch.set_num_threads(1)  # matrices are small, and rounding must not depend on the number of cores
    size = QUICK if options.quick else Size()
    with run_folder(options, size) as folder:
        measure(size, options.seed, folder)


def measure(size: Size, seed: int, folder: RunFolder) -> None:
    """Run everything; print and write what was found."""
    digits, diabetes = make_tasks(size.digits, size.hidden, seed)
    predictions, bins, runs = [], [], {}
    for task, settings in ((digits, sweep(digits, size)), (diabetes, compared(diabetes))):
        points = point_estimates(task, size, seed, folder)
        runs[task.name] = run_all(task, settings, size, seed, folder)
        some_rows, some_bins = assess_all(task, task.predict(points), runs[task.name], size.groups)
        predictions, bins = predictions + some_rows, bins + some_bins
    x = runs["digits"][Setting("srk-ld", digits.step_size, None)].x
    draws = {"draws": size.oracle_draws, "seed": seed + 2}
    oracles = [measure_oracle(digits, x, batch_size=batch_size, **draws) for batch_size in size.batch_sizes]
    heats = measure_heats(digits, runs["digits"], size.gradients * (size.burn_in + size.updates))
    comparison = compare(heats, digits.step_size)
    print_predictions(predictions)
    print_oracles(oracles, digits.step_size)
    print_heats(heats)
    print_comparison(comparison, oracles[0])
    tables = {"predictions": predictions, "reliability": bins, "oracle_variance": oracles, "oracle_noise": heats}
    for name, table in tables.items():
        folder.write_table(name, table)
    first = folder.write_figure("reliability", partial(draw_reliability, bins))
    second = folder.write_figure("oracle_noise", partial(draw, heats, comparison, digits.dim))
    print(f"\nfigures: {first} and {second}")
    print(f"tables:  {', '.join(f'{name}.csv' for name in tables)}, beside them")


if __name__ == "__main__":
    main()
