"""Normals a second: the noise kernel against torch's normal_, another build of it, and two threads against one.

    python scripts/bench_noise.py [philox.so]

With a library built from another philox.c, fills and the tiles of compiled steps are drawn by both in turns.
"""

from __future__ import annotations

import ctypes
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import product
from operator import truediv

import torch
from torch import Tensor

from timing import interleaved, machine, ratio
from torchsrk.brownian import fill_normal, native

PARTICLES, DIM = 50_000, 20
LARGE = 800_000
COMPONENTS, STEPS, TILES = (2, 3, 20, 40), (1, 8, 64), (1, 8, 5000)
REPEATS, NORMALS = 21, 50_000
Shape = tuple[int, int, int]  # steps, particles, components


SOURCE = """
#include <stdint.h>
#include <time.h>

/* Additions that wait for one another take a cycle each. */
double cycles_per_second(void)
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

/* Requests of one shape from C, as compiled steps make them. */
typedef void Fill(void *, int, uint64_t, uint32_t, uint64_t, uint32_t, uint32_t, int64_t, int64_t, int64_t, double,
                  int);
typedef void FillTile(void *, int, uint64_t, uint32_t, uint64_t, uint32_t, int64_t, int64_t, int64_t, int64_t, double,
                      uint32_t, int64_t);

void fills(Fill *fill, void *out, int kind, int64_t count, int64_t steps, int64_t particles, int64_t components)
{
    for (int64_t k = 0; k < count; k++)
        fill(out, kind, 7, 0, (uint64_t)k, 1, 0, steps, particles, components * (kind == 2 ? 8 : 4), 1.0, 1);
}

void tiles(FillTile *fill, void *out, int kind, int64_t count, int64_t steps, int64_t particles, int64_t components)
{
    for (int64_t k = 0; k < count; k++)
        fill(out, kind, 7, 0, (uint64_t)k, 1, steps, particles, components, particles, 1.0, 1, components);
}
"""


def compiled() -> ctypes.CDLL:
    """What is timed in C."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/bench.so"
        subprocess.run(
            ["gcc", "-O2", "-shared", "-fPIC", "-x", "c", "-", "-o", path], input=SOURCE.encode(), check=True
        )
        library = ctypes.CDLL(path)
    library.cycles_per_second.restype = ctypes.c_double
    for repeat in (library.fills, library.tiles):
        repeat.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, *[ctypes.c_int64] * 4)
        repeat.restype = None
    return library


def calls(bench: ctypes.CDLL, kernel: ctypes.CDLL, out: Tensor, shape: Shape, tile: bool) -> Callable[[], None]:
    """Draws of about NORMALS normals in requests of one shape."""
    count = 1 + NORMALS // math.prod(shape)
    repeat, function = (bench.tiles, kernel.torchsrk_fill_tile) if tile else (bench.fills, kernel.torchsrk_fill)
    request = (ctypes.cast(function, ctypes.c_void_p), out.data_ptr(), native.KINDS[out.dtype], count, *shape)
    return lambda: repeat(*request)


def compare(bench: ctypes.CDLL, other: ctypes.CDLL) -> None:
    """The other library's time over the installed one's, for each shape, in time of the thread."""
    kernel = native.library()
    if kernel is None:
        raise SystemExit("torchsrk is installed without its kernel")
    medians = []
    for dtype, tile in product((torch.float32, torch.float64), (False, True)):
        print(f"\n{dtype}, {'tiles' if tile else 'fills'}: other over installed at {STEPS} steps")
        for particles, components in product(TILES, COMPONENTS):
            ratios = []
            for steps in STEPS:
                shape = (steps, particles, components)
                out = torch.empty(shape, dtype=dtype)
                timed = {"one": calls(bench, kernel, out, shape, tile), "other": calls(bench, other, out, shape, tile)}
                seconds = interleaved(timed, repeats=REPEATS, clock=time.thread_time)
                ratios.append(ratio(seconds["other"], seconds["one"]))
                medians.append(statistics.median(map(truediv, seconds["other"], seconds["one"])))
            print(f"  {particles:5d} particles, {components:2d} components   {'   '.join(ratios)}", flush=True)
    reached = sum(median >= 1.3 for median in medians)
    print(f"\n1.3 and more in {reached} of {len(medians)} cases; the least is {min(medians):.2f}")


def main() -> None:
    print(f"{machine()}; {PARTICLES} x {DIM} normals, {LARGE} x {DIM} for threads")
    bench = compiled()
    cycles = bench.cycles_per_second()
    for dtype in (torch.float32, torch.float64):
        small, large = torch.empty(PARTICLES, DIM, dtype=dtype), torch.empty(LARGE, DIM, dtype=dtype)
        seconds = interleaved(
            {
                "torch": lambda out=small: out.normal_(),
                "one": lambda out=small: fill_normal(out, seed=0, stream=0, threads=1),
            },
            clock=time.thread_time,
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
        compare(bench, native.load(sys.argv[1]))


if __name__ == "__main__":
    main()
