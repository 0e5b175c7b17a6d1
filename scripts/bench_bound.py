"""How far compiled steps are from what the processor allows, beside a jax scan: ``python scripts/bench_bound.py``.

For each case: a step by torchsrk, by jax, and by the parts that a step of this scheme in this precision is made of:
its matrix products at the rate of independent multiply-adds (with one chain, at the rate at which matrices as large are
read, once for the product with each and the one back); its activations by our vector functions on numbers in the
nearest cache; its noise, by compiled steps of a potential that is 0. All take turns in one run, on one thread each, in
time of the processor. The ratio at the bound is what jax over torchsrk would be if a step took the parts and no more.
A bar above it is out of reach on this processor, unless activations or noise become faster; one above the ratio of the
products alone is out of reach whatever becomes of those. Without jax the parts are shown alone. With
``ATEN_CPU_CAPABILITY=avx2`` in the environment nobody uses AVX-512, nor jax.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).parent / "bench"))

import problems
from bench_products import peak_loop, products_of, vector_bytes
from cases import EM, HAND, SRK, Case, Run
from contenders import JAX, TORCHSRK, builder
from crew import Crew, Worker
from tables.throughput_avx2 import without_avx512
from timing import machine
from torch_targets import potential
from torchsrk import Langevin, sample
from torchsrk.compiled import build
from torchsrk.potentials import Potential
from torchsrk.vectors import uses_avx512

SECONDS, CALIBRATIONS = 0.1, 4
_REALS = {torch.float32: ("float", "int32_t", "x##f"), torch.float64: ("double", "int64_t", "x")}
_GRADIENTS = {EM: 1, SRK: 3}
_ONE_THREAD = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1", "OMP_NUM_THREADS": "1"}

_ACTIVATE = """
#define VECTORS_AT_A_TIME 64
void activate(int64_t times)
{
    static V in[VECTORS_AT_A_TIME], out[VECTORS_AT_A_TIME];
    for (int i = 0; i < VECTORS_AT_A_TIME; i++)
        in[i] = splat((REAL)0.1 * (i - VECTORS_AT_A_TIME / 2));
    for (int64_t k = 0; k < times; k++) {
        for (int i = 0; i < VECTORS_AT_A_TIME; i++)
            out[i] = v_NAME(in[i]);
        __asm__ volatile("" : : "r"(in), "r"(out) : "memory");
    }
}
int64_t at_a_time(void) { return VECTORS_AT_A_TIME * TILE; }
"""

_READ = """
#include <stdint.h>
typedef REAL V __attribute__((vector_size(BYTES), aligned(sizeof(REAL))));
#define SUMS 6
#define EACH _Pragma("GCC unroll 6") for (int i = 0; i < SUMS; i++)
REAL read(const REAL *numbers, int64_t rounds, int64_t times)
{
    V there[SUMS], back[SUMS], total = {0};
    EACH there[i] = back[i] = (V){0};
    for (int64_t k = 0; k < times; k++) {
        const V *at = (const V *)numbers;
        for (int64_t j = 0; j < rounds; j++, at += SUMS)
            EACH { there[i] += at[i] * (REAL)0.9; back[i] += at[i] * (REAL)0.1; }
        __asm__ volatile("" : : "r"(numbers) : "memory");
    }
    EACH total += there[i] + back[i];
    return total[0];
}
"""
_VECTORS_READ = 6


def reading_loop(numbers: int, dtype: torch.dtype) -> tuple[Callable[[int], None], int]:
    """A loop that reads so many numbers and makes two products of each, and how many operations a pass has."""
    real, width = _REALS[dtype][0], vector_bytes()
    at_a_time = _VECTORS_READ * width // dtype.itemsize
    rounds = -(-numbers // at_a_time)
    library = build.load(f"#define REAL {real}\n#define BYTES {width}\n{_READ}")
    library.read.argtypes, library.read.restype = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64), None
    array = torch.ones(rounds * at_a_time, dtype=dtype)
    return lambda times: library.read(array.data_ptr(), rounds, times), 4 * rounds * at_a_time


def activation_loop(name: str, dtype: torch.dtype) -> tuple[Callable[[int], None], int]:
    """A loop of so many rounds of a vector function, and how many numbers a round has."""
    real, integer, suffixed = _REALS[dtype]
    files = resources.files("torchsrk.compiled")
    headers = "\n".join(files.joinpath(file).read_text() for file in ("vector.h", "exponential.h", "functions.h"))
    given = {"REAL": real, "REAL_BYTES": dtype.itemsize, "INTEGER": integer, "F(x)": suffixed}
    defined = "".join(f"#define {word} {value}\n" for word, value in given.items())
    library = build.load(defined + headers + _ACTIVATE.replace("NAME", name))
    library.activate.argtypes, library.activate.restype = (ctypes.c_int64,), None
    library.at_a_time.restype = ctypes.c_int64
    return library.activate, library.at_a_time()


class _Activations(TorchDispatchMode):
    """How many numbers each activation function makes within."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[str, int] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        name = {torch.ops.aten.tanh.default: "tanh", torch.ops.aten.sigmoid.default: "sigmoid"}.get(function)
        if name:
            self.numbers[name] = self.numbers.get(name, 0) + made.numel()
        return made


class Nothing(Potential):
    """A potential that is 0: its steps are noise."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x[..., 0])

    def grad(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)


@dataclass(frozen=True)
class Part:
    """What is timed: a run of ``amount``, of which a step of one particle takes ``share``."""

    run: Callable[[int], float]
    amount: int
    share: float

    def nanoseconds(self) -> float:
        """Of a particle and step."""
        return 1e9 * self.run(self.amount) / self.amount * self.share


def processor(run: Callable[[int], object]) -> Callable[[int], float]:
    """The seconds of this process that ``run(amount)`` takes."""

    def timed(amount: int) -> float:
        start = time.process_time()
        run(amount)
        return time.process_time() - start

    return timed


def part(run: Callable[[int], float], first: int, share: float) -> Part:
    """With an amount that takes about as long as a turn is to take."""
    amount = first
    run(amount)
    for _ in range(CALIBRATIONS):
        taken = max(run(amount), 1e-6)
        if taken > 0.5 * SECONDS:
            break
        amount = max(16, int(amount * min(100.0, SECONDS / taken)) // 16 * 16)
        run(amount)  # jax compiles for every number of steps
    return Part(run, amount, share)


def parts_of(case: Case, jax: Worker | None) -> dict[str, Part]:
    """A step by torchsrk, by jax, and its parts."""
    target, dtype = potential(case), getattr(torch, case.dtype)
    x = torch.zeros(64, target.dim, dtype=dtype)
    flops = sum(2 * a.numel() * b.shape[1] for a, b in products_of(target, x)) / len(x)
    with _Activations() as found:
        target.grad(x)
    ((activation, numbers),) = found.numbers.items()
    gradients, each = _GRADIENTS[case.scheme], 1.0 / case.particles
    activate, at_a_time = activation_loop(activation, dtype)
    ours: Run = builder(TORCHSRK)(case)
    nothing, x0 = Langevin(Nothing(target.dim)), torch.zeros(case.shape, dtype=dtype)

    def noise(steps: int) -> None:
        sample(nothing, x0, integrator=case.scheme, step_size=case.step_size, num_steps=steps, seed=0, compile=True)

    made = {
        "torchsrk": part(processor(ours), 16, each),
        "products": _products(target, x, gradients * flops, is_one=case.particles == 1),
        "activations": part(processor(activate), 1_000, gradients * numbers / len(x) / at_a_time),
        "noise": part(processor(noise), 16, each),
    }
    if jax is not None:
        jax.ask("prepare", "jax", JAX, case, 16)
        made["jax"] = part(lambda steps: jax.ask("processor_seconds", "jax", steps), 16, each)
    return made


def _products(target: Potential, x: Tensor, flops: float, is_one: bool) -> Part:
    if not is_one:
        peak = peak_loop(x.dtype)
        return part(processor(peak), 100_000, flops / peak(1))
    weights = {b.data_ptr(): b.numel() for _, b in products_of(target, x)}  # a matrix and its transposed are one
    read, in_a_pass = reading_loop(sum(weights.values()), x.dtype)
    return part(processor(read), 100, flops / in_a_pass)


def measured(case: Case, jax: Worker | None, rounds: int) -> dict[str, list[float]]:
    """Nanoseconds a particle and step of each part, round by round."""
    parts = parts_of(case, jax)
    times: dict[str, list[float]] = {name: [] for name in parts}
    for _ in range(rounds):
        for name, one in parts.items():
            times[name].append(one.nanoseconds())
    bound = zip(times["products"], times["activations"], times["noise"], strict=True)
    return {**times, "bound": list(map(sum, bound))}


def ratio(slow: Iterable[float], fast: Iterable[float]) -> float:
    """How many times longer, as the median over rounds."""
    return statistics.median(a / b for a, b in zip(slow, fast, strict=True))


def plan() -> list[tuple[Case, float]]:
    """Cases, each with its bar of jax over torchsrk, which is 2 for all with AVX-512. Precision changes last: it
    restarts jax."""
    deep, one_layer, regression = problems.deep_network(), problems.network(), problems.logistic_regression()
    cases = []
    for dtype, bar in (("float32", 2.5), ("float64", 2.0)):
        for scheme in (EM, SRK):
            cases += [(Case(target, 5_000, dtype, HAND, scheme), bar) for target in (deep, one_layer)]
            cases += [(Case(regression, 5_000, dtype, HAND, scheme), 3.0)]
            cases += [(Case(target, 1, dtype, HAND, scheme), 1.5) for target in (deep, regression)]
    return [(case, 2.0 if uses_avx512() else bar) for case, bar in cases]


def verdict(now: float, at_bound: float, of_products: float, bar: float) -> str:
    if now >= bar:
        return "met"
    if of_products < bar:
        return "out of reach, by the products alone"
    return "out of reach" if at_bound < bar else "within reach"


def line(case: Case, bar: float, times: dict[str, list[float]]) -> str:
    middle = {name: statistics.median(values) for name, values in times.items()}
    names = ("torchsrk", "products", "activations", "noise", "bound")
    text = "".join(f"{middle[name]:12.1f}" for name in names) + f"{ratio(times['torchsrk'], times['bound']):8.2f}"
    label = f"{case.problem.name}, {case.particles}, {case.dtype}, {case.scheme}"
    if "jax" not in times:
        return f"{label:<44}{text}"
    now, most = ratio(times["jax"], times["torchsrk"]), ratio(times["jax"], times["bound"])
    alone = ratio(times["jax"], times["products"])
    said = f"{middle['jax']:12.1f}{now:7.2f}{most:9.2f}{alone:10.2f}{bar:6.1f}  {verdict(now, most, alone, bar)}"
    return f"{label:<44}{text}{said}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    has_jax = find_spec("jax") is not None
    print(f"{machine()}, {torch.backends.cpu.get_cpu_capability()}; ns a particle and step, medians of {rounds} rounds")
    if not has_jax:
        print("jax is not installed here, so its columns and the bars are left out: what is shown are the parts alone.")
    names = ("torchsrk", "products", "activations", "noise", "bound")
    of_jax = f"{'jax':>12}{'ratio':>7}{'at bound':>9}{'products':>10}{'bar':>6}" if has_jax else ""
    print(f"{'case':<44}{''.join(f'{name:>12}' for name in names)}{'over it':>8}{of_jax}")
    environment = _ONE_THREAD if uses_avx512() else without_avx512(_ONE_THREAD)
    with Crew(rounds, SECONDS, 60.0, environment) if has_jax else nullcontext() as crew:
        for case, bar in plan():
            jax = crew.worker(JAX, case.dtype) if crew else None
            print(line(case, bar, measured(case, jax, rounds)), flush=True)


if __name__ == "__main__":
    main()
