"""Timing for the benchmarks: contenders interleaved in one run, medians, and ratios in place of absolute claims."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping

import torch


def interleaved(
    contenders: Mapping[str, Callable[[], object]],
    repeats: int = 15,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of every contender in every round, after one round to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for round_number in range(repeats + 1):
        for name, run in contenders.items():
            start = clock()
            run()
            if round_number > 0:
                seconds[name].append(clock() - start)
    return seconds


def ratio(slow: list[float], fast: list[float]) -> str:
    """How many times longer, as the median over rounds with its quartiles."""
    quotients = sorted(a / b for a, b in zip(slow, fast, strict=True))
    low, middle, high = statistics.quantiles(quotients, n=4, method="inclusive")
    return f"{middle:.2f} (quartiles {low:.2f} to {high:.2f})"


def machine() -> str:
    """One line on what the numbers were measured on."""
    return f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}, {torch.get_num_threads()} threads"
