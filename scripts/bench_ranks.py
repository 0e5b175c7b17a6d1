"""What ranks gain, and what memory one takes.

    python scripts/bench_ranks.py              # two ranks of one thread beside one, with checkpoints every 10 s
    python scripts/bench_ranks.py --memory     # 10⁷ × 20 float32 on four ranks: the peak of a rank over its rows

Wall time counts here, as ranks run beside one another: measure on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch


def job(particles: int, steps: int, folder: Path, eager: bool) -> None:
    """On a rank: seconds for the steps, or memory over the rows."""
    import torchsrk
    from torchsrk.distributed import chunk, gather, sample_resumable, shard_rows, start
    from torchsrk.potentials import GaussianMixture

    mesh = start(600.0)
    sde = torchsrk.Langevin(GaussianMixture(shift=torch.full((20,), 0.1581)))
    options = {"integrator": "srk-ld", "step_size": 0.1, "seed": 0, "compile": not eager}
    small = shard_rows(torch.zeros(len(chunk(64, mesh)), 20), 64, mesh)
    torchsrk.sample(sde, small, num_steps=16, **options)  # compiled, and all libraries loaded
    sample_resumable(sde, small, folder=folder / "first", num_steps=16, **options)
    rows = chunk(particles, mesh)
    before = _peak()
    x0 = shard_rows(torch.zeros(len(rows), 20), particles, mesh)
    gather(small)
    begun = time.perf_counter()
    if steps > 100:
        sample_resumable(sde, x0, folder=folder / "job", num_steps=steps, every=10.0, **options)
    else:
        torchsrk.sample(sde, x0, num_steps=steps, **options)
    seconds = time.perf_counter() - begun
    share = (_peak() - before) / (len(rows) * 20 * 4)
    print(f"rank {mesh.get_local_rank()}: {seconds:.3f} seconds, {share:.2f} rows", flush=True)
    torch.distributed.destroy_process_group()


def _peak() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measured(ranks: int, particles: int, steps: int, eager: bool) -> tuple[float, float]:
    """Seconds of the slowest rank, and the most memory of one over its rows."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        command += [__file__, "--job", folder, "--particles", str(particles), "--steps", str(steps)]
        command += ["--eager"] if eager else []
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found = re.findall(r"rank \d+: ([\d.]+) seconds, ([\d.]+) rows", done.stdout)
    assert len(found) == ranks, done.stdout + done.stderr
    return max(float(seconds) for seconds, _ in found), max(float(share) for _, share in found)


def strangers(particles: int, steps: int, eager: bool) -> float:
    """Seconds of the slower of two runs of one rank side by side: what the machine's cores give two ranks at best."""
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(measured, 1, particles, steps, eager) for _ in range(2)]
        return max(run.result()[0] for run in runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--particles", type=int, default=200_000)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--job", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job is not None:
        job(options.particles, options.steps, options.job, options.eager)
        return
    if options.memory:
        _, share = measured(4, 10**7, 20, options.eager)
        print(f"10⁷ × 20 float32 on 4 ranks: at most {share:.2f} times a rank's rows")
        return
    gains, bounds = [], []
    for _ in range(options.rounds):
        one, _ = measured(1, options.particles, options.steps, options.eager)
        two, _ = measured(2, options.particles, options.steps, options.eager)
        apart = strangers(options.particles // 2, options.steps, options.eager)
        gains.append(one / two)
        bounds.append(one / apart)
        print(
            f"1 rank {one:.1f} s, 2 ranks {two:.1f} s: {one / two:.2f} times; two that know nothing of each other "
            f"{apart:.1f} s: {one / apart:.2f} times",
            flush=True,
        )
    rate = options.particles * options.steps
    print(
        f"median {statistics.median(gains):.2f}, of two that know nothing of each other "
        f"{statistics.median(bounds):.2f}; {rate:.2g} particle-steps a run"
    )


if __name__ == "__main__":
    main()
