"""A neural SDE trained by DistributedDataParallel: the gradients of one process, on any number of ranks.

    torchrun --standalone --nproc-per-node 2 scripts/train_ddp.py

Every rank solves its own rows of the batch, with the noise that these particles have in the batch. So the number of
ranks changes nothing but rounding: not the noise, and not what is learned.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from torchsrk import SDE, integrate
from torchsrk.distributed import chunk, start


class Generator(nn.Module):
    """Takes normals to what an SDE makes of them in a unit of time."""

    def __init__(self, dim: int, hidden: int = 32) -> None:
        super().__init__()
        drift = nn.Sequential(nn.Linear(dim, hidden), nn.Tanh(), nn.Linear(hidden, dim))
        self.sde = SDE(drift, nn.Parameter(0.5 * torch.eye(dim)), "additive")

    def forward(self, x0: Tensor, seed: int, first_particle: int) -> Tensor:
        options = {"integrator": "srk-ld", "step_size": 0.05, "seed": seed, "first_particle": first_particle}
        return integrate(self.sde, x0, (0.0, 1.0), **options)[-1]


def loss_of(model: nn.Module, x0: Tensor, wanted: Tensor, seed: int, rows: range, ranks: int = 1) -> Tensor:
    """The mean squared error over the batch, as far as it comes from these rows.

    DDP averages gradients over ranks, so each has its part of the mean over the whole batch, times their number: ranks
    need not have equally many rows.
    """
    part = slice(rows.start, rows.stop)
    reached = model(x0[part], seed, rows.start)
    return ranks * (reached - wanted[part]).square().sum() / len(x0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=50)
    parser.add_argument("--batch", type=int, default=257)
    options = parser.parse_args()
    mesh = start()
    torch.manual_seed(0)
    model = DistributedDataParallel(Generator(dim=3), process_group=mesh.get_group())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    rows = chunk(options.batch, mesh)
    for update in range(options.updates):
        data = torch.Generator().manual_seed(update)  # all ranks have the batch; each could as well load its own rows
        x0 = torch.randn(options.batch, 3, generator=data)
        optimizer.zero_grad()
        loss = loss_of(model, x0, x0.roll(1, -1).sin(), update, rows, mesh.size())
        loss.backward()
        optimizer.step()
        if mesh.get_local_rank() == 0 and update % 10 == 0:
            print(f"update {update}: {float(loss.detach()):.4f} on the first rank", flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
