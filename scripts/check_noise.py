"""Statistical tests of the noise over many draws: ``python scripts/check_noise.py 1000000000``.

Normality: a chi-square test over 4096 bins of equal probability, the first six moments, and counts beyond 3, 4, 5, 6.
Independence: correlations of values and of squares between neighbouring components, particles, steps and streams.
Every p-value is held to a significance of 1e-3 shared out over all of them (Bonferroni).
"""

from __future__ import annotations

import argparse
import math
import sys

import torch
from scipy import stats
from torch import Tensor
from tqdm import tqdm

from torchsrk.brownian import fill_normal

PARTICLES, DIM, BINS, LEVEL = 50_000, 20, 4096, 1e-3
MOMENTS = {1: 0.0, 2: 1.0, 3: 0.0, 4: 3.0, 5: 0.0, 6: 15.0}
DOUBLE_FACTORIAL = {1: 1.0, 2: 3.0, 3: 15.0, 4: 105.0, 5: 945.0, 6: 10395.0}
CUTS = (3.0, 4.0, 5.0, 6.0)


def two_sided(z: float) -> float:
    """The p-value of a standard normal score."""
    return float(2 * stats.norm.sf(abs(z)))


def neighbours(now: Tensor, next_step: Tensor, other_stream: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Pairs that would be correlated if a part of the counter were badly mixed."""
    return {
        "components of a pair": (now[:, 0::2], now[:, 1::2]),
        "neighbouring components": (now[:, :-1], now[:, 1:]),
        "neighbouring particles": (now[:-1], now[1:]),
        "neighbouring steps": (now, next_step),
        "neighbouring streams": (now, other_stream),
    }


def examine(dtype: torch.dtype, draws: int, seed: int) -> dict[str, float]:
    """p-values by name, over ``draws`` numbers."""
    steps = max(1, draws // (PARTICLES * DIM))
    edges = torch.tensor(stats.norm.ppf([k / BINS for k in range(1, BINS)]), dtype=dtype)
    counts = torch.zeros(BINS, dtype=torch.int64)
    beyond = torch.zeros(len(CUTS), dtype=torch.int64)
    powers = torch.zeros(len(MOMENTS), dtype=torch.float64)
    products: dict[str, list[float]] = {}

    def draw(step: int, stream: int) -> Tensor:
        out = torch.empty(PARTICLES, DIM, dtype=dtype)
        return fill_normal(out, seed=seed, stream=stream, step=step)

    now = draw(0, 0)
    for step in tqdm(range(steps), desc=str(dtype), unit="Mdraw"):
        flat = now.flatten()
        counts += torch.bincount(torch.bucketize(flat, edges), minlength=BINS)
        size = flat.abs()
        beyond += torch.tensor([int((size > cut).sum()) for cut in CUTS])
        double = flat.double()
        power = torch.ones_like(double)
        for index in range(len(MOMENTS)):
            power = power * double
            powers[index] += power.sum()
        following = draw(step + 1, 0)
        for name, (a, b) in neighbours(now, following, draw(step, 1)).items():
            for label, first, second in (("values", a, b), ("squares", a.square() - 1.0, b.square() - 1.0)):
                total = products.setdefault(f"{name}, {label}", [0.0, 0])
                total[0] += float((first.double() * second.double()).sum())
                total[1] += first.numel()
        now = following

    n = steps * PARTICLES * DIM
    results = {"chi-square, 4096 bins": float(stats.chisquare(counts.numpy()).pvalue)}
    for index, (power_number, mean) in enumerate(MOMENTS.items()):
        spread = math.sqrt((DOUBLE_FACTORIAL[power_number] - mean**2) / n)
        results[f"moment {power_number}"] = two_sided((float(powers[index]) / n - mean) / spread)
    for cut, count in zip(CUTS, beyond.tolist(), strict=True):
        results[f"beyond {cut:g} ({count} draws)"] = float(stats.binomtest(count, n, 2 * stats.norm.sf(cut)).pvalue)
    for name, (total, count) in products.items():
        unit = 1.0 if "values" in name else 2.0  # Var z = 1, Var z² = 2
        results[name] = two_sided(total / unit / math.sqrt(count))
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("draws", type=int, help="numbers to draw in each dtype")
    parser.add_argument("--seed", type=int, default=2024)
    arguments = parser.parse_args()
    failed = 0
    for dtype in (torch.float32, torch.float64):
        results = examine(dtype, arguments.draws, arguments.seed)
        limit = LEVEL / (2 * len(results))
        print(f"\n{dtype}: {arguments.draws:.1e} draws, seed {arguments.seed}, a p-value below {limit:.1e} fails")
        for name, p in results.items():
            failed += p < limit
            print(f"  {name:40} p = {p:.4f}{'   FAILED' if p < limit else ''}")
    print(f"\n{failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
