"""What a compiled step of every scheme costs, beside one of Euler-Maruyama's, and of what: gradients and normals."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

import torch

from timing import interleaved, machine, ratio
from torchsrk import Langevin, UnderdampedLangevin, sample
from torchsrk.brownian import Stream, fill_normal
from torchsrk.brownian.draws import draws
from torchsrk.integrators import OBABO, UBU, Integrator, integrator_named
from torchsrk.potentials import GaussianMixture, LogisticRegression, Potential

PARTICLES, DIM, STEPS = 5000, 20, 500
NAMES = ("em", "lm", "srk-ld", "sra1", "shark", "mala", "baoab", "cheng", "obabo", "ubu", "quicsort", "ghmc")
SCHEMES: list[Integrator] = [*map(integrator_named, NAMES), integrator_named("randomized-midpoint")]
SCHEMES += [OBABO(stages=2), UBU(exact=True)]


def run_of(scheme: Integrator, target: Potential, x0: torch.Tensor, step_size: float) -> Callable[[], object]:
    """A compiled run, which was compiled before."""
    overdamped, underdamped = Langevin(target), UnderdampedLangevin(target, friction=1.5)
    sde = overdamped if scheme.is_for(overdamped) else underdamped
    return lambda: sample(sde, x0, integrator=scheme, step_size=step_size, num_steps=STEPS, seed=0, compile=True)


def noise_of(normals: int, dtype: torch.dtype) -> Callable[[], object]:
    """So many normals a particle and step, and nothing else: what a step that draws them takes at least."""
    out, threads = torch.empty(4, PARTICLES, normals, dtype=dtype), torch.get_num_threads()

    def run() -> None:
        for step in range(0, STEPS, len(out)):
            fill_normal(out, seed=0, stream=Stream.INCREMENT, step=step, threads=threads)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    print(f"{machine()}; {PARTICLES} particles in {DIM} dimensions, {rounds} rounds")
    for dtype in (torch.float32, torch.float64):
        targets: dict[str, tuple[Potential, float]] = {
            "mixture": (GaussianMixture(torch.full((DIM,), (2.0 * DIM) ** -0.5, dtype=dtype)), 0.05),
            "logistic regression, 100 observations": (
                LogisticRegression.synthetic(100, DIM, seed=1, dtype=dtype),
                0.01,
            ),
        }
        for name, (target, step_size) in targets.items():
            x0 = torch.zeros(PARTICLES, DIM, dtype=dtype)
            runs = {str(s): run_of(s, target, x0, step_size) for s in SCHEMES}
            noises = {f"{k * DIM} normals alone": noise_of(k * DIM, dtype) for k in (1, 2, 3)}
            seconds = interleaved({**runs, **noises}, rounds)
            first = seconds[str(SCHEMES[0])]
            each = 1e9 * statistics.median(first) / (PARTICLES * STEPS)
            print(f"\n{name}, {dtype}: a step of em takes {each:.0f} ns a particle")
            for scheme in SCHEMES[1:]:
                normals = sum(draw.components for draw in draws(scheme.needs, step_size, DIM))
                work = f"{scheme.gradients_per_step} gradients, {normals} normals"
                print(f"  {scheme!s:36} {work:26} {ratio(seconds[str(scheme)], first)} times em")
            for noise in noises:
                print(f"  {noise:63} {ratio(seconds[noise], first)} times em")


if __name__ == "__main__":
    main()
