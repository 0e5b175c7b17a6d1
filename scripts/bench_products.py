"""How near to the processor's peak compiled steps with matrix products are: ``python scripts/bench_products.py``.

Steps of Euler-Maruyama, one gradient each, on one thread, in time of the processor. The peak is that of a loop of
independent multiply-adds that runs in turns with the steps; the work is that of the gradient's matrix products alone,
so what the other parts of a step take (activations, noise) counts against its share. Beside it stand the products alone
by torch.mm, over all particles and over a tile of them: whether to call a BLAS instead is read off here.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from timing import interleaved, machine
from torchsrk import Langevin, sample
from torchsrk.brownian import fill_normal
from torchsrk.compiled import build
from torchsrk.potentials import FunctionPotential, LogisticRegression, Potential

PARTICLES, TILE, REPEATS, BAR = 5000, 32, 9, 0.5
SECONDS = 0.1  # of a run

_PEAK = """
#include <stdint.h>
typedef REAL V __attribute__((vector_size(BYTES)));
#define SUMS 12
#define EACH _Pragma("GCC unroll 12") for (int i = 0; i < SUMS; i++)
REAL multiply_add(int64_t times)
{
    V sum[SUMS], total = {0};
    EACH sum[i] = (V){0} + (REAL)i;
    for (int64_t k = 0; k < times; k++)
        EACH { sum[i] = sum[i] * (REAL)0.9 + (REAL)0.1; __asm__("" : "+x"(sum[i])); }
    EACH total += sum[i];
    return total[0];
}
"""
_SUMS = 12


def vector_bytes() -> int:
    """The width of the vectors that torch uses, and compiled steps with it."""
    return {"DEFAULT": 16, "AVX2": 32, "AVX512": 64}.get(torch.backends.cpu.get_cpu_capability(), 16)


def peak_loop(dtype: torch.dtype) -> Callable[[int], int]:
    """A loop of so many rounds of independent multiply-adds; it returns how many operations those are."""
    bytes_ = vector_bytes()
    real = {torch.float32: "float", torch.float64: "double"}[dtype]
    library = build.load(f"#define REAL {real}\n#define BYTES {bytes_}\n{_PEAK}")
    library.multiply_add.argtypes = (ctypes.c_int64,)

    def run(rounds: int) -> int:
        library.multiply_add(rounds)
        return 2 * rounds * _SUMS * bytes_ // dtype.itemsize

    return run


class Energy(Potential):
    """Layers of tanh with a quadratic that holds the particles together."""

    def __init__(self, *sizes: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        pairs = list(pairwise(sizes))
        layers = [part for a, b in pairs[:-1] for part in (nn.Linear(a, b), nn.Tanh())]
        self.layers, self.dim = nn.Sequential(*layers, nn.Linear(*pairs[-1])), sizes[0]

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).squeeze(-1) + 0.5 * x.square().sum(-1)


class OneLayer(Potential):
    """The benchmark's one-layer network, with its gradient by hand."""

    dim = 2

    def __init__(self, hidden: int = 64) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        for name, shape in (("inner", (hidden, 2)), ("bias", (hidden,)), ("outer", (hidden,))):
            self.register_buffer(name, torch.randn(shape, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x.square().sum(-1) + torch.tanh(x @ self.inner.T + self.bias) @ self.outer

    def grad(self, x: Tensor) -> Tensor:
        """x + Vᵀ(w(1 - tanh²(Vx + b)))."""
        active = torch.tanh(x @ self.inner.T + self.bias)
        return x + ((1.0 - active.square()) * self.outer) @ self.inner


def targets() -> dict[str, tuple[Potential, bool]]:
    """Each with whether the bar holds for it: where layers have 64 units and more."""
    return {
        "network 2-64-64-1": (Energy(2, 64, 64, 1), True),
        "network 20-128-128-1": (Energy(20, 128, 128, 1), True),
        "regression 1000 x 20": (LogisticRegression.synthetic(1000, 20, seed=0), False),
        "one layer, 2-64": (OneLayer(), False),
    }


class _Products(TorchDispatchMode):
    """The factors of every matrix product within."""

    def __init__(self) -> None:
        super().__init__()
        self.factors: list[tuple[Tensor, Tensor]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default):
            self.factors.append(tuple(args[-2:]))
        return function(*args, **(kwargs or {}))


def products_of(target: Potential, x: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The factors of the matrix products in a gradient that have a row for each particle."""
    with _Products() as found:
        target.grad(x)
    return [(a.detach(), b.detach()) for a, b in found.factors if a.shape[0] == len(x)]


def by_torch(products: list[tuple[Tensor, Tensor]], tile: int) -> Callable[[], None]:
    """These products alone by torch.mm, so many particles at a time."""
    work = [(part, b, part.new_empty(len(part), b.shape[1])) for a, b in products for part in a.split(tile)]

    def run() -> None:
        for a, b, out in work:
            torch.mm(a, b, out=out)

    return run


def measure(target: Potential, dtype: torch.dtype) -> dict[str, float]:
    """Nanoseconds a particle and step of each way, and the step's share of the peak."""
    target = target.to(dtype)
    compiled = target if type(target).grad is not Potential.grad else FunctionPotential(target, target.dim)
    sde, x0, peak = Langevin(compiled), torch.zeros(PARTICLES, target.dim, dtype=dtype), peak_loop(dtype)
    x = torch.randn(PARTICLES, target.dim, dtype=dtype, generator=torch.Generator().manual_seed(0))
    noise, products = torch.empty_like(x), products_of(target, x)

    def run(steps: int) -> None:
        sample(sde, x0, integrator="em", step_size=0.0625, num_steps=steps, seed=0, compile=True)

    run(10)
    first = statistics.median(interleaved({"steps": lambda: run(10)}, repeats=3)["steps"])
    steps = max(10, int(10 * SECONDS / first))
    rounds = int(4e6 * SECONDS)
    contenders: dict[str, Callable[[], object]] = {
        "peak": lambda: peak(rounds),
        "step": lambda: run(steps),
        "torch": by_torch(products, PARTICLES),
        "tiles": by_torch(products, TILE),
        "noise": lambda: fill_normal(noise, seed=0, stream=0, threads=1),
    }
    with torch.no_grad():
        seconds = interleaved(contenders, REPEATS, time.process_time)
    done = peak(1) * rounds
    flops = sum(2 * a.numel() * b.shape[1] for a, b in products)
    shares = [flops * steps / step / (done / top) for step, top in zip(seconds["step"], seconds["peak"], strict=True)]
    scale = {"step": steps, "torch": 1, "tiles": 1, "noise": 1}
    each = {name: 1e9 * statistics.median(seconds[name]) / PARTICLES / times for name, times in scale.items()}
    return {**each, "share": statistics.median(shares), "peak": 1e-9 * done / statistics.median(seconds["peak"])}


def main() -> None:
    torch.set_num_threads(1)
    print(f"{machine()}; {PARTICLES} particles, {torch.backends.cpu.get_cpu_capability()}, ns a particle and step")
    print(f"{'':<23}{'':<9}{'peak,':>9}{'share':>7}{'':>9}{'':>8}{'torch.mm,':>11}{'by tiles':>10}")
    print(f"{'gradient':<23}{'dtype':<9}{'Gflop/s':>9}{'of it':>7}{'step':>9}{'noise':>8}{'all':>11}{f'of {TILE}':>10}")
    for name, (target, has_bar) in targets().items():
        for dtype in (torch.float32, torch.float64):
            found = measure(target, dtype)
            verdict = "" if not has_bar else "  met" if found["share"] >= BAR else f"  below {BAR}"
            row = "".join(f"{found[key]:{width}.0f}" for key, width in (("step", 9), ("noise", 8), ("torch", 11)))
            label = str(dtype).removeprefix("torch.")
            print(f"{name:<23}{label:<9}{found['peak']:9.0f}{found['share']:7.2f}{row}{found['tiles']:10.0f}{verdict}")


if __name__ == "__main__":
    main()
