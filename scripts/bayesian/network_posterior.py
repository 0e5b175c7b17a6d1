"""Posteriors of small networks on data sets of scikit-learn: exact and minibatch gradients, chains, point estimates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from sklearn.datasets import load_diabetes, load_digits
from torch import Tensor
from torch.nn.functional import one_hot

from torchsrk import Langevin, sample
from torchsrk.experiments.folder import RunFolder
from torchsrk.integrators import integrator_named
from torchsrk.potentials import FunctionPotential, MinibatchPotential, Potential
from training import train

PRIOR_SCALE = 3.0
BATCH_SIZE = 64  # where there is no sweep


@dataclass(frozen=True)
class Size:
    """How much work to do. An update of the chains is so many gradients, whatever the scheme."""

    chains: int = 32
    groups: int = 8
    hidden: int = 16
    digits: int = 500
    batch_sizes: tuple[int, ...] = (256, 64, 16)
    gradients: int = 300
    kept: int = 5
    warm_up: int = 20
    burn_in: int = 5
    updates: int = 20
    point_updates: int = 3000
    oracle_draws: int = 500


@dataclass(frozen=True)
class Setting:
    """One way to run the chains; no batch size stands for exact gradients."""

    scheme: str
    step_size: float
    batch_size: int | None

    def __str__(self) -> str:
        return f"{self.scheme}-{self.step_size:g}-{self.batch_size or 'exact'}"


# ------------------------------------------------------------------------------------------------ data and network


@dataclass(frozen=True)
class Task:
    """A data set, and a tanh network of one hidden layer for it whose weights are one vector x."""

    name: str
    inputs: Tensor
    labels: Tensor
    test_inputs: Tensor
    test_labels: Tensor
    hidden: int
    step_size: float

    @cached_property
    def shapes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Of the two layers' matrices; their last rows are the biases."""
        return (self.inputs.shape[-1] + 1, self.hidden), (self.hidden + 1, int(self.labels.max()) + 1)

    @cached_property
    def dim(self) -> int:
        return sum(rows * columns for rows, columns in self.shapes)

    @cached_property
    def precision(self) -> Tensor:
        """Of the prior, for each weight: what comes into a unit keeps its size for any number of inputs."""
        layers = [self.inputs.new_full((rows * columns,), rows / PRIOR_SCALE**2) for rows, columns in self.shapes]
        return torch.cat(layers)

    def layers(self, x: Tensor) -> list[Tensor]:
        parts = x.split([rows * columns for rows, columns in self.shapes], dim=-1)
        return [part.unflatten(-1, shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def forward(self, x: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden units and logits, (..., points, units), of networks x (..., dim); inputs (..., points, features)."""
        first, second = self.layers(x)
        hidden = torch.tanh(inputs @ first[..., :-1, :] + first[..., -1:, :])
        return hidden, hidden @ second[..., :-1, :] + second[..., -1:, :]

    def predict(self, x: Tensor) -> Tensor:
        """(..., test points, classes): probabilities."""
        return self.forward(x, self.test_inputs)[1].softmax(-1)

    def losses(self, x: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
        """(..., points): negative log likelihoods."""
        _, logits = self.forward(x, inputs)
        right = logits.gather(-1, labels.expand(logits.shape[:-1]).unsqueeze(-1)).squeeze(-1)
        return logits.logsumexp(-1) - right

    def prior(self, x: Tensor) -> Tensor:
        return 0.5 * (self.precision * x.square()).sum(-1)

    def exact(self) -> Potential:
        """The posterior's energy, with its gradient over all data."""
        return FunctionPotential(lambda x: self.prior(x) + self.losses(x, self.inputs, self.labels).sum(-1), self.dim)

    def draw_prior(self, count: int, seed: int) -> Tensor:
        normals = torch.empty_like(self.precision.expand(count, -1))
        return normals.normal_(generator=torch.Generator().manual_seed(seed)) / self.precision.sqrt()


def make_tasks(digits: int, hidden: int, seed: int) -> tuple[Task, Task]:
    """Digits, so many of them; and diabetes: half of the patients, and whether it gets worse than in the median one."""
    features, progression = load_diabetes(return_X_y=True)
    worse = progression > sorted(progression)[len(progression) // 2]
    return (
        _make_task("digits", load_digits(return_X_y=True), digits, hidden, 5e-4, seed),
        _make_task("diabetes", (features, worse), len(worse) // 2, hidden, 1e-3, seed),
    )


def _make_task(name: str, raw: tuple[Any, Any], points: int, hidden: int, step_size: float, seed: int) -> Task:
    """A random split; inputs have mean 0 on the training part, and size 1 on average."""
    inputs, labels = torch.tensor(raw[0], dtype=torch.float32), torch.tensor(raw[1], dtype=torch.long)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    inputs, labels = inputs[order], labels[order]
    inputs = inputs - inputs[:points].mean(0)
    inputs = inputs / inputs[:points].std()
    return Task(name, inputs[:points], labels[:points], inputs[points:], labels[points:], hidden, step_size)


def minibatches(task: Task, batch_size: int, chains: int, seed: int) -> MinibatchPotential:
    """The posterior with stochastic gradients, for x (..., chains, dim).

    A minibatch is the same numbers for all chains, which would tie them to one another; so each chain numbers the
    observations in an order of its own.
    """
    generator = torch.Generator().manual_seed(seed)
    orders = torch.stack([torch.randperm(len(task.labels), generator=generator) for _ in range(chains)], dim=-1)

    def loss(x: Tensor, numbers: Tensor) -> Tensor:
        return task.losses(x, task.inputs[numbers.T], task.labels[numbers.T])

    prior = FunctionPotential(task.prior, task.dim)
    return MinibatchPotential(loss, orders, batch_size=batch_size, seed=seed, prior=prior)


def unit_variance(task: Task, x: Tensor) -> Tensor:
    """n²·Var over observations of the gradient, averaged over dimensions: (...) for x (..., dim).

    Divided by b it is σ² for minibatches of b, drawn with replacement. One observation's gradient in a layer is what
    comes in times the loss's slope in what goes out, so that its squared norm is the product of theirs.
    """
    hidden, logits = task.forward(x, task.inputs)
    slope_out = logits.softmax(-1) - one_hot(task.labels)
    slope_in = slope_out @ task.layers(x)[1][..., :-1, :].mT * (1 - hidden.square())
    squares = torch.zeros_like(slope_out[..., 0])
    for before, slope in ((task.inputs, slope_in), (hidden, slope_out)):
        squares = squares + (before.square().sum(-1) + 1) * slope.square().sum(-1)
    total = task.exact().grad(x) - task.precision * x
    return (len(task.labels) * squares.sum(-1) - total.square().sum(-1)) / task.dim


# ------------------------------------------------------------------------------------------------ chains and networks


class Chains:
    """Where the chains are and what they have seen: sums over updates of each chain's averages.

    Attributes:
        sums: (4, chains), of energy, x·∇f/d, |∇f|²/d and the oracle's variance a dimension for batches of one.
        probabilities: (groups, test points, classes).
    """

    def __init__(self, task: Task, x: Tensor, groups: int) -> None:
        self.x, self.recorded = x, 0
        self.sums = x.new_zeros(4, len(x))
        self.probabilities = x.new_zeros(groups, len(task.test_labels), task.shapes[1][1])

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    def record(self, task: Task, states: Tensor) -> None:
        """Add an update's kept states, (kept, chains, dim)."""
        exact = task.exact()
        gradient = exact.grad(states)
        seen = (exact(states), (states * gradient).mean(-1), gradient.square().mean(-1), unit_variance(task, states))
        self.sums += torch.stack(seen).mean(1)
        self.probabilities += in_groups(task.predict(states).mean(0), len(self.probabilities))
        self.recorded += 1

    @property
    def averages(self) -> Tensor:
        return self.sums / self.recorded

    @property
    def posterior_mean(self) -> Tensor:
        """Of the probabilities, for each group of chains."""
        return self.probabilities / self.recorded


def in_groups(probabilities: Tensor, groups: int) -> Tensor:
    """Averages over groups of equal size, (groups, points, classes)."""
    return probabilities.unflatten(0, (groups, -1)).mean(1)


def run_chains(
    task: Task,
    setting: Setting,
    start: Tensor,
    size: Size,
    seed: int,
    *,
    burn_in: int,
    updates: int,
    folder: RunFolder,
    unit: str,
) -> Chains:
    """Langevin chains, recorded after the burn-in. Runs of one scheme, step and seed share their Brownian motion."""
    oracle = task.exact() if setting.batch_size is None else minibatches(task, setting.batch_size, len(start), seed)
    chains = Chains(task, start, size.groups)
    steps = size.gradients // integrator_named(setting.scheme).gradients_per_step

    def update(k: int) -> float:
        run = sample(
            Langevin(oracle),
            chains.x,
            integrator=setting.scheme,
            step_size=setting.step_size,
            num_steps=steps,
            first_step=k * steps,
            thin=steps // size.kept,
            seed=seed,
        )
        assert run.trajectory is not None
        chains.x = run.final
        if k >= burn_in:
            chains.record(task, run.trajectory)
        return float(task.exact()(chains.x).mean())

    train(
        update,
        updates=burn_in + updates,
        state={"chains": chains, "oracle": oracle},
        folder=folder,
        unit=unit,
        save_every=2,
    )
    return chains


def point_estimates(task: Task, size: Size, seed: int, folder: RunFolder) -> Tensor:
    """Networks (chains, dim) that Adam takes to the posterior's modes, each with a start and minibatches of its own."""
    oracle = minibatches(task, BATCH_SIZE, size.chains, seed)
    # Starts with saturated units would train badly, and flatter the posterior.
    networks = torch.nn.ParameterList([task.draw_prior(size.chains, seed) / PRIOR_SCALE])
    adam = torch.optim.Adam(networks.parameters(), lr=0.01)

    def update(k: int) -> float:
        adam.param_groups[0]["lr"] = 0.01 * (1 - k / size.point_updates)
        networks[0].grad = oracle.grad(networks[0].detach())
        adam.step()
        return float(task.exact()(networks[0]).mean())

    train(
        update,
        updates=size.point_updates,
        state={"networks": networks, "adam": adam, "oracle": oracle},
        folder=folder,
        unit=f"{task.name}-points",
    )
    return networks[0].detach()
