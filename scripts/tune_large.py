"""Tuning in many dimensions: seconds, memory, and whether the draws are right.

A Gaussian with correlations 0.9^|i - j|, whose law is known, and a logistic regression, which is held against draws of
the Metropolis-adjusted scheme.
"""

from __future__ import annotations

import argparse
import math
import resource
import time

import torch
from torch import Tensor

from timing import machine
from torchsrk import tune
from torchsrk.potentials import FunctionPotential, LogisticRegression, Potential

DRAWS = 3


def correlated(dim: int) -> Potential:
    """½xᵀΛx with Λ⁻¹ = 0.9^|i - j|, which is tridiagonal."""
    rho = 0.9
    diagonal = torch.full((dim,), 1.0 + rho * rho, dtype=torch.float64)
    diagonal[0] = diagonal[-1] = 1.0
    beside = torch.full((dim - 1,), -rho, dtype=torch.float64)
    precision = (torch.diag(diagonal) + torch.diag(beside, 1) + torch.diag(beside, -1)) / (1.0 - rho * rho)
    return FunctionPotential(lambda x: 0.5 * ((x @ precision) * x).sum(-1), dim)


def tuned(potential: Potential, particles: int, adjust: bool = False) -> Tensor:
    """Draws (draws, dim), after a line on what they took."""
    start = time.perf_counter()
    plan = tune(potential, particles=particles, seed=0, adjust=adjust, progress=True)
    seconds = time.perf_counter() - start
    gradients = sum(plan.report.gradients.values())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{plan}\n  {seconds:.0f} s, {gradients:.0f} gradients a particle, {plan.report.metric}, peak {peak:.1f} GB")
    trajectory = plan.sample(DRAWS).trajectory
    assert trajectory is not None
    return trajectory.flatten(0, 1)


def compare(draws: Tensor, mean: Tensor, sd: Tensor, draws_of_truth: float) -> None:
    """The worst of all coordinates, beside what chance makes the worst of so many."""
    means, sds = ((draws.mean(0) - mean) / sd).abs().max(), (draws.std(0) / sd - 1.0).abs().max()
    chance = math.sqrt((1.0 / len(draws) + 1.0 / draws_of_truth) * 2.0 * math.log(2.0 * len(mean)))
    print(f"  means within {means:.3f} sd ({chance:.3f} by chance), sds within {sds:.1%} ({chance / 2**0.5:.1%})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dim", type=int, default=1000)
    parser.add_argument("--particles", type=int, default=2000)
    given = parser.parse_args()
    print(f"{machine()}; {given.particles} particles in {given.dim} dimensions")
    print("\nGaussian")
    draws = tuned(correlated(given.dim), given.particles)
    compare(draws, torch.zeros(given.dim).double(), torch.ones(given.dim).double(), math.inf)
    print("\nlogistic regression")
    regression = LogisticRegression.synthetic(2 * given.dim, given.dim, seed=1, dtype=torch.float64)
    draws = tuned(regression, given.particles)
    truth = tuned(regression, given.particles, adjust=True)
    compare(draws, truth.mean(0), truth.std(0), len(truth))


if __name__ == "__main__":
    main()
