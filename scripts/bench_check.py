"""What it costs that compiled runs check themselves: ``python scripts/bench_check.py``.

The share of a run that goes into the fingerprint of what the steps read and into the steps made both ways: of a first
run with a program from the disk, of later ones, and of the updates of an energy model's training loop.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from torchsrk import Langevin, sample
from torchsrk.compiled import checked, programs
from torchsrk.distributions import DiffusionDistribution
from torchsrk.potentials import FunctionPotential, GaussianMixture, LogisticRegression, Potential

PARTICLES, STEPS, RUNS, UPDATES = 5000, 1000, 5, 400


class EnergyNetwork(Potential):
    """Two layers of 128, as in train_energy_model.py."""

    dim = 2

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).squeeze(-1) + 0.05 * x.square().sum(-1)


def targets() -> dict[str, Potential]:
    """Cheap gradients, by hand and by autograd, and a dear one."""
    shift = torch.full((20,), 40.0**-0.5)
    energy = GaussianMixture(shift).forward
    return {
        "mixture, by hand": GaussianMixture(shift),
        "mixture, by autograd": FunctionPotential(energy, dim=20),
        "regression": LogisticRegression.synthetic(100, 20, seed=1),
    }


@contextmanager
def timed() -> Iterator[dict[str, float]]:
    """Seconds spent, within, on fingerprints and on checks."""
    spent = {"fingerprint": 0.0, "check": 0.0}
    originals = {"fingerprint": programs.find, "check": checked._difference}

    def clocked(part: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            start = time.perf_counter()
            try:
                return originals[part](*arguments)  # type: ignore[operator]
            finally:
                spent[part] += time.perf_counter() - start

        return call

    programs.find, checked._difference = clocked("fingerprint"), clocked("check")  # type: ignore[assignment]
    try:
        yield spent
    finally:
        programs.find, checked._difference = originals.values()  # type: ignore[assignment]


def share_of_runs(target: Potential, scheme: str) -> tuple[float, float, float]:
    """Seconds of a later run, and the shares of the checks in a program's first run and in later ones."""
    x0 = torch.zeros(PARTICLES, 20)
    options: dict[str, Any] = {"step_size": 0.05, "num_steps": STEPS, "compile": True, "integrator": scheme}
    sample(Langevin(target), x0, seed=0, **options)  # the library is on the disk now
    first, later, seconds = [], [], []
    for k in range(RUNS):
        sde = Langevin(target)
        for shares in (first, later, later):
            with timed() as spent:
                start = time.perf_counter()
                sample(sde, x0, seed=k, **options)
                total = time.perf_counter() - start
            # A program's first run has to make it, too: that is no fingerprint.
            shares.append((spent["check"] if shares is first else sum(spent.values())) / total)
            if shares is later:
                seconds.append(total)
    return statistics.median(seconds), statistics.median(first), statistics.median(later)


def share_of_training(scheme: str) -> tuple[float, float, float]:
    """Milliseconds of an update, and the shares of fingerprints and of checks."""
    torch.manual_seed(0)
    energy = EnergyNetwork()
    optimizer = torch.optim.Adam(energy.parameters(), lr=1e-3)
    steps = {"em": 30, "srk-ld": 10}[scheme]
    chains = DiffusionDistribution(
        energy, integrator=scheme, step_size=0.01, num_steps=steps, warm_start=True, seed=0, compile=True
    )
    data = torch.randn(1000, 2)

    def update() -> None:
        loss = energy(data).mean() - energy(chains.sample((1000,))).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    update()
    with timed() as spent:
        start = time.perf_counter()
        for _ in range(UPDATES):
            update()
        total = time.perf_counter() - start
    return 1e3 * total / UPDATES, spent["fingerprint"] / total, spent["check"] / total


def main() -> None:
    print(f"{PARTICLES} particles, {STEPS} steps, float32, median of {RUNS} runs")
    print(f"{'target':<22}{'scheme':<8}{'run, ms':>8}{'first run':>11}{'later':>8}")
    for name, target in targets().items():
        for scheme in ("em", "srk-ld"):
            seconds, first, later = share_of_runs(target, scheme)
            print(f"{name:<22}{scheme:<8}{1e3 * seconds:8.0f}{first:11.2%}{later:8.2%}")
    print(f"\nAn energy model's training loop, {UPDATES} updates of 1000 chains with 30 gradients each")
    print(f"{'scheme':<8}{'update, ms':>11}{'fingerprint':>13}{'check':>8}")
    for scheme in ("em", "srk-ld"):
        milliseconds, fingerprint, check = share_of_training(scheme)
        print(f"{scheme:<8}{milliseconds:11.1f}{fingerprint:13.2%}{check:8.2%}")


if __name__ == "__main__":
    main()
