"""Threads of compiled steps: torch's own team where there is one, and others where it can't be used."""

import ctypes
import subprocess
import sys

import pytest
import torch
from torch import nn

from torchsrk import Langevin, sample
from torchsrk.blocks import torch_threads
from torchsrk.compiled import steps
from torchsrk.compiled.team import team
from torchsrk.potentials import FunctionPotential, GaussianMixture, LogisticRegression

REGRESSION = Langevin(LogisticRegression.synthetic(100, 10, seed=1))
WORK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
HAS_TEAM = pytest.mark.skipif(
    sys.platform != "linux" or "OpenMP" not in torch.__config__.parallel_info(), reason="torch has no team of OpenMP"
)


def final(sde=REGRESSION, threads=3, particles=3000, num_steps=40, step_size=0.1):
    x0 = torch.zeros(particles, sde.dim, dtype=torch.float32)
    with torch_threads(threads):
        return sample(
            sde, x0, integrator="srk-ld", step_size=step_size, num_steps=num_steps, seed=5, compile=True
        ).final


@HAS_TEAM
def test_torchs_team_is_found():
    assert team() is not None


@HAS_TEAM
def test_all_threads_give_the_same_bits(monkeypatch):
    alone = final(threads=1)
    assert torch.equal(final(), alone)
    monkeypatch.setattr(steps, "team", lambda: None)
    assert torch.equal(final(), alone)


@pytest.mark.parametrize("is_started", [False, True])
@pytest.mark.skipif(not torch.set_flush_denormal(False), reason="this processor flushes no subnormal numbers")
def test_threads_flush_what_the_caller_flushes(is_started, monkeypatch):
    """Steps so short that all of their noise is below the smallest normal number."""
    if is_started:
        monkeypatch.setattr(steps, "team", lambda: None)
    short = {"step_size": 1e-78, "num_steps": 200}
    final()  # torch's team is there, and knows nothing of what follows
    assert (final(**short) != 0).any()
    torch.set_flush_denormal(True)
    try:
        flushed = final(**short)
        assert torch.equal(flushed, final(threads=1, **short))
        assert not flushed.any()
    finally:
        torch.set_flush_denormal(False)


def test_work_is_shared_by_what_it_takes(monkeypatch):
    """A step of a network takes far longer than its few numbers tell; one of a mixture does not."""
    calls = []

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
    def shared(work, given, threads, flags):
        calls.append(threads)
        WORK(work)(given)

    monkeypatch.setattr(steps, "team", lambda: ctypes.cast(shared, ctypes.c_void_p).value)
    torch.manual_seed(0)
    layers = (nn.Linear(2, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 1))
    network = nn.Sequential(*layers).float()
    heavy = Langevin(FunctionPotential(lambda x: network(x).squeeze(-1) + 0.5 * x.square().sum(-1), dim=2))
    light = Langevin(GaussianMixture(torch.full((2,), 0.3, dtype=torch.float32)))

    def shares(sde):
        final(sde, particles=200, num_steps=100)  # from here on it is known what a step takes
        calls.clear()
        final(sde, particles=200, num_steps=10)
        return calls == [3]

    assert shares(heavy)
    assert not all(shares(light) for _ in range(20))  # a busy machine may make a step look dear now and then


FORKED = """
import os, signal, torch
from torchsrk import Langevin, sample
from torchsrk.compiled.team import team
from torchsrk.potentials import FunctionPotential

sde = Langevin(FunctionPotential(lambda x: (x**4).sum(-1), dim=10))  # without products, which wait for lost threads

def final():
    options = {"integrator": "em", "step_size": 0.01, "num_steps": 400, "seed": 5, "compile": True}
    return sample(sde, torch.zeros(3000, 10), **options).final

torch.set_num_threads(2)
before = final()
if os.fork() == 0:
    signal.alarm(60)
    os._exit(0 if team() is None and torch.equal(final(), before) else 1)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
assert torch.equal(final(), before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it forks")
def test_a_forked_process_starts_threads_of_its_own():
    subprocess.run([sys.executable, "-c", FORKED], check=True)
