"""Draws the pictures of words.md and index.md: ``python docs/pictures/draw.py``."""

import math
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from extensions.style import STYLE  # noqa: E402

from torchsrk import Langevin, sample  # noqa: E402
from torchsrk.potentials import FunctionPotential, GaussianMixture  # noqa: E402
from torchsrk.reference import strong_order  # noqa: E402


def log_density(x: torch.Tensor) -> torch.Tensor:
    """Five bent arms: the density of the first page."""
    radius, angle = (
        (x.square().sum(-1) + 1e-6).sqrt(),
        torch.atan2(x[..., 1], x[..., 0]),
    )
    return 3.0 * torch.cos(5.0 * (angle - 0.5 * radius)) - 2.0 * (radius - 2.0).square()


def pinwheel() -> None:
    """Particles at the start, on the way, at the end, and the density."""
    start = 2.0 * torch.randn(5000, 2, generator=torch.Generator().manual_seed(0))
    sde = Langevin(FunctionPotential(log_density=log_density, dim=2))
    options = {"integrator": "srk-ld", "step_size": 0.02, "seed": 0}
    clouds = [
        start,
        *(sample(sde, start, num_steps=steps, **options).final for steps in (10, 200)),
    ]
    side = torch.linspace(-4, 4, 300)
    density = log_density(torch.cartesian_prod(side, side)).exp().view(300, 300).T
    figure, axes = plt.subplots(1, 4, figsize=(12, 3.6))
    for axis, cloud, title in zip(
        axes, clouds, ("5,000 particles", "10 steps", "200 steps"), strict=False
    ):
        axis.scatter(*cloud.T, s=1.5, color="C0", alpha=0.5, linewidths=0)
        axis.set_title(title)
    axes[3].pcolormesh(side, side, density, cmap="magma", shading="gouraud")
    axes[3].set_title("the density")
    for axis in axes:
        axis.set(xlim=(-4, 4), ylim=(-4, 4), xticks=[], yticks=[], aspect="equal")
        axis.spines[:].set_visible(False)
    figure.savefig(HERE / "pinwheel.png")


def bridge(
    rng: np.random.Generator, steps: int, dims: int, end: np.ndarray
) -> np.ndarray:
    """A Brownian path on [0, 1] that ends there, (steps + 1, dims)."""
    path = np.vstack(
        [
            np.zeros(dims),
            np.cumsum(rng.normal(size=(steps, dims)) / math.sqrt(steps), axis=0),
        ]
    )
    at = np.linspace(0.0, 1.0, steps + 1)[:, None]
    return path + at * (end - path[-1])


def space_time_area() -> None:
    """Two paths with one increment."""
    rng, at = np.random.default_rng(3), np.linspace(0.0, 1.0, 401)
    paths = sorted(
        (bridge(rng, 400, 1, np.array([0.8]))[:, 0] for _ in range(12)),
        key=lambda path: path.mean(),
    )
    figure, axes = plt.subplots(1, 2, figsize=(7, 2.6), sharey=True)
    for axis, path in zip(axes, (paths[1], paths[-1]), strict=True):
        axis.fill_between(at, path, 0.8 * at, color="C0", alpha=0.25, linewidth=0)
        axis.plot(at, path, linewidth=1.2)
        axis.plot([0, 1], [0, 0.8], "k--", linewidth=1)
        axis.set(
            title=f"W = 0.8, H = {(path - 0.8 * at).mean():+.2f}",
            xticks=[0, 1],
            xlabel="time, in steps",
        )
    figure.savefig(HERE / "space_time_area.png")


def levy_area() -> None:
    """A path in the plane and its chord."""
    rng, end = np.random.default_rng(1), np.array([1.0, 0.3])
    paths = [bridge(rng, 400, 2, end) for _ in range(12)]
    areas = [
        0.5 * np.sum(x[:-1, 0] * np.diff(x[:, 1]) - x[:-1, 1] * np.diff(x[:, 0]))
        for x in paths
    ]
    order = np.argsort(areas)
    figure, axes = plt.subplots(1, 2, figsize=(7, 3), sharex=True, sharey=True)
    for axis, k, colour in zip(axes, (order[0], order[-1]), ("C1", "C0"), strict=True):
        axis.fill(*paths[k].T, color=colour, alpha=0.25, linewidth=0)
        axis.plot(*paths[k].T, color=colour, linewidth=1)
        axis.plot([0, end[0]], [0, end[1]], "k--", linewidth=1)
        axis.plot(*end, "ko", markersize=4)
        axis.set(
            title=f"W = (1, 0.3), A = {areas[k]:+.2f}", xlabel="B₁", aspect="equal"
        )
    axes[0].set_ylabel("B₂")
    figure.savefig(HERE / "levy_area.png")


def orders() -> None:
    """Paths of a mixture with modes apart, measured; the law of a Gaussian, exact."""
    target = GaussianMixture(torch.tensor([1.5, 0.5], dtype=torch.float64))
    x0, counts = target.sample((300,), seed=1), (4, 8, 16, 32, 64)
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2))
    for name, label, colour in (
        ("em", "Euler-Maruyama", "C0"),
        ("srk-ld", "SRK-LD", "C1"),
    ):
        found = strong_order(
            name, Langevin(target), x0, t1=1.0, num_steps=counts, fine_steps=512, seed=0
        )
        left.loglog(
            found.step_sizes,
            found.errors,
            f"{colour}o-",
            label=f"{label}: slope {found.order:.1f}",
        )
    h = np.logspace(-2, -0.1, 40)
    kept, pushed = (
        1.0 - h + h**2 / 2.0,
        1.0 - h / 2.0,
    )  # SRK-LD on N(0, 1): X' = kept X + √2(pushed W - hH)
    variances = (
        1.0 / (1.0 - h / 2.0),
        2.0 * h * (pushed**2 + h**2 / 12.0) / (1.0 - kept**2),
    )
    for variance, label, colour in zip(
        variances, ("Euler-Maruyama: h", "SRK-LD: h²"), ("C0", "C1"), strict=True
    ):
        right.loglog(h, np.abs(variance - 1.0), colour, label=label)
    left.set(
        title="error of a path", xlabel="step size", ylabel="root-mean-square error"
    )
    right.set(
        title="error of the law, on N(0, 1)",
        xlabel="step size",
        ylabel="|variance - 1|",
    )
    left.set_xticks([1 / n for n in counts], [f"1/{n}" for n in counts])
    left.minorticks_off()
    for axis in (left, right):
        axis.legend(fontsize=8)
    figure.savefig(HERE / "orders.png")


if __name__ == "__main__":
    plt.switch_backend("Agg")
    plt.rcParams.update(STYLE)
    for picture in (pinwheel, space_time_area, levy_area, orders):
        picture()
