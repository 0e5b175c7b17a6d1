"""Train an energy network on two-dimensional data by persistent chains, with Euler-Maruyama and with SRK-LD.

The gradient of the log likelihood is a difference of two means of the energy's gradient, over draws from the model and
over data. The draws are chains that move a little after every update (persistent contrastive divergence), both schemes
with the same number of gradients of the energy. A chain whose law is off bends the model: the energy learns to undo the
chain's bias, and what that costs shows when the model is sampled in another way.

So there are three squared energy distances to held-out data: of the persistent chains; of a fresh, long chain at a fine
step; and, as two dimensions allow it, of draws from the model's density itself, with the log likelihood. Several step
sizes and seeds; tables and pictures. Some twenty minutes; stop it at any moment, and go on with --resume.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import partial
from statistics import fmean, median, stdev
from typing import Any

import torch
from torch import Tensor, nn

from torchsrk import Chain, Langevin, NonFiniteStateError
from torchsrk.brownian.noise import derive_seed
from torchsrk.distributions import DiffusionDistribution
from torchsrk.experiments import plots
from torchsrk.experiments.folder import RunFolder
from torchsrk.experiments.runs import measured
from torchsrk.integrators import integrator_named
from torchsrk.metrics import energy_distance_squared
from torchsrk.potentials import Potential
from training import parse_options, run_folder, train

LABELS = {"em": "Euler-Maruyama", "srk-ld": "SRK-LD"}
SOURCES = {"persistent": "persistent chains", "fresh": "a fresh fine chain", "exact": "the model's density"}
EXTENT = 4.0  # the data are well within [-EXTENT, EXTENT]²


@dataclass(frozen=True)
class Settings:
    """Sizes of the comparison."""

    step_sizes: tuple[float, ...] = (0.01, 0.02, 0.04)
    seeds: int = 5
    updates: int = 2500
    gradients: int = 30  # of the energy, a chain and update
    chains: int = 1000
    batch: int = 1000
    width: int = 64
    learning_rate: float = 2e-3
    data: int = 10_000
    fresh_step_size: float = 0.004
    fresh_steps: int = 5000
    cells: int = 400  # of the grid that the density is normalised on, in each direction


QUICK = Settings(
    step_sizes=(0.04,),
    seeds=2,
    updates=100,
    chains=300,
    batch=300,
    width=32,
    learning_rate=1e-2,
    fresh_steps=200,
    cells=100,
)


@dataclass(frozen=True)
class Case:
    """One training."""

    scheme: str
    step_size: float
    seed: int

    @property
    def name(self) -> str:
        return f"{self.scheme}-h{self.step_size:g}-seed{self.seed}"


def pinwheel(points: int, *, seed: int, arms: int = 5) -> Tensor:
    """Bent arms around the origin, (points, 2).

    Across an arm the energy's curvature is 1/0.2² = 25: both schemes are stable up to a step size of 2/25.
    """
    generator = torch.Generator().manual_seed(seed)
    arm = torch.randint(arms, (points,), generator=generator)
    along, across = torch.randn(2, points, generator=generator)
    radius, aside = 1.5 + 0.45 * along, 0.2 * across
    angle = arm * (2.0 * math.pi / arms) + 0.5 * radius
    cosine, sine = angle.cos(), angle.sin()
    return torch.stack((radius * cosine - aside * sine, radius * sine + aside * cosine), dim=-1)


class EnergyNetwork(Potential):
    """A network, and a wide parabola that keeps chains from drifting off."""

    dim = 2

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(2, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).squeeze(-1) + 0.05 * x.square().sum(-1)


class GridDensity:
    """A potential's density, normalised by quadrature: constant on the cells of a grid."""

    def __init__(self, potential: Potential, cells: int) -> None:
        self.side = 2.0 * EXTENT / cells
        middle = (torch.arange(cells) + 0.5) * self.side - EXTENT
        self.middles = torch.cartesian_prod(middle, middle)
        with torch.no_grad():
            energy = potential(self.middles)
        self.log_normaliser = float((-energy).logsumexp(0)) + 2.0 * math.log(self.side)
        self.density = (-energy - self.log_normaliser).exp()

    def draw(self, points: int, *, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        cell = torch.multinomial(self.density, points, replacement=True, generator=generator)
        return self.middles[cell] + self.side * (torch.rand(points, 2, generator=generator) - 0.5)


def learning_rate(k: int, settings: Settings) -> float:
    """Constant, then down to 0 over the second half."""
    return settings.learning_rate * min(1.0, 2.0 * (1.0 - k / settings.updates))


def fit(case: Case, settings: Settings, folder: RunFolder) -> tuple[EnergyNetwork, Tensor]:
    """The trained energy, and where its persistent chains ended."""
    torch.manual_seed(case.seed)
    energy = EnergyNetwork(settings.width)
    optimizer = torch.optim.Adam(energy.parameters(), lr=settings.learning_rate, betas=(0.9, 0.99))
    start = torch.randn(settings.chains, 2, generator=torch.Generator().manual_seed(case.seed))
    options = {"integrator": case.scheme, "step_size": case.step_size, "seed": case.seed, "compile": True}
    chains = Chain(Langevin(energy), start, **options)
    steps = settings.gradients // integrator_named(case.scheme).gradients_per_step
    data = pinwheel(settings.data, seed=0)

    def update(k: int) -> float:
        draws = chains.advance(steps).final
        generator = torch.Generator().manual_seed(derive_seed(case.seed, k))
        batch = data[torch.randint(len(data), (settings.batch,), generator=generator)]
        loss = energy(batch).mean() - energy(draws).mean()
        optimizer.param_groups[0]["lr"] = learning_rate(k, settings)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    train(
        update,
        updates=settings.updates,
        state={"energy": energy, "optimizer": optimizer, "chains": chains},
        folder=folder,
        unit=case.name,
    )
    return energy, chains.advance(steps).final


def fresh_chain(energy: Potential, settings: Settings, seed: int) -> Tensor:
    """Draws by SRK-LD at a fine step, started without regard to the data."""
    return DiffusionDistribution(
        energy,
        step_size=settings.fresh_step_size,
        num_steps=settings.fresh_steps,
        initial=torch.distributions.Normal(torch.zeros(2), 2.0),
        seed=seed + 1000,
        compile=True,
        progress=True,
    ).sample((settings.chains,))


def measure(case: Case, settings: Settings, folder: RunFolder) -> dict[str, Any]:
    """Train, and score in three ways: numbers and, for pictures, points and the density."""
    held_out = pinwheel(settings.data, seed=1)
    try:
        energy, persistent = fit(case, settings, folder)
        fresh = fresh_chain(energy, settings, case.seed)
    except NonFiniteStateError as error:
        return {"diverged": str(error)}
    grid = GridDensity(energy, settings.cells)
    clouds = {"persistent": persistent, "fresh": fresh, "exact": grid.draw(settings.chains, seed=case.seed)}
    with torch.no_grad():
        log_likelihood = float(-energy(held_out).mean()) - grid.log_normaliser
    distances = {name: float(energy_distance_squared(cloud, held_out)) for name, cloud in clouds.items()}
    return {"scores": distances | {"log_likelihood": log_likelihood}, "clouds": clouds, "density": grid.density}


def summary(values: list[float]) -> str:
    """Mean ± standard error, and the median, over the seeds that did not diverge."""
    if len(values) < 2:
        return "diverged" if not values else f"{values[0]:.4g}"
    return f"{fmean(values):.4g} ± {stdev(values) / math.sqrt(len(values)):.2g} ({median(values):.4g})"


def print_table(results: dict[Case, dict[str, Any]], settings: Settings, floor: float) -> None:
    """Over seeds, a row for each scheme and step size."""
    print(f"\nsquared energy distance to held-out data ({settings.seeds} seeds: mean ± standard error, and median)")
    print(f"{'scheme':15} {'h':>5} " + " ".join(f"{label:>30}" for label in (*SOURCES.values(), "log likelihood")))
    for scheme, label in LABELS.items():
        for h in settings.step_sizes:
            own = of_setting(results, scheme, h)
            cells = [summary([scores[key] for scores in own]) for key in (*SOURCES, "log_likelihood")]
            print(f"{label:15} {h:5g} " + " ".join(f"{cell:>30}" for cell in cells))
    print(f"{'other data':15} {'':5} {floor:30.4g}   (as many draws of the data's own law: the floor)")


def of_setting(results: dict[Case, dict[str, Any]], scheme: str, h: float) -> list[dict[str, float]]:
    """The scores of all seeds that did not diverge."""
    own = [result for case, result in results.items() if (case.scheme, case.step_size) == (scheme, h)]
    return [result["scores"] for result in own if "scores" in result]


def plot_scores(results: dict[Case, dict[str, Any]], settings: Settings, floor: float, file: Any) -> None:
    """Distances against step size: how far the model's density has left its chains."""
    figure, axes = plots.panels(2, width=5.25, height=4.2)
    styles = {"persistent": ("o", "-"), "fresh": ("s", "--"), "exact": ("^", ":")}
    for axis, (scheme, label) in zip(axes, LABELS.items(), strict=True):
        for source, (marker, line) in styles.items():
            values = [[scores[source] for scores in of_setting(results, scheme, h)] for h in settings.step_sizes]
            kept = [(h, own) for h, own in zip(settings.step_sizes, values, strict=True) if len(own) > 1]
            axis.errorbar(
                [h for h, _ in kept],
                [fmean(own) for _, own in kept],
                yerr=[stdev(own) / math.sqrt(len(own)) for _, own in kept],
                marker=marker,
                linestyle=line,
                capsize=3,
                label=SOURCES[source],
            )
        axis.axhline(floor, color="0.6", linewidth=1.0, label="other data (the floor)")
        axis.set(xscale="log", yscale="log", xlabel="step size h of the training's chains", title=label)
        axis.set_xticks(settings.step_sizes, labels=[f"{h:g}" for h in settings.step_sizes])
        axis.minorticks_off()
    axes[1].sharey(axes[0])
    axes[0].set_ylabel("squared energy distance to held-out data")
    axes[0].legend()
    figure.suptitle(f"What the model is worth: mean ± standard error over {settings.seeds} seeds")
    plots.save(figure, file)


def plot_models(results: dict[Case, dict[str, Any]], settings: Settings, file: Any) -> None:
    """At a middle step size, first seed: data, persistent chains, density and fresh draws."""
    figure, axes = plots.panels(8, width=3.4, height=3.5, columns=4)
    data, h = pinwheel(settings.chains, seed=1), settings.step_sizes[len(settings.step_sizes) // 2]
    for row, (scheme, label) in zip((axes[:4], axes[4:]), LABELS.items(), strict=True):
        result = next(result for case, result in results.items() if (case.scheme, case.step_size) == (scheme, h))
        if "clouds" not in result:
            continue
        clouds = {"held-out data": data, **{SOURCES[name]: result["clouds"][name] for name in ("persistent", "fresh")}}
        for axis, (title, cloud) in zip((row[0], row[1], row[3]), clouds.items(), strict=True):
            axis.scatter(*cloud.T, s=2, color="0.2" if title == "held-out data" else "tab:blue")
            axis.set_title(title)
        density = result["density"].view(settings.cells, settings.cells).T
        image = row[2].imshow(
            density, origin="lower", extent=(-EXTENT, EXTENT, -EXTENT, EXTENT), cmap="magma", vmin=0.0, vmax=0.8
        )
        row[2].set_title(f"{SOURCES['exact']}, peak {density.max():.2g}")
        figure.colorbar(image, ax=row[2], shrink=0.8, extend="max", label="density")
        for axis in row:
            axis.set(xlim=(-EXTENT, EXTENT), ylim=(-EXTENT, EXTENT), aspect="equal", xlabel="x₁")
        row[0].set_ylabel(f"{label}, h = {h:g}\nx₂")
    plots.save(figure, file)


def main() -> None:
    options = parse_options(__doc__, "results/train_energy_model")
    settings = QUICK if options.quick else Settings()
    torch.set_num_threads(1)  # tensors this small lose more by being shared out than they gain
    seeds = range(options.seed, options.seed + settings.seeds)
    cases = [Case(scheme, h, seed) for h in settings.step_sizes for scheme in LABELS for seed in seeds]
    with run_folder(options, settings) as folder:
        plan = {f"{case.name}-scores": case for case in cases}
        found = measured(folder, plan, lambda case, _: measure(case, settings, folder), progress=False)
        conclude(dict(zip(cases, found.values(), strict=True)), settings, folder)


def conclude(results: dict[Case, dict[str, Any]], settings: Settings, folder: RunFolder) -> None:
    """Print and write what was found."""
    held_out = pinwheel(settings.data, seed=1)
    floor = float(energy_distance_squared(pinwheel(settings.chains, seed=2), held_out))
    print_table(results, settings, floor)
    nothing = dict.fromkeys((*SOURCES, "log_likelihood"), math.nan)
    rows = [asdict(case) | result.get("scores", nothing) for case, result in results.items()]
    print(f"csv: {folder.write_table('scores', rows)}")
    print(f"png: {folder.write_figure('scores', partial(plot_scores, results, settings, floor))}")
    print(f"png: {folder.write_figure('models', partial(plot_models, results, settings))}")


if __name__ == "__main__":
    main()
