"""A long run of sharded particles, for torchrun: killed at any moment, the same command goes on.

    torchrun --standalone --nproc-per-node 2 --max-restarts 3 scripts/resumable_job.py --folder /tmp/job

The last line of the first rank is a digest of the final states, which is that of one process.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from pathlib import Path

import torch

import torchsrk
from torchsrk.distributed import chunk, gather, sample_resumable, shard_rows, start
from torchsrk.potentials import GaussianMixture


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="of the checkpoint")
    parser.add_argument("--particles", type=int, default=20_000)
    parser.add_argument("--dim", type=int, default=20)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--every", type=float, default=0.5, help="seconds between checkpoints")
    parser.add_argument("--timeout", type=float, default=20.0, help="seconds that a rank waits for another")
    parser.add_argument("--integrator", default="srk-ld")
    parser.add_argument("--eager", action="store_true")
    options = parser.parse_args()
    mesh = start(options.timeout)
    rows = chunk(options.particles, mesh)
    x0 = shard_rows(torch.zeros(len(rows), options.dim), options.particles, mesh)
    sde = torchsrk.Langevin(GaussianMixture(shift=torch.full((options.dim,), 0.1581)))
    begun = time.monotonic()
    run = sample_resumable(
        sde,
        x0,
        folder=options.folder,
        every=options.every,
        integrator=options.integrator,
        step_size=0.1,
        num_steps=options.steps,
        seed=0,
        compile=not options.eager,
    )
    seconds = time.monotonic() - begun
    states = gather(run.state, to=0)
    if states is not None:
        digest = hashlib.sha256(states.numpy().tobytes()).hexdigest()
        print(f"{mesh.size()} ranks, {seconds:.1f} s, states {digest}", flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
