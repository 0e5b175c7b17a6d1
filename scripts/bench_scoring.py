"""Scoring at size: energy distance and kernel Stein discrepancy against straightforward chunked torch.

With their peak memory, Sinkhorn's value beside that of exact transport, and the four exact transports of a corrected
estimate beside the network simplex's, one after another (``--only transport``).
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

import torch
from torch import Tensor

from timing import interleaved, machine, ratio
from torchsrk.metrics import (
    corrected_wasserstein2_squared,
    energy_distance_squared,
    kernel_stein_discrepancy,
    wasserstein2_squared,
)
from torchsrk.metrics.libraries import transport

DIM, CHUNK = 20, 1000


def plain_energy(x: Tensor, y: Tensor) -> float:
    """What one writes first: rows of cdist, summed."""

    def mean(a: Tensor, b: Tensor) -> float:
        return sum(float(torch.cdist(rows, b).sum(dtype=torch.float64)) for rows in a.split(CHUNK)) / len(a) / len(b)

    return 2 * mean(x, y) - mean(x, x) - mean(y, y)


def plain_stein(x: Tensor, score: Tensor) -> float:
    """What one writes first: the formula over rows against all points."""
    total = 0.0
    for rows, own in zip(x.split(CHUNK), score.split(CHUNK), strict=True):
        squared = torch.cdist(rows, x).square()
        q = 1.0 + squared
        along = (own * rows).sum(-1, keepdim=True) + (score * x).sum(-1)
        cross = rows @ score.mT + own @ x.mT - along
        kernel = (own @ score.mT) * q**-0.5 - (cross - DIM) * q**-1.5 - 3.0 * squared * q**-2.5
        total += float(kernel.sum(dtype=torch.float64))
    return (total / len(x) ** 2) ** 0.5


def peak_memory(call: str, points: int) -> float:
    """Peak memory in MB of one call in a process of its own, the inputs and torch included."""
    code = f"""
import torch
from torchsrk.metrics import energy_distance_squared, kernel_stein_discrepancy
x, y = torch.randn({points}, {DIM}), torch.randn({points}, {DIM})
{call}
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(run.stdout) / 1024


def simplex_estimate(x: Tensor, x2: Tensor, y: Tensor, y2: Tensor) -> float:
    """The corrected estimate by POT's network simplex, one transport after another."""

    def distance(a: Tensor, b: Tensor) -> float:
        cost = torch.cdist(a, b).square().numpy()
        return float(transport().emd2([], [], cost, numItermax=10**9))

    return 0.5 * (distance(x, y) + distance(x2, y2) - distance(x, x2) - distance(y, y2))


def show_transports(repeats: int, sizes: list[int], dims: list[int]) -> None:
    """Seconds of the clock and of the processor, interleaved, for an estimate of a law that is 1.2 times as wide."""
    for points in sizes:
        for dim in dims:
            generator = torch.Generator().manual_seed(1)
            clouds = [torch.randn(points, dim, generator=generator, dtype=torch.float64) for _ in range(4)]
            clouds = [scale * cloud for scale, cloud in zip((1.2, 1.2, 1.0, 1.0), clouds, strict=True)]
            values: dict[str, float] = {}

            def ours(clouds: list[Tensor] = clouds, values: dict[str, float] = values) -> None:
                values["torchsrk"] = float(corrected_wasserstein2_squared(*clouds, method="exact"))  # type: ignore[arg-type]

            def simplex(clouds: list[Tensor] = clouds, values: dict[str, float] = values) -> None:
                values["simplex"] = simplex_estimate(*clouds)

            contenders = {"torchsrk": ours, "simplex": simplex}
            seconds: dict[str, list[float]] = {name: [] for name in contenders}
            busy: dict[str, list[float]] = {name: [] for name in contenders}
            for _ in range(repeats):
                for name, run in contenders.items():
                    clock, processor = time.perf_counter(), time.process_time()
                    run()
                    seconds[name].append(time.perf_counter() - clock)
                    busy[name].append(time.process_time() - processor)
            apart = abs(values["torchsrk"] - values["simplex"])
            print(f"\nfour exact transports, {points} points in {dim}-D: {values['torchsrk']:.9f}, apart {apart:.1e}")
            for name in contenders:
                clock, processor = (statistics.median(times[name]) for times in (seconds, busy))
                print(f"  {name:8} {clock:7.2f} s, {processor:7.2f} of the processor")
            ratios = [
                statistics.median(a / b for a, b in zip(t["simplex"], t["torchsrk"], strict=True))
                for t in (seconds, busy)
            ]
            print(f"  ratio    {ratios[0]:.2f}, {ratios[1]:.2f} of the processor", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=50_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=["transport"])
    parser.add_argument("--sizes", type=int, nargs="+", default=[2000, 5000])
    parser.add_argument("--dims", type=int, nargs="+", default=[2, 20])
    arguments = parser.parse_args()
    if arguments.only == "transport":
        print(machine())
        show_transports(arguments.repeats, arguments.sizes, arguments.dims)
        return
    n, generator = arguments.points, torch.Generator().manual_seed(0)
    x = torch.randn(n, DIM, generator=generator)
    y = 1.1 * torch.randn(n, DIM, generator=generator)
    print(f"{machine()}; {n} points in {DIM}-D, float32")

    def show(name: str, ours: float, plain: float, seconds: dict[str, list[float]], call: str) -> None:
        print(f"\n{name}: {ours:.6f}, plain {plain:.6f}")
        for who, values in seconds.items():
            print(f"  {who:8} {statistics.median(values):7.2f} s")
        print(f"  ratio    {ratio(seconds['plain'], seconds['torchsrk'])}")
        print(f"  peak memory {peak_memory(call, n):.0f} MB", flush=True)

    with torch.no_grad():
        seconds = interleaved(
            {"torchsrk": lambda: energy_distance_squared(x, y), "plain": lambda: plain_energy(x, y)}, arguments.repeats
        )
        ours, plain = float(energy_distance_squared(x, y)), plain_energy(x, y)
        show("energy distance squared", ours, plain, seconds, "energy_distance_squared(x, y)")
        seconds = interleaved(
            {"torchsrk": lambda: kernel_stein_discrepancy(y, -y), "plain": lambda: plain_stein(y, -y)},
            arguments.repeats,
        )
        ours, plain = float(kernel_stein_discrepancy(y, -y)), plain_stein(y, -y)
        show("kernel Stein discrepancy", ours, plain, seconds, "kernel_stein_discrepancy(x, -x)")

        print("\nSinkhorn over exact W2², 2,000 points against 2,000")
        for dim in (2, 20):
            a, b = x[:2000, :dim], y[:2000, :dim] + 0.1
            exact = float(wasserstein2_squared(a, b, "exact"))
            by_blur = {
                name: float(wasserstein2_squared(a, b, "sinkhorn", blur=blur)) / exact
                for name, blur in (("default", None), ("0.05", 0.05))
            }
            print(f"  {dim:2}-D: exact {exact:.4f}; " + ", ".join(f"blur {k} {v:.3f}" for k, v in by_blur.items()))


if __name__ == "__main__":
    main()
