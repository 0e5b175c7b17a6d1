"""Normals a second: the noise kernel against torch's normal_, another build of it, and two threads against one.

    python scripts/bench_noise.py [philox.so]

With a library built from another philox.c, fills and the tiles of compiled steps are drawn by both in turns.
"""

from __future__ import annotations

import ctypes
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor

from timing import interleaved, machine, ratio
from torchsrk.brownian import fill_normal, native

PARTICLES, DIM = 50_000, 20
LARGE = 800_000
COMPONENTS, STEPS, TILES = (2, 3, 20, 40), (1, 8, 64), (1, 8, 5000)
REPEATS, NORMALS = 21, 200_000


def cycles_per_second() -> float:
    """From a loop of additions that wait for one another, a cycle each, timed in the compiled steps' way: in C."""
    source = """
#include <time.h>
double cycles(void)
{
    struct timespec from, to;
    double best = 0;
    for (int k = 0; k < 200; k++) {
        unsigned long x = 1;
        clock_gettime(CLOCK_MONOTONIC, &from);
        for (int i = 0; i < 10000; i++)
            __asm__ volatile("add $1, %0; add $1, %0; add $1, %0; add $1, %0" : "+r"(x));
        clock_gettime(CLOCK_MONOTONIC, &to);
        const double rate = 40000 / ((to.tv_sec - from.tv_sec) + 1e-9 * (to.tv_nsec - from.tv_nsec));
        best = rate > best ? rate : best;
    }
    return best;
}
"""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/cycles.so"
        subprocess.run(
            ["gcc", "-O2", "-shared", "-fPIC", "-x", "c", "-", "-o", path], input=source.encode(), check=True
        )
        library = ctypes.CDLL(path)
    library.cycles.restype = ctypes.c_double
    return float(library.cycles())


def calls(
    kernel: ctypes.CDLL, out: Tensor, steps: int, particles: int, components: int, tile: bool
) -> Callable[[], None]:
    """Draws of about NORMALS normals in requests of one shape."""
    kind, size, count = native.KINDS[out.dtype], out.element_size(), 1 + NORMALS // (steps * particles * components)
    shape = (steps, particles, components)

    def fill() -> None:
        for first in range(count):
            kernel.torchsrk_fill(out.data_ptr(), kind, 7, 0, first, 1, 0, *shape[:2], components * size, 1.0, 1)

    def fill_tile() -> None:
        for first in range(count):
            kernel.torchsrk_fill_tile(out.data_ptr(), kind, 7, 0, first, 1, *shape, particles, 1.0, 1, components)

    return fill_tile if tile else fill


def compare(other: ctypes.CDLL) -> None:
    """The other library's time over the installed one's, for each shape."""
    kernel = native.library()
    if kernel is None:
        raise SystemExit("torchsrk is installed without its kernel")
    for dtype, tile in product((torch.float32, torch.float64), (False, True)):
        print(f"\n{dtype}, {'tiles' if tile else 'fills'}: other over installed at {STEPS} steps")
        for particles, components in product(TILES, COMPONENTS):
            ratios = []
            for steps in STEPS:
                out = torch.empty(steps * particles * components, dtype=dtype)
                shape = (steps, particles, components, tile)
                timed = {"one": calls(kernel, out, *shape), "other": calls(other, out, *shape)}
                ratios.append(ratio((seconds := interleaved(timed, repeats=REPEATS))["other"], seconds["one"]))
            print(f"  {particles:5d} particles, {components:2d} components   {'   '.join(ratios)}")


def main() -> None:
    print(f"{machine()}; {PARTICLES} x {DIM} normals, {LARGE} x {DIM} for threads")
    cycles = cycles_per_second()
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
        print(
            f"  kernel, one thread     {each['one']:6.2f} ns a normal, "
            f"{1e3 / each['one']:.0f} million a second and core, {1e9 / each['one'] / cycles:.2f} a cycle"
        )
        print(f"  kernel over normal_    {ratio(seconds['torch'], seconds['one'])} times faster")
        print(f"  two threads over one   {ratio(threads['one'], threads['two'])} times faster")
    if len(sys.argv) > 1:
        compare(native.load(sys.argv[1]))


if __name__ == "__main__":
    main()
