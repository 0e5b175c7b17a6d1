"""Fit the drift and the diffusion of an SDE from its trajectories, through the solver.

The data are trajectories of a noisy van der Pol oscillator, seen at intervals of 0.2. From each observation SRK-ID
takes a few particles of the model through ten steps to the next one, where they are scored by E‖X - y‖ - ½E‖X - X'‖,
the energy score. It is strictly proper: its mean over the data is least where the model's transition law is the data's
and only there, so its minimiser tends to the truth as data grow, up to the solver's error. The gradient goes through
all ten steps.

Tables and a figure then show how far the fit is from the truth, that gradients are torchsde's on the same Brownian
path, and how much less memory a backward pass takes with recomputation (read from Linux's /proc).
"""

from __future__ import annotations

import copy
import math
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from torchsrk import SDE, integrate
from torchsrk.brownian import BrownianPath
from torchsrk.brownian.noise import derive_seed
from torchsrk.experiments import plots
from torchsrk.experiments.folder import RunFolder
from training import History, parse_options, run_folder, train

INTERVAL, STEP_SIZE, FINE_STEP_SIZE = 0.2, 0.02, 0.004  # between observations; of the fit; of the data
BOX = torch.tensor([2.5, 3.0])  # half the sides of where trajectories start
RATE = 1e-2
DATA, WEIGHTS, UPDATES, PATH = range(4)  # what a run's seeds are for


@dataclass(frozen=True)
class Size:
    """How much of everything, by default for a full run."""

    trajectories: int = 16384
    held_out: int = 2048
    observations: int = 21
    updates: int = 3000
    batch: int = 1024
    particles: int = 4  # for each transition
    evaluations: int = 30  # of the errors, in the course of training
    gradient_steps: tuple[int, ...] = (16, 32, 64, 128, 256)  # see compare_gradients
    plain_steps: tuple[int, ...] = (100, 300, 1000)
    recomputed_steps: tuple[int, ...] = (100, 300, 1000, 3000)
    memory_particles: int = 1000


QUICK = Size(
    trajectories=1024,
    held_out=256,
    observations=6,
    updates=80,
    batch=256,
    evaluations=4,
    gradient_steps=(16, 32, 64),
    plain_steps=(300,),
    recomputed_steps=(300,),
)


@dataclass(frozen=True)
class ErrorRow:
    """Relative L2 errors on held-out states after so many updates; the loss is a mean since the row before."""

    updates: int
    loss: float
    drift_error: float
    diffusion_error: float


@dataclass(frozen=True)
class GradientRow:
    """‖ours - torchsde's‖ / ‖torchsde's‖ of the gradient in all parameters, on one Brownian path."""

    scheme: str
    torchsde_method: str
    step_size: float
    difference: float


@dataclass(frozen=True)
class MemoryRow:
    """A forward and a backward pass; the peak is above what the process took before."""

    backward: str
    steps: int
    peak_mb: float
    seconds: float
    gradient_norm: float


# -------------------------------------------------------------------------------------------- the truth and the model


def true_drift(x: Tensor) -> Tensor:
    """Van der Pol's oscillator in Liénard's coordinates."""
    first, second = x.unbind(-1)
    return torch.stack((first - first.pow(3) / 3 + second, -first), dim=-1)


def true_diffusion(x: Tensor) -> Tensor:
    """The diagonal: entry i is a function of x_i alone."""
    first, second = x.unbind(-1)
    return 0.5 + 0.2 * torch.stack(((2 * first).sin(), (2 * second).cos()), dim=-1)


TRUTH = SDE(true_drift, true_diffusion, "diagonal")


def trajectories(count: int, observations: int, seed: int) -> Tensor:
    """States at the start, uniform in a box that holds the limit cycle, and after each interval: (times, count, 2)."""
    x0 = BOX * (2.0 * torch.rand(count, 2, generator=torch.Generator().manual_seed(seed)) - 1.0)
    ts = [INTERVAL * k for k in range(observations)]
    with torch.no_grad():
        return integrate(TRUTH, x0, ts, integrator="srk-id", step_size=FINE_STEP_SIZE, seed=seed, progress=True)


def transitions(observed: Tensor) -> tuple[Tensor, Tensor]:
    """Every state but a trajectory's last, and the state an interval later."""
    return observed[:-1].flatten(0, 1), observed[1:].flatten(0, 1)


class EntryByEntry(nn.Module):
    """A positive diagonal: entry i is a small network of x_i alone."""

    def __init__(self, dim: int, width: int) -> None:
        super().__init__()
        self.slope = nn.Parameter(2.0 * torch.randn(dim, width))
        self.shift = nn.Parameter(2.0 * torch.randn(dim, width))
        self.weight = nn.Parameter(torch.randn(dim, width) / (2.0 * math.sqrt(width)))
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(x.unsqueeze(-1) * self.slope + self.shift)
        return softplus((hidden * self.weight).sum(-1) + self.bias)


def untrained_model(seed: int) -> SDE:
    """Networks for drift and diffusion."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        hidden = (nn.Linear(2, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh())
        return SDE(nn.Sequential(*hidden, nn.Linear(48, 2)), EntryByEntry(2, 16), "diagonal")


# ------------------------------------------------------------------------------------------------------------ the fit


def predict(sde: SDE, starts: Tensor, particles: int, seed: int) -> Tensor:
    """Particles an interval after each start, (particles, starts, 2)."""
    x0 = starts.expand(particles, *starts.shape)
    return integrate(sde, x0, (0.0, INTERVAL), integrator="srk-id", step_size=STEP_SIZE, seed=seed)[-1]


def energy_score(particles: Tensor, observed: Tensor) -> Tensor:
    """The mean over observations (n, dim) of an unbiased E‖X - y‖ - ½E‖X - X'‖ from particles (m, n, dim)."""
    first, second = torch.triu_indices(len(particles), len(particles), offset=1)
    spread = (particles[first] - particles[second]).norm(dim=-1).mean()
    return (particles - observed).norm(dim=-1).mean() - 0.5 * spread


@torch.no_grad()
def errors(model: SDE, points: Tensor) -> tuple[float, float]:
    """The relative L2 errors of drift and diffusion over points of the data's law."""
    pairs = ((model.drift(0.0, points), true_drift(points)), (model.sigma(0.0, points), true_diffusion(points)))
    drift, diffusion = (float((learned - true).norm() / true.norm()) for learned, true in pairs)
    return drift, diffusion


def fit(size: Size, seed: int, observed: Tensor, points: Tensor, folder: RunFolder) -> tuple[SDE, list[ErrorRow]]:
    """Train a model, or go on with the one in the folder; errors are over the points."""
    model = untrained_model(derive_seed(seed, WEIGHTS))
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    starts, ends = transitions(observed)
    update_seed, every = derive_seed(seed, UPDATES), size.updates // size.evaluations
    history = History()  # the errors of drift and diffusion in turn

    def update(k: int) -> float:
        if k % every == 0:
            history.values.extend(errors(model, points))
        own_seed = derive_seed(update_seed, k)
        drawn = torch.randint(len(starts), (size.batch,), generator=torch.Generator().manual_seed(own_seed))
        optimiser.param_groups[0]["lr"] = 0.5 * RATE * (1.0 + math.cos(math.pi * k / size.updates))
        loss = energy_score(predict(model, starts[drawn], size.particles, own_seed), ends[drawn])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return loss.item()

    losses = train(
        update,
        updates=size.updates,
        state={"model": model, "optimiser": optimiser, "errors": history},
        folder=folder,
        unit="model",
        save_every=every,
    )
    found = [*history.values, *errors(model, points)]
    means = [losses[0], *torch.tensor(losses).view(-1, every).mean(-1).tolist()]
    columns = zip(range(0, size.updates + 1, every), means, found[::2], found[1::2], strict=True)
    return model, [ErrorRow(*row) for row in columns]


# ---------------------------------------------------------------------------------------- gradients beside torchsde's


def parameter_gradient(model: SDE, final: Tensor) -> Tensor:
    """Of the mean of ‖x‖² at the end, in all parameters at once."""
    loss = final.square().sum(-1).mean()
    return torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(model.parameters()))])


def compare_gradients(model: SDE, x0: Tensor, steps: tuple[int, ...], seed: int) -> list[GradientRow]:
    """Both libraries solve the model over one path on [0, 1], in float64 and at equal steps, and differentiate.

    torchsde adds its steps up: the counts are powers of two, for which the sum is exact.
    """
    from torchsde import sdeint

    model, x0 = copy.deepcopy(model).double(), x0.double()
    path = BrownianPath(x0.shape, num_steps=max(steps), seed=seed)
    ts = torch.tensor([path.t0, path.t1], dtype=x0.dtype)
    rows = []
    for scheme, method in (("em", "euler"), ("srk-id", "milstein"), ("srk-id", "srk")):
        for h in (1.0 / count for count in steps):
            ours = integrate(model, x0, ts, integrator=scheme, step_size=h, path=path)[-1]
            theirs = sdeint(model, x0, ts, bm=path.interval, method=method, dt=h)[-1]
            mine, other = parameter_gradient(model, ours), parameter_gradient(model, theirs)
            rows.append(GradientRow(scheme, method, h, float((mine - other).norm() / other.norm())))
    return rows


# ------------------------------------------------------------------------------------------ memory of a backward pass


def peak_mb() -> float:
    """This process's peak memory so far. Not ru_maxrss: a child starts with its parent's."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


def backward_pass(steps: int, recompute: bool, particles: int) -> MemoryRow:
    """Forward and backward through so many steps; for a process of its own."""
    torch.set_num_threads(1)
    model, x0 = untrained_model(seed=0), torch.zeros(particles, 2)

    def gradient(count: int) -> Tensor:
        options: dict[str, Any] = {"integrator": "srk-id", "step_size": STEP_SIZE, "seed": 0, "recompute": recompute}
        return parameter_gradient(model, integrate(model, x0, (0.0, count * STEP_SIZE), **options)[-1])

    gradient(4)  # what is loaded and allocated once is no part of the growth
    before, start = peak_mb(), time.perf_counter()
    norm = float(gradient(steps).norm())
    seconds, peak = time.perf_counter() - start, peak_mb() - before
    return MemoryRow("recomputed" if recompute else "plain", steps, peak, seconds, norm)


def measure_memory(size: Size) -> list[MemoryRow]:
    """A row for each number of steps, plain and recomputed, each from a process of its own."""
    rows = []
    processes = get_context("forkserver")
    processes.set_forkserver_preload(["torch", "torchsrk", "torchsrk.experiments.plots"])  # once for all of them
    for recompute, steps in ((False, size.plain_steps), (True, size.recomputed_steps)):
        for count in steps:
            with ProcessPoolExecutor(1, mp_context=processes) as process:
                rows.append(process.submit(backward_pass, count, recompute, size.memory_particles).result())
    return rows


# -------------------------------------------------------------------------------------------------- tables and figure


def print_tables(fitted: list[ErrorRow], gradients: list[GradientRow], memory: list[MemoryRow]) -> None:
    """What a user sees."""
    print(f"\n{'relative L2 error':20} {'drift':>9} {'diffusion':>10}")
    for stage in (fitted[0], fitted[-1]):
        print(f"{f'{stage.updates} updates':20} {stage.drift_error:9.2%} {stage.diffusion_error:10.2%}")
    print(f"\n{'gradients: ours':20} {'torchsde':>9} {'step size':>10} {'difference':>11}")
    for pair in gradients:
        print(f"{pair.scheme:20} {pair.torchsde_method:>9} {pair.step_size:10.5f} {pair.difference:11.1e}")
    print(f"\n{'backward pass':20} {'steps':>9} {'peak MB':>10} {'seconds':>11}")
    for made in memory:
        print(f"{made.backward:20} {made.steps:9} {made.peak_mb:10.1f} {made.seconds:11.2f}")


def support(points: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The nodes (n, 2) of a grid that have points nearest to them, and the grid's spacings."""
    spacing = 2.0 * points.abs().quantile(0.999, dim=0) / count
    return (points / spacing).round().unique(dim=0) * spacing, spacing


def draw_drift(axes: Any, model: SDE, points: Tensor) -> None:
    """Arrows on the data's support."""
    nodes, spacing = support(points, 16)
    with torch.no_grad():
        learned, true = model.drift(0.0, nodes), true_drift(nodes)
    scale = {"angles": "xy", "scale_units": "xy", "scale": float(true.norm(dim=-1).quantile(0.9) / spacing.norm())}
    axes.quiver(*nodes.T.numpy(), *true.T.numpy(), color="0.7", width=0.009, label="true", **scale)
    axes.quiver(*nodes.T.numpy(), *learned.T.numpy(), color="tab:red", width=0.003, label="learned", **scale)
    axes.set(xlabel="x₁", ylabel="x₂", title="drift")
    axes.legend(loc="upper left")


def draw_drift_error(axes: Any, figure: Any, model: SDE, points: Tensor) -> None:
    """Where the learned drift is off."""
    nodes, _ = support(points, 48)
    with torch.no_grad():
        off = (model.drift(0.0, nodes) - true_drift(nodes)).norm(dim=-1)
    share = 100.0 * off / true_drift(points).square().sum(-1).mean().sqrt()
    colours = {"cmap": "magma_r", "vmin": 0.0, "vmax": float(share.quantile(0.95))}
    shown = axes.scatter(*nodes.T.numpy(), c=share.numpy(), s=14, marker="s", **colours)
    figure.colorbar(shown, ax=axes, extend="max", label="‖learned - true‖, % of the drift's root mean square")
    axes.set(xlabel="x₁", ylabel="x₂", title="error of the drift")


def draw_diffusion(axes: Any, model: SDE, points: Tensor) -> None:
    """Both entries, each over its own coordinate."""
    low, high = points.quantile(0.005, dim=0), points.quantile(0.995, dim=0)
    line = low + torch.linspace(0.0, 1.0, 200).unsqueeze(-1) * (high - low)
    with torch.no_grad():
        learned, true = model.sigma(0.0, line), true_diffusion(line)
    for i, (name, colour) in enumerate((("σ₁(x₁)", "tab:blue"), ("σ₂(x₂)", "tab:orange"))):
        axes.plot(line[:, i].numpy(), true[:, i].numpy(), color=colour, linewidth=5, alpha=0.3, label=f"{name}, true")
        axes.plot(line[:, i].numpy(), learned[:, i].numpy(), color=colour, label=f"{name}, learned")
    axes.set(xlabel="xᵢ", ylabel="σᵢ", title="diffusion, over 99 % of the data", ylim=(0.0, None))
    axes.legend(ncols=2, loc="lower center")


def draw_course(axes: Any, fitted: list[ErrorRow]) -> None:
    """The errors in the course of training."""
    updates = [row.updates for row in fitted]
    axes.plot(updates, [100.0 * row.drift_error for row in fitted], marker=".", label="drift")
    axes.plot(updates, [100.0 * row.diffusion_error for row in fitted], marker=".", label="diffusion")
    axes.set(yscale="log", xlabel="updates", ylabel="relative L2 error, %", title="error on held-out states")
    axes.set_yticks((2, 5, 10, 20, 50, 100), labels=("2", "5", "10", "20", "50", "100"))
    axes.minorticks_off()
    axes.legend()


def draw_gradients(axes: Any, gradients: list[GradientRow]) -> None:
    """The distance to torchsde's gradients."""
    for scheme, method in dict.fromkeys((row.scheme, row.torchsde_method) for row in gradients):
        own = [row for row in gradients if (row.scheme, row.torchsde_method) == (scheme, method)]
        label = f"{scheme} and {method}"
        axes.plot([row.step_size for row in own], [row.difference for row in own], marker="o", label=label)
    sizes = sorted({row.step_size for row in gradients})
    axes.plot(sizes, sizes, color="0.5", linestyle=":", label="slope 1")
    axes.set(xscale="log", yscale="log", xlabel="step size", ylabel="relative difference")
    axes.set_title("gradients: ours and torchsde's, one path")
    axes.set_xticks(sizes, labels=[f"1/{round(1 / size)}" for size in sizes])
    axes.minorticks_off()
    axes.legend()


def draw_memory(axes: Any, memory: list[MemoryRow], particles: int) -> None:
    """Peak memory against steps."""
    for backward in ("plain", "recomputed"):
        own = [row for row in memory if row.backward == backward]
        axes.plot([row.steps for row in own], [row.peak_mb for row in own], marker="o", label=backward)
    axes.set(xlabel="steps", ylabel="peak, MB", title=f"memory of a backward pass, {particles} particles")
    axes.legend()


def main() -> None:
    options = parse_options(__doc__, "results/train_neural_sde")
    size, seed = QUICK if options.quick else Size(), options.seed
    torch.set_num_threads(1)  # networks this small gain little by more, and so a run's bits don't depend on them
    with run_folder(options, size) as folder:
        observed = trajectories(size.trajectories + size.held_out, size.observations, derive_seed(seed, DATA))
        seen, held_out = observed.split((size.trajectories, size.held_out), dim=1)
        points = held_out.flatten(0, 1)
        model, fitted = fit(size, seed, seen, points, folder)
        gradients = compare_gradients(model, points[:256], size.gradient_steps, derive_seed(seed, PATH))
        memory = measure_memory(size)
        results: dict[str, list[Any]] = {"training": fitted, "gradients": gradients, "memory": memory}
        tables = [folder.write_table(name, rows) for name, rows in results.items()]
        figure, axes = plots.panels(6, width=5, height=4.25, columns=3)
        drift, drift_error, diffusion, course, gradient, peak = axes
        draw_drift(drift, model, points)
        draw_drift_error(drift_error, figure, model, points)
        draw_diffusion(diffusion, model, points)
        draw_course(course, fitted)
        draw_gradients(gradient, gradients)
        draw_memory(peak, memory, size.memory_particles)
        picture = folder.write_figure("neural_sde", partial(plots.save, figure))
        print_tables(fitted, gradients, memory)
        print(f"\nfigure: {picture}\ntables: {', '.join(map(str, tables))}")


if __name__ == "__main__":
    main()
