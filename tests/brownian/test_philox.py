"""Philox against its published answers, and the compiled kernel against the tensor operations."""

import importlib.util
import math
import subprocess
import sys

import pytest
import torch

from torchsrk.brownian import Stream, fill_normal, native, philox
from torchsrk.brownian.noise import fill_normal_reference

# From the known-answer file of Random123, the authors' own library.
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
needs_kernel = pytest.mark.skipif(
    importlib.util.find_spec("torchsrk.brownian._philox") is None, reason="installed without a C compiler"
)
SHAPES = [(1, 1000, 20), (1, 1000, 7), (3, 50, 20), (5, 3, 1), (2, 1, 301), (70, 1, 3), (1, 1, 1)]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_tensor_philox_gives_the_published_words(counter, key, answer):
    words = philox.philox4x32(tuple(torch.tensor(word) for word in counter), key)
    assert tuple(int(word) for word in words) == answer


@needs_kernel
@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_compiled_philox_gives_the_published_words(counter, key, answer):
    out = torch.empty(1, 1, 4, dtype=torch.int32)
    native.fill(
        native.library(),
        out,
        seed=key[1] << 32 | key[0],
        first_particle=counter[1],
        first_step=(counter[3] & 0xFFFF) << 32 | counter[2],
        stream=counter[3] >> 16,
        first_block=counter[0],
        scale=1.0,
    )
    assert tuple(word & philox.WORD for word in out.flatten().tolist()) == answer


@needs_kernel
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kernel_and_tensor_operations_give_the_same_bits(shape, dtype):
    compiled, reference = torch.empty(shape, dtype=dtype), torch.empty(shape, dtype=dtype)
    where = {"seed": 2**63 + 12345, "step": 2**32 - 2, "first_particle": 77}
    fill_normal(compiled, stream=3, first_component=8, scale=0.3, **where)
    block = 8 // philox.normals_per_block(dtype)
    fill_normal_reference(reference, where["seed"], 3, where["step"], 77, block, 0.3)
    assert torch.equal(compiled, reference)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normals_are_box_muller_of_the_words_to_rounding(dtype):
    particles = torch.arange(20000)
    zero = torch.tensor(0)
    words = philox.words(seed=7, particle=particles, step=zero, stream=0, block=zero)
    first, second, third, fourth = words.unbind(-1)
    if dtype == torch.float32:
        uniform = (((first >> 1).float() + 0.5) * 2.0**-31).double()  # rounded to float32: coarse near 1, fine near 0
        turn = second.double() / 2**32
        # The quadrant is the two top bits; the rest is centred on its middle.
        turn = torch.floor(turn * 4) / 4 + torch.remainder(turn * 4 + 0.5, 1.0) / 4 - 0.125
    else:
        uniform = 1.0 - ((first << 32 | second) >> 12 & (2**52 - 1)).double() / 2**52
        quadrant, fraction = third >> 30, (third & 0x3FFFFFFF).double() / 2**30 + fourth.double() / 2**62
        turn = (quadrant.double() + fraction - 0.5) / 4
    radius = (-2.0 * uniform.log()).sqrt()
    expected = torch.stack((radius * torch.cos(2 * math.pi * turn), radius * torch.sin(2 * math.pi * turn)), dim=-1)
    out = torch.empty(20000, 2, dtype=dtype)
    fill_normal(out, seed=7, stream=0)
    error = (out.double() - expected).abs() / (radius.unsqueeze(-1) * torch.finfo(dtype).eps)
    # float64: the fraction's last bits and the check's own rounding of 2π·turn count, hence a few units.
    assert error.max() < 6.0


def test_the_tails_are_bounded_by_the_bits_of_a_word():
    smallest32, smallest64 = torch.zeros(1, 4, dtype=torch.int64), torch.full((1, 4), philox.WORD)
    assert philox.normals(smallest32, torch.float32, 1.0).abs().max().item() == pytest.approx(6.66, abs=0.01)
    assert philox._radius64((smallest64[:, 0] << 32) | smallest64[:, 1]).item() == pytest.approx(8.49, abs=0.01)


def test_without_the_kernel_noise_still_comes_with_one_warning():
    code = """
import importlib.util, warnings, torch
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name.endswith("_philox") else real(name, *rest)
from torchsrk.brownian import fill_normal
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    first = fill_normal(torch.empty(5, 3), seed=1, stream=0)
    second = fill_normal(torch.empty(5, 3), seed=1, stream=0)
assert torch.equal(first, second)
messages = [str(w.message) for w in caught if "noise kernel" in str(w.message)]
assert len(messages) == 1 and "C compiler" in messages[0] and "slower" in messages[0], messages
print(first.sum().item())
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    here = fill_normal(torch.empty(5, 3, dtype=torch.float32), seed=1, stream=Stream.INCREMENT)
    assert float(run.stdout) == pytest.approx(here.sum().item(), rel=1e-6)
