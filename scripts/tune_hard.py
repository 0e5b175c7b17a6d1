"""Tuning where it is hard: densities that no affine map makes round, bad starts, and densities of nothing.

Prints for every target and seed whether the draws are right (standard deviations within 5 %, means within 0.1 of them),
whether they were called trusted, and what was said against them. Draws that are wrong and called trusted end the script
with an error.
"""

from __future__ import annotations

import argparse
import math
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.distributions import constraints

from torchsrk import tune
from torchsrk.potentials import Potential, UnconstrainedPotential

DRAWS = 10
LogDensity = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Target:
    """A density, what is known of its law, and where chains begin; without a law, an error is what is right."""

    density: LogDensity | UnconstrainedPotential
    dim: int
    mean: Tensor | None = None
    sd: Tensor | None = None
    start: Tensor | None = None


def funnel(x: Tensor) -> Tensor:
    """Neal's: a log scale N(0, 9), and all others of that scale."""
    scale = x[..., 0]
    return (
        -scale.square() / 18.0 - 0.5 * x[..., 1:].square().sum(-1) * torch.exp(-scale) - 0.5 * (x.shape[-1] - 1) * scale
    )


def banana(x: Tensor) -> Tensor:
    return -0.5 * x[..., 0].square() - 2.0 * (x[..., 1] - x[..., 0].square()).square()


def two_modes(x: Tensor, share: float = 0.2, apart: float = 4.0) -> Tensor:
    near, far = (-0.5 * (x - side * apart).square().sum(-1) for side in (1.0, -1.0))
    return torch.logaddexp(math.log(share) + near, math.log1p(-share) + far)


def student(x: Tensor) -> Tensor:
    """Three degrees of freedom in every coordinate."""
    return -2.0 * torch.log1p(x.square() / 3.0).sum(-1)


def gaussian(x: Tensor, mean: Tensor, precision: Tensor) -> Tensor:
    away = x.double() - mean
    return -0.5 * ((away @ precision) * away).sum(-1)


def edge(x: Tensor) -> Tensor:
    """On x > 0: an exponential law, and the far tail of a normal one."""
    return -x[..., 0] - 0.5 * (x[..., 1] + 3.0).square()


def half_space(x: Tensor, outside: float) -> Tensor:
    """N(5, 1) with nothing, or nonsense, beyond -1."""
    return torch.where(x[..., 0] > -1.0, -0.5 * (x - 5.0).square().sum(-1), outside)


def conditioned(dim: int, condition: float) -> tuple[Tensor, Tensor]:
    """A mean, and a precision in random directions."""
    generator = torch.Generator().manual_seed(0)
    basis, _ = torch.linalg.qr(torch.randn(dim, dim, generator=generator, dtype=torch.float64))
    return torch.randn(dim, generator=generator, dtype=torch.float64), basis * condition ** torch.linspace(
        0, 1, dim
    ) @ basis.mT


def targets() -> dict[str, Target]:
    mean, precision = conditioned(20, 1e6)
    sd = torch.linalg.inv(precision).diagonal().sqrt()
    hazard = math.exp(-4.5) / math.sqrt(2.0 * math.pi) / (0.5 * math.erfc(3.0 / math.sqrt(2.0)))
    positive = UnconstrainedPotential(edge, (2,), constraints.independent(constraints.positive, 1))
    far, one, five = torch.full((2,), 50.0), torch.ones(2), torch.full((2,), 5.0)
    scales = torch.tensor([3.0] + [math.exp(2.25)] * 9)  # E[exp(v)] = exp(9/2)
    modes = -4.0 * 0.6 * torch.ones(5)
    return {
        "funnel, 10-D": Target(funnel, 10, torch.zeros(10), scales),
        "banana": Target(banana, 2, torch.tensor([0.0, 1.0]), torch.tensor([1.0, 1.5])),
        "two modes, 5-D": Target(two_modes, 5, modes, torch.full((5,), math.sqrt(1.0 + 16.0 * 0.64))),
        "Student's t, 3 degrees, 5-D": Target(student, 5, torch.zeros(5), torch.full((5,), math.sqrt(3.0))),
        "Gaussian, condition 1e6, 20-D": Target(partial(gaussian, mean=mean, precision=precision), 20, mean, sd),
        "an edge through a bijection": Target(
            positive, 2, torch.tensor([1.0, hazard - 3.0]), torch.tensor([1.0, math.sqrt(1 + 3 * hazard - hazard**2)])
        ),
        "-inf on half of the space": Target(partial(half_space, outside=-math.inf), 2, five, one),
        "NaN on half of the space": Target(partial(half_space, outside=math.nan), 2, five, one),
        "NaN there, from +50": Target(partial(half_space, outside=math.nan), 2, five, one, far),
        "Gaussian, condition 1e6, from +50": Target(
            partial(gaussian, mean=mean, precision=precision), 20, mean, sd, torch.full((20,), 50.0)
        ),
        "banana, from +50": Target(banana, 2, torch.tensor([0.0, 1.0]), torch.tensor([1.0, 1.5]), far),
        "a constant": Target(lambda x: torch.zeros_like(x[..., 0]), 2),
        "improper": Target(lambda x: -x.exp().sum(-1), 2),
    }


def verdict(target: Target, seed: int) -> tuple[str, bool]:
    """In words, and whether a user would be misled."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the report says the same
            plan = tune(target.density, dim=target.dim, seed=seed, start=target.start)
    except ValueError as error:
        return f"error: {error}", target.mean is not None
    if target.mean is None or target.sd is None:
        return "draws, where there is no law", plan.trusted
    trajectory = plan.sample(DRAWS).trajectory
    assert trajectory is not None
    draws = trajectory.flatten(0, 1)
    if isinstance(target.density, Potential):
        draws = target.density.constrain(draws)
    off = float(((draws.mean(0) - target.mean) / target.sd).abs().max())
    wrong = float((draws.std(0) / target.sd - 1.0).abs().max())
    right = off < 0.1 and wrong < 0.05
    gradients = sum(plan.report.gradients.values()) + DRAWS * plan.length
    said = "trusted" if plan.trusted else f"not trusted: {plan.report.troubles[0]}"
    text = f"{'right' if right else 'WRONG'} (means {off:.3f} sd, sds {wrong:.1%}), {gradients:.0f} gradients, {said}"
    return text, plan.trusted and not right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    given = parser.parse_args()
    misled = 0
    for name, target in targets().items():
        for seed in range(given.first_seed, given.first_seed + given.seeds):
            text, misleading = verdict(target, seed)
            misled += misleading
            print(f"{name:34} {seed:5}  {text}", flush=True)
    print(f"silently wrong: {misled}")
    sys.exit(1 if misled else 0)


if __name__ == "__main__":
    main()
