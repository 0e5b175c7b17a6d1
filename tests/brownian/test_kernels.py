"""The noise kernel of every instruction set against the tensor operations, and that it writes what was asked for only.

What this processor lacks is compiled from the same text for vectors of any width, which the compiler takes apart.
"""

import platform
import random
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import torchsrk.brownian
from torchsrk.brownian import native
from torchsrk.brownian.noise import fill_normal_reference

SOURCE = Path(torchsrk.brownian.__file__).with_name("philox.c")
FLAGS = ["-std=gnu11", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi", "-fPIC", "-shared"]
# The width of AVX-512 without it: gcc 12 breaks loops over such vectors when it vectorizes them once more. The text is
# what is tried here, so it is optimised little, which takes far less time.
PORTABLE = {"portable, 16 bytes": ["-O1", "-DPORTABLE_BYTES=16"], "portable, 64 bytes": ["-O0", "-DPORTABLE_BYTES=64"]}
SETS = ("avx2", "zen3", "sse2")  # all of them in one library, as they are installed
CHOSEN = f"""
static int chosen_set;
void choose_set(int number) {{ chosen_set = number; }}
#define BEST_KERNEL ((const Kernel *[]){{ {", ".join(f"&kernel_{name}" for name in SETS)} }}[chosen_set])
#include "{SOURCE}"
"""


def has_avx2():
    return torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")


NEEDED = {"avx2": has_avx2, "zen3": has_avx2, "sse2": lambda: platform.machine() == "x86_64"}
GUARD, UNTOUCHED = 16, -99.0


def built(folder, source, *flags):
    path = folder / "philox.so"
    subprocess.run(["gcc", *FLAGS, *flags, "-o", str(path), str(source), "-lm", "-pthread"], check=True)
    return native.load(str(path))


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """The library of all instruction sets, of which one can be chosen."""
    folder = tmp_path_factory.mktemp("sets")
    (folder / "chosen.c").write_text(CHOSEN)
    return built(folder, folder / "chosen.c", "-O2")


@pytest.fixture(scope="module", params=["installed", *SETS, *PORTABLE])
def kernel(request, tmp_path_factory):
    if request.param == "installed":
        return native.library() or pytest.skip("no noise kernel")
    if shutil.which("gcc") is None or (request.param in NEEDED and not NEEDED[request.param]()):
        pytest.skip("not for this machine")
    if request.param in PORTABLE:
        return built(tmp_path_factory.mktemp("kernel"), SOURCE, *PORTABLE[request.param])
    library = request.getfixturevalue("sets")
    library.choose_set(SETS.index(request.param))
    return library


def requests(count):
    """Shapes and counters: rows that end inside a block, and counters at the edges of a word among them."""
    choose = random.Random(5).choice
    for number in range(count):
        yield {
            "seed": choose([0, 7, 2**32 - 1, 2**63 + 12345, 2**64 - 1]),
            "particle": choose([0, 77, 2**31, 2**32 - 400]),
            "step": choose([0, 1, 2**32 - 3, 2**32 - 1, 2**32, 2**48 - 70]),
            "stream": choose([0, 1, 3, 65535]),
            "steps": choose([1, 1, 2, 5, 64]),
            "particles": 33 if number < 8 else choose([1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 100]),
            "components": number + 1 if number < 8 else choose([1, 2, 3, 4, 5, 7, 20, 40]),
            "scale": choose([1.0, 0.3]),
            "threads": choose([1, 1, 3]),
        }


def reference(at, dtype, particles, apart=1):
    """Rows of particles ``apart`` from one another."""
    rows = torch.empty(at["steps"], particles * apart, at["components"], dtype=dtype)
    fill_normal_reference(rows, at["seed"], at["stream"], at["step"], at["particle"], 0, at["scale"])
    return rows[:, ::apart]


def guarded(shape, dtype):
    """A tensor in the middle of a larger one, both full of what a kernel would not write."""
    whole = torch.full((torch.Size(shape).numel() + 2 * GUARD,), UNTOUCHED, dtype=dtype)
    return whole, whole[GUARD:-GUARD].view(shape)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows(kernel, dtype):
    for at in requests(50):
        whole, out = guarded((at["steps"], at["particles"], at["components"]), dtype)
        native.fill(
            kernel,
            out,
            seed=at["seed"],
            first_particle=at["particle"],
            first_step=at["step"],
            stream=at["stream"],
            first_block=0,
            scale=at["scale"],
            threads=at["threads"],
        )
        assert torch.equal(out, reference(at, dtype, at["particles"])), at
        assert (whole[:GUARD] == UNTOUCHED).all(), at
        assert (whole[-GUARD:] == UNTOUCHED).all(), at


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tiles(kernel, dtype):
    choose = random.Random(6).choice
    for at in requests(50):
        steps, particles, components = at["steps"], at["particles"], at["components"]
        row, apart, rows = particles + choose([0, 0, 3]), choose([1, 1, 3]), components + choose([0, 2])
        whole, out = guarded((steps, rows, row), dtype)
        where = (at["seed"], at["particle"], at["step"], at["stream"])
        sizes = (steps, particles, components, row, at["scale"], apart, rows)
        kernel.torchsrk_fill_tile(out.data_ptr(), native.KINDS[dtype], *where, *sizes)
        expected = torch.full_like(out, UNTOUCHED)
        expected[:, :components, :particles] = reference(at, dtype, particles, apart).transpose(1, 2)
        assert torch.equal(out, expected), at
        assert (whole[:GUARD] == UNTOUCHED).all(), at
        assert (whole[-GUARD:] == UNTOUCHED).all(), at


def test_a_kernel_with_other_bits_is_not_used(monkeypatch):
    assert native.library() is not None
    normals = native.philox.normals
    monkeypatch.setattr(native.philox, "normals", lambda *args: normals(*args).nextafter(torch.tensor(torch.inf)))
    with pytest.warns(RuntimeWarning, match="does not give the numbers"):
        assert native.library.__wrapped__() is None
