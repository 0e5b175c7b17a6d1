"""What compiling costs a user: ``python scripts/bench_compile.py``.

Every first call of ``sample(..., compile=True)`` is one of a new process that has imported torchsrk, with an empty disk
cache and with a filled one: of usual densities, and of densities that a Python loop over 1,000 steps of a series makes;
of these by what the time goes into, too. Seconds of the processor, the C compiler's included, and beside them of the
clock; the run's own steps are among them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Normal

from torchsrk import Langevin, sample
from torchsrk.potentials import FunctionPotential, GaussianMixture, LogisticRegression, Potential

PARTICLES, SCHEME_STEPS, LENGTH = 1000, 60, 1000
PARTS = ("steps run to count", "tracing", "finding loops", "lowering", "C compiler", "check")

Density = tuple[Potential, int]


def network(*widths: int) -> Density:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.Tanh()]
    energy = nn.Sequential(*layers[:-1])
    return FunctionPotential(lambda x: energy(x).squeeze(-1) + 0.5 * x.square().sum(-1)), widths[0]


def eight_schools() -> Density:
    y = torch.tensor([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    sigma = torch.tensor([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

    def energy(x: Tensor) -> Tensor:
        mu, log_tau, eta = x[..., 0], x[..., 1], x[..., 2:]
        tau = log_tau.exp()
        misfit = (y - mu[..., None] - tau[..., None] * eta) / sigma
        prior = 0.5 * (mu / 5.0) ** 2 + torch.log1p((tau / 5.0) ** 2) - log_tau + 0.5 * (eta**2).sum(-1)
        return prior + 0.5 * (misfit**2).sum(-1)

    return FunctionPotential(energy), 10


def series() -> Tensor:
    return torch.randn(LENGTH, generator=torch.Generator().manual_seed(0))


def garch() -> Density:
    y = series()

    def energy(x: Tensor) -> Tensor:
        mean, omega = x[..., 3], (x[..., 0] - 1).exp()
        alpha, beta = torch.sigmoid(x[..., 1] - 1), torch.sigmoid(x[..., 2] - 1)
        variance, loss = omega, x.square().sum(-1)
        for t in range(LENGTH):
            square = (y[t] - mean) ** 2
            loss = loss + 0.5 * (variance.log() + square / variance)
            variance = omega + alpha * square + beta * variance
        return loss

    return FunctionPotential(energy), 4


def first_order() -> Density:
    y = series()

    def energy(x: Tensor) -> Tensor:
        phi, log_scale = torch.tanh(x[..., 0]), x[..., 1]
        loss, before = x.square().sum(-1), y[0]
        for t in range(1, LENGTH):
            loss = loss + 0.5 * ((y[t] - phi * before) / log_scale.exp()) ** 2 + log_scale
            before = y[t]
        return loss

    return FunctionPotential(energy), 2


def latent() -> Density:
    """A series that is not seen itself: its every step is a number of the state's."""
    y = series()

    def energy(x: Tensor) -> Tensor:
        phi, steps = torch.tanh(x[..., 0]), x[..., 1:]
        level, loss = torch.zeros_like(phi), 0.5 * x.square().sum(-1)
        for t in range(LENGTH):
            level = phi * level + 0.5 * steps[..., t]
            loss = loss + 0.5 * (y[t] - level) ** 2
        return loss

    return FunctionPotential(energy), LENGTH + 1


def autoregression() -> Density:
    y = series()

    def energy(x: Tensor) -> Tensor:
        level, first, second, log_scale = x.unbind(-1)
        loss = x.square().sum(-1)
        for t in range(2, LENGTH):
            error = (y[t] - level - first * y[t - 1] - second * y[t - 2]) / log_scale.exp()
            loss = loss + 0.5 * error.square() + log_scale
        return loss

    return FunctionPotential(energy), 4


def local_level() -> Density:
    y = series()

    def energy(x: Tensor) -> Tensor:
        drift, noise = x[..., 0].exp(), x[..., 1].exp()
        mean, variance, loss = torch.zeros_like(drift), torch.ones_like(drift), x.square().sum(-1)
        for value in y.unbind(0):
            variance = variance + drift
            total = variance + noise
            gain, off = variance / total, value - mean
            loss = loss + 0.5 * (total.log() + off.square() / total)
            mean, variance = mean + gain * off, (1 - gain) * variance
        return loss

    return FunctionPotential(energy), 2


def hidden_states() -> Density:
    """A hidden Markov model of three states, by the forward algorithm."""
    y = series()

    def energy(x: Tensor) -> Tensor:
        means, scales, turns = x[..., :3], x[..., 3:6].exp(), x[..., 6:].unflatten(-1, (3, 3)).log_softmax(-1)
        alpha = Normal(means, scales).log_prob(y[0])
        for t in range(1, LENGTH):
            alpha = torch.logsumexp(alpha.unsqueeze(-1) + turns, -2) + Normal(means, scales).log_prob(y[t])
        return 0.5 * x.square().sum(-1) - torch.logsumexp(alpha, -1)

    return FunctionPotential(energy), 15


def volatility() -> Density:
    """A latent state for every value of the series."""
    y = series()

    def energy(x: Tensor) -> Tensor:
        mean, pull, scale, h = x[..., 0], torch.tanh(x[..., 1]), x[..., 2].exp(), x[..., 3:]
        log_density = Normal(0.0, 1.0).log_prob(x[..., :3]).sum(-1) + Normal(mean, scale).log_prob(h[..., 0])
        for t in range(1, LENGTH):
            log_density = log_density + Normal(mean + pull * (h[..., t - 1] - mean), scale).log_prob(h[..., t])
            log_density = log_density + Normal(0.0, (h[..., t] / 2).exp()).log_prob(y[t])
        return -log_density

    return FunctionPotential(energy), LENGTH + 3


def filter_of_two() -> Density:
    """A local linear trend: states of two numbers, of which one is seen."""
    y, seen = series(), torch.tensor([[1.0, 0.0]])

    def energy(x: Tensor) -> Tensor:
        turn = torch.tensor([[1.0, 1.0], [0.0, 1.0]]) * torch.tanh(1.0 + x[..., 3, None, None])
        drift, noise, loss = torch.diag_embed(x[..., :2].exp()), x[..., 2, None, None].exp(), 0.5 * x.square().sum(-1)
        mean, covariance = torch.zeros(*x.shape[:-1], 2, 1), torch.eye(2).expand(*x.shape[:-1], 2, 2)
        for t in range(LENGTH):
            mean, covariance = turn @ mean, turn @ covariance @ turn.mT + drift
            factor, off = torch.linalg.cholesky(seen @ covariance @ seen.mT + noise), y[t] - seen @ mean
            loss = loss + factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
            loss = loss + 0.5 * torch.linalg.solve_triangular(factor, off, upper=False).square().sum((-2, -1))
            gain = torch.cholesky_solve(seen @ covariance, factor).mT
            mean, covariance = mean + gain @ off, covariance - gain @ seen @ covariance
        return loss

    return FunctionPotential(energy), 4


USUAL: dict[str, Callable[[], Density]] = {
    "mixture, 20-D": lambda: (GaussianMixture(torch.full((20,), 40.0**-0.5)), 20),
    "logistic regression": lambda: (LogisticRegression.synthetic(100, 20, seed=1), 20),
    "network 2-64-1": lambda: network(2, 64, 1),
    "network 2-64-64-1": lambda: network(2, 64, 64, 1),
    "eight schools": eight_schools,
}
SERIES: dict[str, Callable[[], Density]] = {
    "AR(1)": first_order,
    "AR(2)": autoregression,
    "AR(1), latent": latent,
    "GARCH": garch,
    "local level (Kalman)": local_level,
    "HMM": hidden_states,
    "stochastic volatility with torch.distributions": volatility,
    "Kalman with matrices": filter_of_two,
}


def processor_seconds() -> float:
    """Of this process and of those that it has waited for."""
    return sum(os.times()[:4])


class Clock:
    """Seconds of the processor that parts take, each without what is timed within it."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._within = 0.0

    def watch(self, owner: Any, name: str, part: str) -> None:
        """Have ``owner.name`` timed as a part."""
        original = getattr(owner, name)

        def timed(*arguments: Any, **options: Any) -> Any:
            before, self._within, start = self._within, 0.0, processor_seconds()
            try:
                return original(*arguments, **options)
            finally:
                spent = processor_seconds() - start
                self.seconds[part] += spent - self._within
                self._within = before + spent

        setattr(owner, name, timed)


def watch_parts(clock: Clock) -> None:
    from torchsrk.compiled import checked, lowering, programs

    clock.watch(programs, "warm_up", PARTS[0])
    clock.watch(programs.Way, "_traced", PARTS[1])
    clock.watch(lowering, "LoopedProgram", PARTS[2])
    clock.watch(programs.Way, "_lowered", PARTS[3])
    clock.watch(programs, "load", PARTS[4])
    clock.watch(checked, "_difference", PARTS[5])


def first_call(name: str, with_parts: bool) -> dict[str, Any]:
    """The first call in this process, and what it was spent on. With functions of torchsrk's replaced by timed ones no
    program is kept on disk, or taken from there."""
    torch.set_num_threads(1)
    clock = Clock()
    if with_parts:
        watch_parts(clock)
    potential, dim = {**USUAL, **SERIES}[name]()
    x0 = 0.1 * torch.randn(PARTICLES, dim, generator=torch.Generator().manual_seed(1))
    warnings.filterwarnings("error", message="compile=True: this run is eager")
    start, wall = processor_seconds(), time.perf_counter()
    sample(Langevin(potential), x0, integrator="em", step_size=1e-4, num_steps=SCHEME_STEPS, seed=0, compile=True)
    return {"wall": time.perf_counter() - wall, "cpu": processor_seconds() - start, "parts": clock.seconds}


def in_a_new_process(name: str, cache: str, *more: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--first-call", name, *more]
    environment = {**os.environ, "TORCHSRK_CACHE": cache}
    outcome = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if outcome.returncode:
        raise RuntimeError(f"{name}: {outcome.stderr.strip().splitlines()[-1]}")
    return json.loads(outcome.stdout)


def seconds(call: dict[str, Any]) -> str:
    return f"{call['cpu']:.2f} ({call['wall']:.2f})"


def report(runs: int, only: list[str]) -> None:
    print("First call after the import, seconds of the processor (of the clock)\n")
    print(f"{'':<48}{'cold':>16}{'from disk':>16}")
    for name in only:
        with TemporaryDirectory() as cache:
            cold = in_a_new_process(name, cache)
            warm = [in_a_new_process(name, cache) for _ in range(runs)]
        print(f"{name:<48}{seconds(cold):>16}{seconds(middle(warm)):>16}", flush=True)
    print(f"\nSeries of {LENGTH}: what the seconds of the processor go into when cold\n")
    print(f"{'':<48}" + "".join(f"{part:>20}" for part in PARTS))
    for name in filter(only.__contains__, SERIES):
        with TemporaryDirectory() as cache:
            parts = in_a_new_process(name, cache, "--parts")["parts"]
        print(f"{name:<48}" + "".join(f"{parts.get(part, 0.0):>20.2f}" for part in PARTS), flush=True)


def middle(calls: list[dict[str, Any]]) -> dict[str, Any]:
    return {clock: statistics.median(call[clock] for call in calls) for clock in ("cpu", "wall")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="from disk, of which the median is shown")
    names = [*USUAL, *SERIES]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help="of these densities")
    parser.add_argument("--first-call", metavar="NAME", help="make one in this process and print it as JSON")
    parser.add_argument("--parts", action="store_true", help="of that call, too")
    given = parser.parse_args()
    if given.first_call:
        print(json.dumps(first_call(given.first_call, given.parts)))
    else:
        report(given.runs, given.only)


if __name__ == "__main__":
    main()
