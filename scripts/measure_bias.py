"""How well a chain knows its own bias: ``step_size_bias`` beside the truth, over targets, schemes and step sizes.

The truth is what a step h does that h/8 on the same path does not, from many more particles, and on the Gaussian the
closed form. Prints a row for every target and scheme, and the share of all cases that are within three standard
errors of it.
"""

from __future__ import annotations

import argparse
import math

import torch
from torch import Tensor

from torchsrk import Capped, Integrator, Langevin, UnderdampedLangevin, sample
from torchsrk.coupling import coupled_positions, periods_of
from torchsrk.integrators import integrator_named
from torchsrk.potentials import FunctionPotential, GaussianMixture, LogisticRegression, Potential
from torchsrk.tuning import step_size_bias
from torchsrk.tuning.settle import longest_kick

FINER = 4  # levels: h/8, h/4, h/2 and h
TIME = 16.0
# Overdamped and underdamped step sizes, for targets of unit scale.
STEPS = {True: (0.2, 0.4), False: (0.1, 0.2)}
SCHEMES = ("em", "lm", "sra1", "shark", "srk-ld", "baoab", "obabo", "ubu")


def targets() -> dict[str, Potential]:
    """Of about unit scale: normal, of two modes, short-tailed, skewed, and a regression."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    labels = (features @ torch.tensor([1.0, -1.0, 0.5], dtype=torch.float64) > 0.3).double()
    return {
        "gaussian": FunctionPotential(
            lambda x: 0.5 * (torch.tensor([0.5, 1.0, 2.0]).to(x) * x.square()).sum(-1), dim=3
        ),
        "mixture": GaussianMixture(shift=torch.full((3,), 0.5, dtype=torch.float64)),
        "quartic": FunctionPotential(lambda x: (0.5 * x.square() + 0.25 * x.pow(4)).sum(-1), dim=2),
        "skewed": FunctionPotential(lambda x: (torch.nn.functional.softplus(3.0 * x) - x).sum(-1), dim=2),
        "regression": LogisticRegression(features, labels),
    }


def exact_sd_bias(scheme: str, h: float) -> Tensor | None:
    """sd_h/sd - 1 on the Gaussian, where it has a short closed form."""
    u = h * torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    if scheme == "em":
        return (1.0 - u / 2.0).rsqrt() - 1.0
    if scheme == "obabo":
        return (1.0 - h * u / 4.0).rsqrt() - 1.0
    return torch.zeros(3, dtype=torch.float64) if scheme in ("lm", "baoab") else None


def starts(sde: Langevin | UnderdampedLangevin, particles: int, seed: int) -> Tensor:
    """Particles of the target's law, near enough: a long run with short steps."""
    assert sde.dim is not None
    x0 = torch.zeros(particles, sde.dim, dtype=torch.float64)
    underdamped = isinstance(sde, UnderdampedLangevin)
    scheme, h = ("baoab", 0.2) if underdamped else ("lm", 0.05)
    return sample(sde, x0, integrator=scheme, step_size=h, num_steps=round(30.0 / h), seed=seed).final


def truth(
    sde: Langevin | UnderdampedLangevin, scheme: Integrator, h: float, x0: Tensor, seed: int
) -> tuple[Tensor, Tensor]:
    """The biases of means and standard deviations, in standard deviations, and their standard errors."""
    periods = periods_of(TIME, h / 8, FINER)
    kept = coupled_positions(sde, x0, integrator=scheme, step_size=h / 8, levels=FINER, periods=periods, seed=seed)
    late = kept[periods // 2 :]
    standard = (late - late[:, 0].mean((0, 1))) / late[:, 0].std((0, 1))
    averages = torch.cat((standard, 0.5 * standard.square()), -1).mean(0)
    assert scheme.law_order is not None
    change = (averages[-1] - averages[0]) / (1.0 - 8.0**-scheme.law_order)
    return change.mean(0), change.std(0) / math.sqrt(len(change))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--particles", type=int, default=1000, help="of an estimate")
    parser.add_argument("--truth", type=int, default=8000, help="particles of the truth")
    options = parser.parse_args()
    torch.set_default_dtype(torch.float64)
    print("| target | scheme | step size | largest bias | its estimate | ± | cases within 3 standard errors |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    within = cases = 0
    for name, potential in targets().items():
        for scheme_name in SCHEMES:
            # As it is tuned: the steps of 4h would escape from short tails.
            scheme = Capped(integrator_named(scheme_name), longest_kick(potential.dim or 1))
            underdamped = UnderdampedLangevin(potential, friction=1.0)
            sde = Langevin(potential) if scheme.is_for(Langevin(potential)) else underdamped
            cloud = starts(sde, options.truth, seed=1)
            for h in STEPS[sde is underdamped]:
                found = step_size_bias(
                    sde, cloud[: options.particles], integrator=scheme, step_size=h, seed=2, time=TIME
                )
                true, true_error = truth(sde, scheme, h, cloud, seed=3)
                exact = exact_sd_bias(scheme_name, h) if name == "gaussian" else None
                if exact is not None:
                    true, true_error = torch.cat((torch.zeros(3), exact)), torch.zeros(6)
                estimate, error = torch.cat((found.mean, found.sd)), torch.cat((found.mean_error, found.sd_error))
                fine = (estimate - true).abs() <= 3.0 * (error.square() + true_error.square()).sqrt()
                at = int(true.abs().argmax())
                within, cases = within + int(fine.sum()), cases + len(fine)
                row = [name, scheme_name, f"{h:g}", *(f"{float(v[at]):+.4f}" for v in (true, estimate))]
                print(f"| {' | '.join(row)} | {float(error[at]):.4f} | {int(fine.sum())} of {len(fine)} |", flush=True)
    print(f"\n{within} of {cases} cases ({within / cases:.1%}) are within three standard errors of the truth.")


if __name__ == "__main__":
    main()
