"""W2² of large clouds without matrices of pairs (KeOps): value beside exact transport, seconds and peak memory.

Two Gaussian clouds that are a shift apart, so that W2² is known. Exact transport has the first points of both, as many
as it can take; Sinkhorn has those too, at the same blur, and then all.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

CODE = """
import sys, time, torch
from torchsrk.metrics import wasserstein2_squared
method, points, dim, blur, scaling = sys.argv[1], *map(int, sys.argv[2:4]), *map(float, sys.argv[4:])
def cloud(seed, shift):
    return torch.randn(100_000, dim, generator=torch.Generator().manual_seed(seed))[:points] + shift
x, y = cloud(1, 0.0), cloud(2, 0.7)
wasserstein2_squared(x[:50], y[:50], method, blur=blur, scaling=scaling)  # compiles, if it must
start = time.process_time()
value = float(wasserstein2_squared(x, y, method, blur=blur, scaling=scaling))
seconds = time.process_time() - start
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) // 1024
print("RESULT", value, seconds, peak)
"""


def measured(method: str, points: int, options: argparse.Namespace) -> tuple[float, float, float]:
    """Value, processor seconds and peak memory in MB, torch included, in a process of its own."""
    arguments = [method, str(points), str(options.dim), str(options.blur), str(options.scaling)]
    run = subprocess.run([sys.executable, "-c", CODE, *arguments], capture_output=True, text=True, check=True)
    line = next(line for line in run.stdout.splitlines() if line.startswith("RESULT"))
    value, seconds, peak = map(float, line.split()[1:])
    return value, seconds, peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=20_000)
    parser.add_argument("--subsample", type=int, default=1_500)
    parser.add_argument("--dim", type=int, default=2)
    parser.add_argument("--blur", type=float, default=0.02)
    parser.add_argument("--scaling", type=float, default=0.6)
    parser.add_argument("--method", default="sinkhorn-online")
    options = parser.parse_args()
    print(f"{options.dim}-D, blur {options.blur}, scaling {options.scaling}; W2² of the laws: {options.dim * 0.49:.4f}")
    exact = None
    for method, points in (
        ("exact", options.subsample),
        ("sinkhorn", options.subsample),
        (options.method, options.subsample),
        (options.method, options.points),
    ):
        value, seconds, peak = measured(method, points, options)
        exact = value if exact is None else exact
        print(
            f"{method:>20} {points:>7} points: {value:.5f} ({value / exact - 1:+.2%} of exact on {options.subsample}), "
            f"{seconds:.1f} s of the processor, peak {peak:.0f} MB",
            flush=True,
        )


if __name__ == "__main__":
    main()
