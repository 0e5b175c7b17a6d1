"""The noise kernel of CUDA devices: one Triton operator, absent where Triton is."""

from __future__ import annotations

import importlib.util
import struct
import warnings
from functools import cache
from typing import Any

import torch
from torch import Tensor

from . import philox

_AT_ONCE = 256  # blocks of normals that one program draws


@cache
def serves(device: torch.device) -> bool:
    """Whether noise on a device comes from the kernel: Triton is there, and gives the tensor operations' bits.

    The first time that it does not, one warning says so, and what that costs.
    """
    if device.type != "cuda":
        return False
    if importlib.util.find_spec("triton") is None:
        reason = "Triton is not installed (pip install torchsrk[triton])"
    else:
        reason = _fault(device)
    if reason:
        warnings.warn(
            f"{reason}, so noise on {device} comes from tensor operations: the same numbers, by some thirty launches a "
            "fill in the place of one.",
            RuntimeWarning,
            stacklevel=2,
        )
    return not reason


def _fault(device: torch.device) -> str:
    """What is wrong with the kernel on a device, if anything is."""
    watched = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("default")  # to compare is to wait for the device: this once
    try:
        return "" if agrees(device) else "Triton's kernel does not give the numbers that it should (please report it)"
    except Exception as error:  # of Triton's compiler, of its driver: the run must not end for it
        return f"Triton fails here ({type(error).__name__}: {error})"
    finally:
        torch.cuda.set_sync_debug_mode(watched)


def agrees(device: torch.device) -> bool:
    """Whether the kernel gives the tensor operations' bits on a device."""
    where = dict(philox.EXAMPLE)
    step = torch.full((), where.pop("first_step"), dtype=torch.int64, device=device)
    for dtype in (torch.float32, torch.float64):
        wanted = philox.example(dtype, device)
        filled = torch.empty_like(wanted)
        fill(filled, step, first_block=0, **where)
        if not torch.equal(filled, wanted):
            return False
    return True


def fill(
    out: Tensor, first_step: Tensor, *, seed: int, stream: int, first_particle: int, first_block: int, scale: float
) -> None:
    """Fill a contiguous tensor (steps, particles, components); ``first_step`` is an int64 tensor on its device.

    A call reads nothing back from the device, so it can be captured in a CUDA graph, and replayed for other steps.
    """
    _operator()(out, first_step, signed(seed), stream, first_particle, first_block, scale)


def signed(word: int) -> int:
    """A number of 64 bits, as the int64 that has them."""
    return word - 2**64 if word >= 2**63 else word


def bits_of(number: float, dtype: torch.dtype) -> int:
    """The float64 that a number is after rounding to a dtype, by its bits."""
    rounded = torch.tensor(number, dtype=torch.float64).to(dtype).item()
    return int(struct.unpack("<q", struct.pack("<d", rounded))[0])


def is_interpreted() -> bool:
    """Whether Triton runs kernels by NumPy, on the CPU: TRITON_INTERPRET was 1 when they were first asked for."""
    from .triton_philox import fill_rows

    return type(fill_rows).__name__ == "InterpretedFunction"


@cache
def _operator() -> Any:
    """``torchsrk::fill_normal``, which torch.compile and CUDA graphs see as one operation.

    It is opaque to torch.compile, and no ``triton_op``: that would have the kernel built again without the launch's
    option not to fuse multiplications with additions, and so with other bits.
    """
    from .triton_philox import LAUNCH, fill_rows

    def fill_normal(
        out: Tensor, first_step: Tensor, seed: int, stream: int, first_particle: int, first_block: int, scale: float
    ) -> None:
        steps, particles, components = out.shape
        blocks = -(-components // philox.normals_per_block(out.dtype))
        programs = -(-steps * particles * blocks // _AT_ONCE)
        counter = (seed, stream, first_particle, first_block, bits_of(scale, out.dtype))
        sizes = (steps * particles, particles, components)
        with torch.cuda.device_of(out):  # Triton launches on the device of the moment
            fill_rows[(programs,)](out, first_step, *counter, *sizes, BLOCKS=blocks, AT_ONCE=_AT_ONCE, **LAUNCH)

    return torch.library.custom_op("torchsrk::fill_normal", fill_normal, mutates_args={"out"})
