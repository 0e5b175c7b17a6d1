"""The compiled noise kernel (philox.c), loaded through ctypes; absent where it could not be built."""

from __future__ import annotations

import ctypes
import importlib.util
import warnings
from functools import cache

import torch
from torch import Tensor

from ..vectors import uses_avx512
from . import philox

KINDS = {torch.int32: 0, torch.float32: 1, torch.float64: 2}
_FILL_SIGNATURE = (
    ctypes.c_void_p,  # out
    ctypes.c_int,  # kind
    ctypes.c_uint64,  # seed
    ctypes.c_uint32,  # first_particle
    ctypes.c_uint64,  # first_step
    ctypes.c_uint32,  # stream
    ctypes.c_uint32,  # first_block
    ctypes.c_int64,  # steps
    ctypes.c_int64,  # particles
    ctypes.c_int64,  # row_bytes
    ctypes.c_double,  # scale
    ctypes.c_int,  # threads
)
_FILL_TILE_SIGNATURE = (
    ctypes.c_void_p,  # out
    ctypes.c_int,  # kind
    ctypes.c_uint64,  # seed
    ctypes.c_uint32,  # first_particle
    ctypes.c_uint64,  # first_step
    ctypes.c_uint32,  # stream
    ctypes.c_int64,  # steps
    ctypes.c_int64,  # particles
    ctypes.c_int64,  # components
    ctypes.c_int64,  # row
    ctypes.c_double,  # scale
    ctypes.c_uint32,  # apart
    ctypes.c_int64,  # rows
)
# Waking a second core costs about as long as drawing this many normals.
_NORMALS_PER_THREAD = 1 << 18


@cache
def library() -> ctypes.CDLL | None:
    """The kernel, or None after one warning that says what its absence costs."""
    spec = importlib.util.find_spec("torchsrk.brownian._philox")
    if spec is None or spec.origin is None:
        warnings.warn(
            "torchsrk was installed without its compiled noise kernel (no C compiler was found), so noise comes from "
            "tensor operations: the same numbers, tens of times slower. To get it, install a C compiler and reinstall "
            "torchsrk.",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    kernel = load(spec.origin)
    kernel.torchsrk_allow_avx512(int(uses_avx512()))
    if _agrees(kernel):
        return kernel
    warnings.warn(
        "the compiled noise kernel does not give the numbers that it should on this processor, so noise comes from "
        "tensor operations, tens of times slower. Please report it, with the processor's name.",
        RuntimeWarning,
        stacklevel=2,
    )
    return None


def _agrees(kernel: ctypes.CDLL) -> bool:
    """Whether the kernel, which has other code for every kind of processor, gives the tensor operations' bits here."""
    lanes = 32
    for dtype in (torch.float32, torch.float64):
        wanted = philox.example(dtype, torch.device("cpu"))
        steps, particles, components = wanted.shape
        filled, example = torch.empty_like(wanted), philox.EXAMPLE
        fill(kernel, filled, first_block=0, threads=1, **example)
        tile = torch.empty(steps, components, lanes, dtype=dtype)
        place = (example["seed"], example["first_particle"], example["first_step"], example["stream"])
        sizes = (steps, particles, components, lanes, example["scale"], 1, components)
        kernel.torchsrk_fill_tile(tile.data_ptr(), KINDS[dtype], *place, *sizes)
        if not torch.equal(filled, wanted) or not torch.equal(tile[..., :particles].mT, wanted):
            return False
    return True


def load(path: str) -> ctypes.CDLL:
    """A kernel built from philox.c."""
    kernel = ctypes.CDLL(path)
    kernel.torchsrk_fill.argtypes = _FILL_SIGNATURE
    kernel.torchsrk_fill.restype = None
    kernel.torchsrk_fill_tile.argtypes = _FILL_TILE_SIGNATURE
    kernel.torchsrk_fill_tile.restype = None
    return kernel


def fill(
    kernel: ctypes.CDLL,
    out: Tensor,
    *,
    seed: int,
    first_particle: int,
    first_step: int,
    stream: int,
    first_block: int,
    scale: float,
    threads: int | None = None,
) -> None:
    """Fill a contiguous CPU tensor (steps, particles, components): int32 with words, floats with normals.

    The call releases the interpreter lock. The numbers don't depend on ``threads``.
    """
    steps, particles, components = out.shape
    if threads is None:
        threads = min(torch.get_num_threads(), out.numel() // _NORMALS_PER_THREAD)
    kernel.torchsrk_fill(
        out.data_ptr(),
        KINDS[out.dtype],
        seed,
        first_particle,
        first_step,
        stream,
        first_block,
        steps,
        particles,
        components * out.element_size(),
        scale,
        threads,
    )
