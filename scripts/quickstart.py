"""Sample the 20-D Gaussian mixture with Euler-Maruyama and SRK-LD: a table and a figure of their errors."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from results import save_figure, subplots, write_csv
from torchsrk import Langevin, sample
from torchsrk.integrators import integrator_named
from torchsrk.potentials import GaussianMixture

DIM = 20
SWEEP = (0.05, 0.1, 0.2, 0.5, 0.8)
LABELS = {"em": "Euler-Maruyama", "srk-ld": "SRK-LD"}


@dataclass(frozen=True)
class Row:
    """One run's errors against the target."""

    scheme: str
    step_size: float
    gradients: int
    second_moment_error: float
    standard_error: float
    marginal_w2: float


def marginal_w2(x: Tensor, y: Tensor) -> float:
    """The Wasserstein-2 distance of each coordinate's marginal, averaged: in one dimension it pairs sorted samples."""
    return float((x.sort(dim=0).values - y.sort(dim=0).values).square().mean(0).sqrt().mean())


def measure(target: GaussianMixture, scheme: str, h: float, exact: Tensor, seed: int) -> tuple[Row, Tensor]:
    """Run a scheme from exact draws until it has reached its own law, then average over time and particles."""
    burn_in, num_steps = math.ceil(10.0 / h), math.ceil(20.0 / h)
    thin = max(1, round(1.0 / h))
    start = target.sample((len(exact),), seed=seed + 1)
    run = sample(
        Langevin(target),
        start,
        integrator=scheme,
        step_size=h,
        burn_in=burn_in,
        num_steps=num_steps,
        thin=thin,
        seed=seed,
        progress=True,
    )
    assert run.trajectory is not None
    squared = run.trajectory.double().square().sum(-1).mean(0)  # over time, for each particle
    row = Row(
        scheme=scheme,
        step_size=h,
        gradients=(burn_in + num_steps) * integrator_named(scheme).gradients_per_step,
        second_moment_error=float(squared.mean()) - target.second_moment(),
        standard_error=float(squared.std()) / math.sqrt(len(squared)),
        marginal_w2=marginal_w2(run.final, exact),
    )
    return row, run.final


def gaussian_variance(scheme: str, h: float) -> float:
    """The variance each scheme gives a standard normal: both are linear there, so their laws are known."""
    if scheme == "em":
        return 1 / (1 - h / 2)
    return (2 * h * (1 - h / 2) ** 2 + h**3 / 6) / (1 - (1 - h + h**2 / 2) ** 2)


def print_table(rows: list[Row], floor: float) -> None:
    """The table a user sees."""
    print(f"\n{'scheme':16} {'h':>5} {'gradients':>10} {'error of E|x|^2':>22} {'marginal W2':>12}")
    for row in rows:
        error = f"{row.second_moment_error:+.4f} ± {row.standard_error:.4f}"
        print(f"{LABELS[row.scheme]:16} {row.step_size:5.2f} {row.gradients:10} {error:>22} {row.marginal_w2:12.4f}")
    print(f"{'exact draws':16} {'':5} {'':10} {'':22} {floor:12.4f}   (two sets of them: the floor)")


def plot(rows: list[Row], finals: dict[str, Tensor], exact: Tensor, step_size: float, file: Path) -> None:
    """Left: where the particles are at one step size. Right: the error of the second moment at all of them."""
    figure, ((left, right),) = subplots(1, 2, size=(11, 4.2))
    edges = torch.linspace(1.5, 8.0, 66)
    left.hist(exact.norm(dim=-1).numpy(), bins=edges.tolist(), density=True, color="0.8", label="exact draws")
    for scheme, x in finals.items():
        radius = x.norm(dim=-1).numpy()
        left.hist(radius, bins=edges.tolist(), density=True, histtype="step", linewidth=1.6, label=LABELS[scheme])
    left.set(xlabel="‖x‖", ylabel="density", title=f"{DIM}-D mixture, {len(exact)} particles, h = {step_size:g}")
    left.legend()
    for scheme, label in LABELS.items():
        own = [row for row in rows if row.scheme == scheme]
        sizes = [row.step_size for row in own]
        errors = [abs(row.second_moment_error) for row in own]
        right.errorbar(sizes, errors, yerr=[2 * row.standard_error for row in own], marker="o", capsize=3, label=label)
    for scheme in LABELS:
        theory = [DIM * abs(gaussian_variance(scheme, h) - 1) for h in SWEEP]
        label = "theory, for a Gaussian" if scheme == "em" else None
        right.plot(SWEEP, theory, color="0.5", linestyle=":", label=label)
    right.set(xscale="log", yscale="log", xlabel="step size h", ylabel="|error of E‖x‖²|")
    right.set_xticks(SWEEP, labels=[f"{h:g}" for h in SWEEP])
    right.minorticks_off()
    right.set_title("bias of the invariant law (bars: 2 standard errors)")
    right.legend()
    save_figure(figure, file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--particles", type=int, default=5000)
    parser.add_argument("--step-size", type=float, default=0.2, choices=SWEEP, help="the one shown on the left")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("results/quickstart"))
    arguments = parser.parse_args()
    if arguments.particles < 2:
        parser.error(f"--particles must be at least 2; got {arguments.particles}")

    target = GaussianMixture(torch.full((DIM,), (2 * DIM) ** -0.5))
    exact = target.sample((arguments.particles,), seed=arguments.seed + 2)
    floor = marginal_w2(exact, target.sample((arguments.particles,), seed=arguments.seed + 3))
    rows, finals = [], {}
    for h in SWEEP:
        for scheme in LABELS:
            row, final = measure(target, scheme, h, exact, arguments.seed)
            rows.append(row)
            if h == arguments.step_size:
                finals[scheme] = final
    print_table(rows, floor)
    figure, table = arguments.output / "quickstart.png", arguments.output / "quickstart.csv"
    plot(rows, finals, exact, arguments.step_size, figure)
    write_csv(rows, table)
    print(f"\nfigure: {figure}\ntable:  {table}")


if __name__ == "__main__":
    main()
