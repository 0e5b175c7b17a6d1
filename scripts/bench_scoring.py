"""Scoring at size: energy distance and kernel Stein discrepancy against straightforward chunked torch.

With their peak memory, Sinkhorn's value beside that of exact transport, and exact transport by the compiled solver
beside lapx's, scipy's and POT's network simplex, one by one and as the four of a corrected estimate (``--only
transport``).
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor

from timing import interleaved, machine, ratio
from torchsrk.metrics import (
    corrected_wasserstein2_squared,
    energy_distance_squared,
    kernel_stein_discrepancy,
    matching,
    wasserstein2_squared,
)

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


def law_pairs(points: int, dim: int) -> dict[str, tuple[Tensor, Tensor]]:
    """Clouds of two laws that are equal, or differ in location, in scale, or in the weights of their two modes."""
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randn(points, dim, generator=generator, dtype=torch.float64) for _ in range(2))
    modes = [torch.where(torch.arange(points) < share * points, 2.0, -2.0).unsqueeze(1) for share in (0.5, 0.53)]
    return {
        "equal": (x, y),
        "location": (x, y + 1.0),
        "scale": (x, 1.2 * y),
        "two modes": (x + modes[0], y + modes[1]),
    }


def scipy_assignment(x: Tensor, y: Tensor) -> matching.Plan:
    """By scipy's solver, on the distances as they are."""
    from scipy.optimize import linear_sum_assignment

    source, to = linear_sum_assignment(torch.cdist(x, y).square().numpy())
    return matching._permutation(torch.as_tensor(source), torch.as_tensor(to))


TRANSPORTS: dict[str, Callable[[Tensor, Tensor], matching.Plan | None]] = {
    "torchsrk": matching._certified,
    "lapx": matching._jonker_volgenant,
    "simplex": lambda x, y: matching._simplex(x, y, None, None),
    "scipy": scipy_assignment,
}
MOST_FOR_SCIPY = 2000  # points


def show_transports(repeats: int, sizes: list[int], dims: list[int]) -> None:
    """Seconds of the processor for one exact transport, interleaved, on one thread, and how far values are apart."""
    torch.set_num_threads(1)
    others = [name for name in TRANSPORTS if name != "torchsrk"]
    heads = ["points", "dim", "laws", *(f"{name}, s" for name in TRANSPORTS), *(f"{k}/ours" for k in others), "apart"]
    print("\n| " + " | ".join(heads) + " |")
    print("| --- " * len(heads) + "|")
    for points, dim in product(sizes, dims):
        for laws, (x, y) in law_pairs(points, dim).items():
            solvers = {name: f for name, f in TRANSPORTS.items() if name != "scipy" or points <= MOST_FOR_SCIPY}
            busy: dict[str, list[float]] = {name: [] for name in solvers}
            values: dict[str, float] = {}
            for _ in range(repeats):
                for name, solve in solvers.items():
                    start = time.process_time()
                    plan = solve(x, y)
                    busy[name].append(time.process_time() - start)
                    if plan is None:
                        raise SystemExit("the compiled solver is not there, or certified nothing")
                    values[name] = float(plan.cost(x, y))
            own = busy["torchsrk"]
            shares = {k: statistics.median(b / a for a, b in zip(own, busy[k], strict=True)) for k in busy}
            apart = max(values.values()) / min(values.values()) - 1.0
            seconds = " | ".join(f"{statistics.median(busy[k]):.3f}" if k in busy else "" for k in TRANSPORTS)
            ratios = " | ".join(f"{shares[k]:.1f}" if k in busy else "" for k in others)
            print(f"| {points} | {dim} | {laws} | {seconds} | {ratios} | {apart:.0e} |", flush=True)


def show_estimate(repeats: int, points: int, dim: int) -> None:
    """Seconds by the clock for the four exact transports of a corrected estimate on all cores: ours, the simplex's."""
    torch.set_num_threads(os.cpu_count() or 1)
    generator = torch.Generator().manual_seed(1)
    clouds = [torch.randn(points, dim, generator=generator, dtype=torch.float64) for _ in range(4)]
    x, x2, y, y2 = clouds[0], clouds[1], 1.2 * clouds[2], 1.2 * clouds[3]

    def by_simplex() -> float:
        pairs = ((x, y, 0.5), (x2, y2, 0.5), (x, x2, -0.5), (y, y2, -0.5))
        return sum(sign * float(matching._simplex(a, b, None, None).cost(a, b)) for a, b, sign in pairs)

    def ours() -> float:
        return float(corrected_wasserstein2_squared(x, x2, y, y2, method="exact"))  # type: ignore[arg-type]

    estimates = {"torchsrk": ours, "simplex": by_simplex}
    seconds: dict[str, list[float]] = {name: [] for name in estimates}
    values: dict[str, float] = {}
    for _ in range(repeats):
        for name, estimate in estimates.items():
            start = time.perf_counter()
            values[name] = estimate()
            seconds[name].append(time.perf_counter() - start)
    print(f"\nfour transports of a corrected estimate, {points} points in {dim}-D, {machine()}")
    for name, times in seconds.items():
        print(f"  {name:8} {statistics.median(times):7.2f} s, W2² {values[name]:.12f}")
    print(f"  ratio    {ratio(seconds['simplex'], seconds['torchsrk'])}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=50_000)
    parser.add_argument("--repeats", type=int, default=3, help="two or more")
    parser.add_argument("--only", choices=["transport"])
    parser.add_argument("--sizes", type=int, nargs="+", default=[2000, 5000])
    parser.add_argument("--dims", type=int, nargs="+", default=[2, 20])
    arguments = parser.parse_args()
    if arguments.repeats < 2:
        parser.error(f"--repeats: two or more, for the quartiles of ratios; got {arguments.repeats}")
    if arguments.only == "transport":
        print(machine())
        show_transports(arguments.repeats, arguments.sizes, arguments.dims)
        show_estimate(arguments.repeats, max(arguments.sizes), max(arguments.dims))
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
