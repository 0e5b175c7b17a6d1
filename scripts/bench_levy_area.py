"""Lévy areas at equal error: what each approximation costs beside the Fourier series of 3000 terms."""

from __future__ import annotations

import math
import statistics

import torch

from timing import interleaved, machine, ratio
from torchsrk.brownian import (
    FourierLevyArea,
    LevyArea,
    MrongowiusRoesslerLevyArea,
    StepNormals,
    Stream,
    WiktorssonLevyArea,
    fill_normal,
)

M, PARTICLES, STEP = 10, 1000, 1e-3


def terms_for(method: type[LevyArea], error: float) -> int:
    """The terms after which the declared error is at most ``error``."""
    return math.ceil((STEP * method.coefficient(M) / error) ** (1 / method.exponent))


def main() -> None:
    fourier = FourierLevyArea(3000)
    error = fourier.error(STEP, M)
    methods: list[LevyArea] = [fourier]
    methods += [method(terms_for(method, error)) for method in (WiktorssonLevyArea, MrongowiusRoesslerLevyArea)]
    print(f"{machine()}; m = {M}, h = {STEP}, {PARTICLES} areas, root-mean-square error at most {error:.2e}")
    for dtype in (torch.float32, torch.float64):
        W = torch.empty(PARTICLES, M, dtype=dtype)
        fill_normal(W, seed=0, stream=Stream.INCREMENT, scale=math.sqrt(STEP))
        seconds = interleaved(
            {str(method): lambda method=method, W=W: method.sample(W, STEP, StepNormals(0, 0)) for method in methods},
            repeats=9,
        )
        print(f"\n{dtype}")
        for method in methods:
            values = seconds[str(method)]
            cost = f"{1e6 * statistics.median(values) / PARTICLES:9.2f} µs an area"
            gain = ratio(seconds[str(fourier)], values)
            print(f"  {type(method).__name__:28} {method.terms:5} terms {cost}, {gain} times faster")


if __name__ == "__main__":
    main()
