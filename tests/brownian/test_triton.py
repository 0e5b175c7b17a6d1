"""The noise kernel of CUDA devices: its bits by Triton's interpreter, and the instructions it becomes on a GPU."""

import os
import random
import re
import subprocess
import sys

import pytest
import torch

from torchsrk.brownian import fill_normal, triton_fill

pytest.importorskip("triton")
interpreted = pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="asks for TRITON_INTERPRET=1")
DTYPES = [torch.float32, torch.float64]


def requests(count):
    """Counters at the edges of their words, and rows that end inside a block."""
    choose = random.Random(7).choice
    for number in range(count):
        yield (
            {
                "seed": choose([0, 7, 2**32 - 1, 2**63 + 12345, 2**64 - 1]),
                "first_particle": choose([0, 77, 2**31, 2**32 - 400]),
                "step": choose([0, 1, 2**32 - 3, 2**32 - 1, 2**32, 2**48 - 70]),
                "stream": choose([0, 1, 3, 65535]),
                "first_component": choose([0, 4, 2**20, 2**33 - 40]),
                "scale": choose([1.0, 0.1, 3e-9, 0.0]),
            },
            (choose([1, 1, 2, 5]), choose([1, 2, 17, 100]), number % 9 + 1),
        )


def by_triton(out, *, step, first_component, **where):
    first_block = first_component // (4 if out.dtype == torch.float32 else 2)
    triton_fill.fill(out, torch.tensor(step, device=out.device), first_block=first_block, **where)
    return out


@interpreted
@pytest.mark.parametrize("dtype", DTYPES)
def test_triton_gives_the_kernels_bits_anywhere(dtype):
    bits = torch.int32 if dtype == torch.float32 else torch.int64
    for where, shape in requests(24):
        found = by_triton(torch.empty(shape, dtype=dtype), **where)
        wanted = fill_normal(torch.empty(shape, dtype=dtype), **where)
        assert torch.equal(found.view(bits), wanted.view(bits)), (where, shape)


@interpreted
@pytest.mark.parametrize("dtype", DTYPES)
def test_many_draws_have_the_kernels_bits(dtype, monkeypatch):
    """So many that roots and quotients which round otherwise would show."""
    monkeypatch.setattr(triton_fill, "_AT_ONCE", 1 << 14)
    where = {"seed": 5, "stream": 1, "first_particle": 0, "step": 3, "first_component": 0, "scale": 0.3}
    found, wanted = by_triton(torch.empty(1, 20_000, 20, dtype=dtype), **where), torch.empty(1, 20_000, 20, dtype=dtype)
    assert torch.equal(found, fill_normal(wanted, **where))


@interpreted
def test_only_what_was_asked_for_is_written():
    around = torch.full((3, 30), -99.0)
    by_triton(around[1, :21].view(1, 3, 7), seed=1, stream=0, first_particle=0, step=0, first_component=0, scale=1.0)
    assert (around[0] == -99.0).all()
    assert (around[1, 21:] == -99.0).all()
    assert (around[1, :21] != -99.0).all()


@interpreted
def test_a_kernel_with_other_numbers_is_found_out(monkeypatch):
    assert triton_fill.agrees(torch.device("cpu"))
    plain = triton_fill.fill
    monkeypatch.setattr(triton_fill, "fill", lambda out, step, **where: plain(out, step + 1, **where))
    assert not triton_fill.agrees(torch.device("cpu"))


@interpreted
def test_the_operator_is_one_operation_to_torch():
    where = (torch.tensor(0), 7, 1, 0, 0, 1.0)
    torch.library.opcheck(triton_fill._operator(), (torch.empty(1, 5, 3), *where))


def test_a_step_may_be_a_tensor():
    for dtype in DTYPES:
        wanted = fill_normal(torch.empty(5, 3, dtype=dtype), seed=1, stream=2, step=2**32 - 1)
        found = fill_normal(torch.empty(5, 3, dtype=dtype), seed=1, stream=2, step=torch.tensor(2**32 - 1))
        assert torch.equal(found, wanted)


_COMPILE = """
import sys, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from torchsrk.brownian.triton_philox import LAUNCH, fill_rows
words = dict.fromkeys(("seed", "first_particle", "scale_bits", "rows"), "i64")
for out in sys.argv[1:]:
    kinds = {name: "i32" for name in fill_rows.arg_names} | words | {"out": out, "first_step": "*i64"}
    source = ASTSource(fill_rows, signature=kinds | dict.fromkeys(("BLOCKS", "AT_ONCE"), "constexpr"),
                       constexprs={"BLOCKS": 5, "AT_ONCE": 256})
    print(triton.compile(source, target=GPUTarget("cuda", 80, 32), options=LAUNCH).asm["ptx"], end="\f")
"""


def test_on_a_gpu_every_operation_is_rounded_once(tmp_path):
    """No GPU is needed to compile for one: no fused multiply-add, exact roots and quotients, nothing flushed to 0."""
    places = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"}
    command = [sys.executable, "-c", _COMPILE, "*fp32", "*fp64"]
    made = subprocess.run(command, env=places, capture_output=True, text=True, check=True).stdout.split("\f")
    for name, ptx in zip(("f32", "f64"), made, strict=False):
        used = set(re.findall(rf"\b([a-z]+\.[a-z.]*){name}\b", ptx))
        assert {"mul.rn.", "add.rn.", "div.rn.", "sqrt.rn."} <= used
        assert not [operation for operation in used if operation.startswith(("fma", "mad")) or ".ftz" in operation]
        assert not [operation for operation in used if "approx" in operation or "full" in operation]


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_gpu_gives_the_kernels_bits(dtype):
    assert triton_fill.serves(torch.device("cuda"))
    for where, shape in requests(24):
        found = by_triton(torch.empty(shape, dtype=dtype, device="cuda"), **where)
        assert torch.equal(found.cpu(), fill_normal(torch.empty(shape, dtype=dtype), **where)), (where, shape)
