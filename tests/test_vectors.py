"""AVX-512 can be left, by torch's own switch: for the noise, and for compiled steps."""

import os
import shutil
import subprocess
import sys

import pytest
import torch

from torchsrk import vectors
from torchsrk.compiled import build

HAS_AVX512 = vectors.uses_avx512()
RUN = """
import sys, torch
from torchsrk import Langevin, sample
from torchsrk.brownian import native
from torchsrk.potentials import FunctionPotential
from torchsrk.vectors import uses_avx512

weights = torch.linspace(-1, 1, 3 * 70, dtype=torch.float64).reshape(70, 3)
sde = Langevin(FunctionPotential(lambda x: (x @ weights.T).tanh().sum(-1) + x.square().sum(-1), dim=3))
start = torch.zeros(77, 3, dtype=torch.float64)
final = sample(sde, start, integrator="srk-ld", step_size=0.1, num_steps=20, seed=3, compile=True).final
noise = torch.empty(5, 33, 20)
native.fill(native.library(), noise, seed=1, first_particle=2, first_step=3, stream=0, first_block=0, scale=1.0)
torch.save({"final": final, "noise": noise, "uses": uses_avx512()}, sys.argv[1])
"""


def run(folder, **environment):
    """Numbers of a process with this environment, and the assembly of what it compiled."""
    cache, out = folder / "cache", folder / "out.pt"
    cache.mkdir(parents=True, mode=0o700)
    given = {**os.environ, **environment, "TORCHSRK_CACHE": str(cache)}
    subprocess.run([sys.executable, "-c", RUN, str(out)], env=given, check=True)
    disassembled = [
        subprocess.run(["objdump", "-d", str(file)], capture_output=True, text=True, check=True).stdout
        for file in cache.glob("*.so")
    ]
    return torch.load(out), "".join(disassembled)


@pytest.mark.skipif(not HAS_AVX512, reason="this processor has no AVX-512, or torch was told to leave it")
@pytest.mark.skipif(shutil.which("objdump") is None, reason="the instructions are looked at by objdump")
def test_without_avx512(tmp_path):
    wide, wide_code = run(tmp_path / "wide")
    narrow, narrow_code = run(tmp_path / "narrow", ATEN_CPU_CAPABILITY="avx2")
    assert (wide["uses"], narrow["uses"]) == (True, False)
    assert ("%zmm" in wide_code, "%zmm" in narrow_code) == (True, False)
    assert "%ymm" in narrow_code
    assert torch.equal(narrow["noise"], wide["noise"])  # noise is the same bits on every processor
    torch.testing.assert_close(narrow["final"], wide["final"], rtol=1e-12, atol=1e-12)  # steps round as vectors do


def test_a_program_belongs_to_its_vectors(monkeypatch, tmp_path):
    """A program in the cache that was compiled for other vectors is not this one."""
    monkeypatch.setenv("TORCHSRK_CACHE", str(tmp_path))
    tmp_path.chmod(0o700)
    source = "int answer(void) { return 42; }"
    for capability in ("AVX2", "AVX512", "AVX2"):
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda capability=capability: capability)
        assert build.load(source).answer() == 42
    assert len(list(tmp_path.glob("*.so"))) == (2 if vectors.flags_of_vectors() else 1)


def test_other_processors_are_told_nothing(monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    monkeypatch.setattr(vectors.platform, "machine", lambda: "aarch64")
    assert vectors.flags_of_vectors() == ()
