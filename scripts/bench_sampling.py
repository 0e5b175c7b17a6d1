"""Cost of an eager step on the 20-D mixture: torchsrk, a hand-written in-place loop, and torchsde."""

from __future__ import annotations

import math
import statistics

import torch
import torchsde
from timing import interleaved, machine, ratio
from torch import Tensor

from torchsrk import Langevin, sample
from torchsrk.potentials import GaussianMixture

DIM, STEP, STEPS = 20, 0.1, 60


def hand_written_em(x0: Tensor, shift: Tensor) -> Tensor:
    """What a careful user writes: in place, noise by normal_."""
    x, noise = x0.clone(), torch.empty_like(x0)
    for _ in range(STEPS):
        lean = torch.tanh(x @ shift)
        gradient = (lean.unsqueeze(-1) * -shift).add_(x)
        x.add_(gradient, alpha=-STEP).add_(noise.normal_(), alpha=math.sqrt(2 * STEP))
    return x


def hand_written_srk_ld(x0: Tensor, shift: Tensor) -> Tensor:
    """SRK-LD in the same manner."""
    x, xi, eta, stage = x0.clone(), torch.empty_like(x0), torch.empty_like(x0), torch.empty_like(x0)

    def gradient(y: Tensor) -> Tensor:
        return (torch.tanh(y @ shift).unsqueeze(-1) * -shift).add_(y)

    root = math.sqrt(2 * STEP)
    for _ in range(STEPS):
        xi.normal_()
        torch.add(x, eta.normal_(), alpha=root / math.sqrt(12), out=stage)
        second = stage.add(xi, alpha=root * (0.5 - 1 / math.sqrt(6))).add_(gradient(x), alpha=-STEP)
        stage.add_(xi, alpha=root * (0.5 + 1 / math.sqrt(6)))
        x.add_(xi, alpha=root).add_(gradient(stage), alpha=-STEP / 2).add_(gradient(second), alpha=-STEP / 2)
    return x


def main() -> None:
    torch.set_grad_enabled(False)
    print(machine())
    shift = torch.full((DIM,), (2 * DIM) ** -0.5)
    sde = Langevin(GaussianMixture(shift))
    few = 6  # steps of torchsde: it is slow
    for particles in (5_000, 50_000):
        x0 = torch.zeros(particles, DIM)

        def ours(scheme: str, x0: Tensor = x0) -> Tensor:
            return sample(sde, x0, integrator=scheme, step_size=STEP, num_steps=STEPS, seed=0).final

        def peer(method: str, x0: Tensor = x0) -> Tensor:
            ts = torch.tensor([0.0, (few - 0.5) * STEP])
            return torchsde.sdeint(sde, x0, ts, dt=STEP, method=method)[-1]

        seconds = interleaved(
            {
                "torchsrk em": lambda ours=ours: ours("em"),
                "torchsrk srk-ld": lambda ours=ours: ours("srk-ld"),
                "by hand em": lambda x0=x0: hand_written_em(x0, shift),
                "by hand srk-ld": lambda x0=x0: hand_written_srk_ld(x0, shift),
                "torchsde euler": lambda peer=peer: peer("euler"),
                "torchsde srk": lambda peer=peer: peer("srk"),
            },
            repeats=9,
        )
        for name in ("torchsde euler", "torchsde srk"):
            seconds[name] = [value * STEPS / few for value in seconds[name]]
        print(f"\n{particles} particles, {DIM}-D, float32")
        for name, values in seconds.items():
            print(f"  {name:16} {1e9 * statistics.median(values) / STEPS / particles:8.1f} ns a particle-step")
        for label, slow, fast in (
            ("by hand over torchsrk, em", "by hand em", "torchsrk em"),
            ("by hand over torchsrk, srk-ld", "by hand srk-ld", "torchsrk srk-ld"),
            ("torchsde euler over torchsrk em", "torchsde euler", "torchsrk em"),
            ("torchsde srk over torchsrk srk-ld", "torchsde srk", "torchsrk srk-ld"),
            ("srk-ld over em", "torchsrk srk-ld", "torchsrk em"),
        ):
            print(f"  {label:34} {ratio(seconds[slow], seconds[fast])}")


if __name__ == "__main__":
    main()
