"""The tables of orders: strong orders and local deviation orders of the schemes, with 99 % intervals."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from torchsrk import (
    BAOAB,
    OBABO,
    QUICSORT,
    SRKID,
    SRKLD,
    UBU,
    Cheng,
    EulerMaruyama,
    Integrator,
    ItoDiffusion,
    Langevin,
    RandomizedMidpoint,
    UnderdampedLangevin,
)
from torchsrk.brownian import Increment, Needs
from torchsrk.integrators import integrator_named
from torchsrk.potentials import GaussianMixture, NonConvex
from torchsrk.reference import OrderEstimate, local_deviation_orders, strong_order
from torchsrk.sde import BaseSDE


class WithoutArea(Integrator):
    """SRK-ID on a path whose Lévy areas are set to 0."""

    name, strong_order, strong_order_additive = "srk-id, A = 0", 0.5, 1.0
    noise_types, needs, gradients_per_step = SRKID.noise_types, Needs.LEVY_AREA, 1

    def step(self, sde: BaseSDE, t: float | Tensor, x: Tensor, increment: Increment) -> Tensor:
        assert increment.A is not None
        return SRKID().step(sde, t, x, dataclasses.replace(increment, A=torch.zeros_like(increment.A)))


def show(problem: str, scheme: Integrator, *estimates: OrderEstimate) -> None:
    """A row of a table."""
    cells = "   ".join(f"{e.order:.3f} [{e.interval[0]:.3f}, {e.interval[1]:.3f}]" for e in estimates)
    label = repr(scheme) if vars(scheme) else scheme.name
    print(f"  {problem:34} {label:36} {cells}", flush=True)


def main() -> None:
    torch.set_default_dtype(torch.float64)
    mixture, bimodal = GaussianMixture(torch.full((20,), 40**-0.5)), GaussianMixture(torch.tensor([2.0, 1.0]))
    target = NonConvex(beta=2.0, gamma=0.5, dim=3)
    diffusion = ItoDiffusion(target, target.scale, noise_type="isotropic")
    kinetic, starts = UnderdampedLangevin(bimodal, friction=1.5), 0.3 * bimodal.sample((1000,), seed=4)

    print("strong order at t = 1")
    rows: list[tuple[str, Integrator, BaseSDE, Tensor, tuple[int, ...]]] = [
        ("Langevin, 20-D mixture", EulerMaruyama(), Langevin(mixture), mixture.sample((500,), seed=3), (8, 16, 32, 64)),
        ("Langevin, 20-D mixture", SRKLD(), Langevin(mixture), mixture.sample((500,), seed=3), (8, 16, 32, 64)),
        (
            "Langevin, 2-D mixture, |a|² = 5",
            SRKLD(),
            Langevin(bimodal),
            0.3 * bimodal.sample((4000,), seed=4),
            (16, 32, 64, 128),
        ),
    ]
    start = target.sample((1000,), seed=3, dtype=torch.float64)
    rows += [
        ("Langevin, 2-D mixture, |a|² = 5", integrator_named(name), Langevin(bimodal), starts, (32, 64, 128, 256))
        for name in ("em", "lm", "ozaki", "sra1", "shark", "tamed")
    ]
    rows += [
        ("underdamped, 2-D mixture, |a|² = 5", scheme, kinetic, starts, (8, 16, 32, 64))
        for scheme in (Cheng(), BAOAB(), OBABO(), UBU(), UBU(randomized=True), RandomizedMidpoint(), QUICSORT())
    ]
    schemes: tuple[Integrator, ...] = (EulerMaruyama(), SRKID(), WithoutArea())
    rows += [("non-convex, d = m = 3", scheme, diffusion, start, (16, 32, 64, 128)) for scheme in schemes]
    for name, scheme, sde, x0, num_steps in rows:
        fine = 16 * num_steps[-1]
        show(name, scheme, strong_order(scheme, sde, x0, t1=1.0, num_steps=num_steps, fine_steps=fine, seed=1))

    print("\nlocal deviation orders (mean square, mean), h = 0.02 to 0.0025")
    steep = NonConvex(beta=2.0, gamma=1.0, dim=3)
    cases: list[tuple[str, BaseSDE, Tensor, tuple[Integrator, ...]]] = [
        (
            "Langevin, 2-D mixture, |a|² = 5",
            Langevin(bimodal),
            0.3 * bimodal.sample((8,), seed=4),
            (EulerMaruyama(), SRKLD()),
        ),
        (
            "non-convex, γ = 1, d = m = 3",
            ItoDiffusion(steep, steep.scale, noise_type="isotropic"),
            steep.sample((8,), seed=3, dtype=torch.float64),
            (EulerMaruyama(), SRKID()),
        ),
    ]
    for name, sde, starts, schemes in cases:
        for scheme in schemes:
            steps = (0.02, 0.01, 0.005, 0.0025)
            orders = local_deviation_orders(scheme, sde, starts, step_sizes=steps, paths=8000, seed=1)
            show(name, scheme, orders.mean_square, orders.mean)


if __name__ == "__main__":
    main()
