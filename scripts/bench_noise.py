"""Normals a second: the noise kernel against torch's normal_, and two threads against one."""

from __future__ import annotations

import statistics

import torch

from timing import interleaved, machine, ratio
from torchsrk.brownian import fill_normal

PARTICLES, DIM = 50_000, 20
LARGE = 800_000


def main() -> None:
    print(f"{machine()}; {PARTICLES} x {DIM} normals, {LARGE} x {DIM} for threads")
    for dtype in (torch.float32, torch.float64):
        small, large = torch.empty(PARTICLES, DIM, dtype=dtype), torch.empty(LARGE, DIM, dtype=dtype)
        seconds = interleaved(
            {
                "torch": lambda out=small: out.normal_(),
                "one": lambda out=small: fill_normal(out, seed=0, stream=0, threads=1),
            }
        )
        threads = interleaved(
            {
                "one": lambda out=large: fill_normal(out, seed=0, stream=0, threads=1),
                "two": lambda out=large: fill_normal(out, seed=0, stream=0, threads=2),
            },
            repeats=9,
        )
        each = {name: 1e9 * statistics.median(values) / small.numel() for name, values in seconds.items()}
        print(f"\n{dtype}")
        print(f"  torch normal_          {each['torch']:6.2f} ns a normal")
        print(f"  kernel, one thread     {each['one']:6.2f} ns a normal")
        print(f"  kernel over normal_    {ratio(seconds['torch'], seconds['one'])} times faster")
        print(f"  two threads over one   {ratio(threads['one'], threads['two'])} times faster")


if __name__ == "__main__":
    main()
