"""Training steps beside torchsde, and beside diffrax and torchebm where they are installed.

``python scripts/bench_training.py [--wide]``. A neural SDE, forward and backward over all steps: drift and diagonal
diffusion are networks of two linear layers with tanh, the diffusion's (one for every entry) with a softplus at its end;
with additive noise it is a constant matrix. And an energy model's update of its persistent chains, 30 gradients of a
network 2-64-64-1 with SiLU, whose parameters change between updates. Contenders take turns in one run; medians.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from neural_sdes import Size, Update, diffraxes, ours, products, torchsdes
from timing import machine
from torchsrk import Langevin, sample
from torchsrk.compiled import programs
from train_energy_model import EnergyNetwork

CHAINS, STEP_SIZE, GRADIENTS = 500, 0.01, 30
SCHEMES = {"em": 30, "srk-ld": 10}
Seconds = dict[str, list[tuple[float, float]]]


def interleaved(contenders: Mapping[str, Callable[[], object]], repeats: int) -> tuple[Seconds, dict[str, float]]:
    """(CPU, wall) seconds of every contender in every round, and the wall time of its first call."""
    first, seconds = {}, {name: list[tuple[float, float]]() for name in contenders}
    for round_number in range(repeats + 1):
        for name, run in contenders.items():
            cpu, wall = time.process_time(), time.perf_counter()
            run()
            spent = time.process_time() - cpu, time.perf_counter() - wall
            if round_number:
                seconds[name].append(spent)
            else:
                first[name] = spent[1]
    return seconds, first


def microseconds(seconds: Seconds, name: str, steps: int, clock: int) -> float:
    return 1e6 * statistics.median(pair[clock] for pair in seconds[name]) / steps


# name: (what it is, what it is compared with)
HEADLINE: dict[str, tuple[Callable[[Size], Update], str]] = {
    "em": (lambda size: ours(size, "diagonal", "em"), "euler"),
    "em, compiled": (lambda size: ours(size, "diagonal", "em", compile=True), "euler"),
    "em, compiled, recomputed": (lambda size: ours(size, "diagonal", "em", compile=True, recompute=True), "euler"),
    "euler": (lambda size: torchsdes(size, "diagonal", "euler"), ""),
    "euler, adjoint": (lambda size: torchsdes(size, "diagonal", "euler", adjoint=True), ""),
    "products of em": (lambda size: products(size, "diagonal", 1, 1), ""),
    "srk-id": (lambda size: ours(size, "diagonal", "srk-id"), "milstein"),
    "srk-id, compiled": (lambda size: ours(size, "diagonal", "srk-id", compile=True), "milstein"),
    "milstein": (lambda size: torchsdes(size, "diagonal", "milstein"), ""),
    "milstein, adjoint": (lambda size: torchsdes(size, "diagonal", "milstein", adjoint=True), ""),
    "products of srk-id": (lambda size: products(size, "diagonal", 1, 3), ""),
    "sra1": (lambda size: ours(size, "additive", "sra1"), "srk, additive"),
    "sra1, compiled": (lambda size: ours(size, "additive", "sra1", compile=True), "srk, additive"),
    "shark, compiled": (lambda size: ours(size, "additive", "shark", compile=True), "srk, additive"),
    "srk-ld, compiled": (lambda size: ours(size, "additive", "srk-ld", compile=True), "srk, additive"),
    "srk, additive": (lambda size: torchsdes(size, "additive", "srk"), ""),
    "products of sra1": (lambda size: products(size, "additive", 2, 0), ""),
}


def headline(size: Size, threads: int, repeats: int) -> None:
    torch.set_num_threads(threads)
    contenders = {name: make(size) for name, (make, _) in HEADLINE.items()}
    if find_spec("diffrax") is not None:
        contenders["diffrax euler"] = diffraxes(size, "diagonal")
    seconds, first = interleaved(contenders, repeats)
    print(f"\n{size}, float32, {threads} threads: microseconds a step, forward and backward; first call in seconds")
    print(f"{'':<26}{'CPU':>7}{'wall':>7}{'first':>7}  torchsde's CPU over ours, wall over wall")
    for name in contenders:
        other = HEADLINE[name][1] if name in HEADLINE else ""
        times = [microseconds(seconds, name, size.steps, clock) for clock in (0, 1)]
        ratios = [microseconds(seconds, other, size.steps, clock) / times[clock] for clock in (0, 1) if other]
        beside = f"  {other}: {ratios[0]:.2f}, {ratios[1]:.2f}" if other else ""
        print(f"{name:<26}{times[0]:7.0f}{times[1]:7.0f}{first[name]:7.2f}{beside}", flush=True)


_PEAK = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
torch.set_num_threads(1)
from bench_training import HEADLINE
from neural_sdes import Size
def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
HEADLINE[sys.argv[2]][0](Size(batch=8, steps=4))()  # libraries are loaded, programs made
update = HEADLINE[sys.argv[2]][0](Size())
before = peak()
update()
print(peak() - before)
"""


def memory() -> None:
    """By how much a training step raises a process's peak memory."""
    print(f"\n{Size()}: megabytes that a training step takes")
    names = (
        "em",
        "em, compiled",
        "em, compiled, recomputed",
        "euler",
        "euler, adjoint",
        "srk-id, compiled",
        "milstein",
    )
    for name in (*names, "sra1, compiled", "srk, additive"):
        command = [sys.executable, "-c", _PEAK, str(Path(__file__).parent), name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        print(f"{name:<26}{float(done.stdout.split()[-1]):7.1f}", flush=True)


def wide(repeats: int) -> None:
    """Other sizes, one at a time away from the headline's, one thread."""
    torch.set_num_threads(1)
    sizes = [Size(batch=64), Size(batch=1024), Size(steps=100), Size(steps=1000), Size(hidden=32), Size(hidden=256)]
    pairs = ("em", "em, compiled", "euler", "euler, adjoint", "srk-id, compiled", "milstein", "sra1, compiled")
    columns = (*pairs, "srk, additive", *(("diffrax euler",) if find_spec("diffrax") else ()))
    print("\nOther sizes, CPU microseconds a step, one thread")
    print(f"{'batch hidden steps':<22}" + "".join(f"{name:>18}" for name in columns))
    for size in sizes:
        contenders = {name: HEADLINE[name][0](size) for name in columns if name in HEADLINE}
        if "diffrax euler" in columns:
            contenders["diffrax euler"] = diffraxes(size, "diagonal")
        seconds, _ = interleaved(contenders, repeats)
        row = "".join(f"{microseconds(seconds, name, size.steps, 0):18.0f}" for name in columns)
        print(f"{size.batch:>6} {size.hidden:>6} {size.steps:>6}  {row}", flush=True)


def by_hand(energy: EnergyNetwork, x: Tensor, gradients: int = GRADIENTS) -> Tensor:
    """Euler-Maruyama as it is written in a training loop."""
    for _ in range(gradients):
        point = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(energy(point).sum(), point)
        x = x - STEP_SIZE * slope + (2.0 * STEP_SIZE) ** 0.5 * torch.randn_like(x)
    return x.detach()


def torchebms(energy: EnergyNetwork) -> Callable[[Tensor], Tensor]:
    """torchebm's Langevin dynamics of the same energy."""
    from torchebm.core import BaseModel
    from torchebm.samplers import LangevinDynamics

    class Model(BaseModel):
        def __init__(self) -> None:
            super().__init__()
            self.energy = energy

        def forward(self, x: Tensor) -> Tensor:
            return self.energy(x)

    sampler = LangevinDynamics(Model(), step_size=STEP_SIZE, noise_scale=1.0)
    return lambda x: sampler.sample(x=x, n_steps=GRADIENTS).detach()


def energy_updates(threads: int, updates: int) -> None:
    """Updates of persistent chains a second, the parameters moved between them."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    energy = EnergyNetwork(64)
    seed = iter(range(1 << 30))

    def compiled(scheme: str) -> Callable[[Tensor], Tensor]:
        sde = Langevin(energy)
        options: dict[str, Any] = {"integrator": scheme, "num_steps": SCHEMES[scheme], "step_size": STEP_SIZE}
        return lambda x: sample(sde, x, seed=next(seed), compile=True, **options).final

    movers = {"by hand": lambda x: by_hand(energy, x), **{f"{name}, compiled": compiled(name) for name in SCHEMES}}
    if find_spec("torchebm") is not None:
        movers["torchebm"] = torchebms(energy)
    chains = {name: torch.randn(CHAINS, 2) for name in movers}

    def move(name: str) -> None:
        with torch.no_grad():
            for parameter in energy.parameters():
                parameter.mul_(1.0 - 1e-6)
        chains[name] = movers[name](chains[name])

    traced, make = [0], programs._made

    def counted(*given: Any) -> Any:
        traced[0] += 1
        return make(*given)

    programs._made = counted
    for name in movers:
        move(name)
    before = traced[0]
    seconds, _ = interleaved({name: lambda name=name: move(name) for name in movers}, updates)
    programs._made = make
    print(f"\nAn energy model's chains: {CHAINS} of them, {GRADIENTS} gradients an update, {threads} threads")
    print(f"Programs made in the first calls: {before}, in {updates} more updates: {traced[0] - before}")
    for name in movers:
        rates = [1e6 / microseconds(seconds, name, 1, clock) for clock in (0, 1)]
        hand = [microseconds(seconds, "by hand", 1, clock) * rates[clock] / 1e6 for clock in (0, 1)]
        print(f"{name:<18}{rates[1]:8.1f} updates a second, {hand[1]:5.2f} times by hand ({hand[0]:.2f} in CPU time)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wide", action="store_true", help="other sizes as well; some minutes")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=("headline", "memory", "energy", "wide"))
    options = parser.parse_args()
    print(machine())
    for threads in (1, 2):
        if options.only in (None, "headline"):
            headline(Size(), threads, options.repeats)
    if options.only in (None, "memory"):
        memory()
    for threads in (1, 2):
        if options.only in (None, "energy"):
            energy_updates(threads, 4 * options.repeats)
    if options.wide or options.only == "wide":
        wide(max(2, options.repeats // 2))


if __name__ == "__main__":
    main()
