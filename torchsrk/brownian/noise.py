"""Counter-based normals: the draw for (seed, particle, step, stream, component) depends on nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import torch
from torch import Tensor

from . import native, philox, triton_fill

MAX_PARTICLES, MAX_STEPS, MAX_STREAMS, MAX_BLOCKS = 2**32, 2**48, 2**16, 2**32
_REFERENCE_BLOCKS = 1 << 18  # blocks drawn together by tensor operations: bounds their temporaries to some 50 MB


class Stream(IntEnum):
    """What a draw is for. Streams are independent: two uses of one (seed, particle, step) never share a number.

    Attributes:
        INCREMENT, SPACE_TIME_AREA, SPACE_TIME_TIME_AREA, BETWEEN, UNIFORM: of an Increment's W, H, K, Z and u.
        LEVY_COSINE, LEVY_SINE, LEVY_TAIL: of Lévy areas drawn with W, and PATH_AREA of those of a BrownianPath.
        EXACT_DRAW: of a target's exact draws.
        MINIBATCH: of the rows that a gradient sees.
        SUBSAMPLE: of which points or particles are taken.
        PROJECTION: of directions.
        START, VELOCITY: of where chains begin.
        SEED: of seeds that are made of a seed.
        CHECK: of where gradients and compiled programs are checked.
    """

    INCREMENT = 0
    SPACE_TIME_AREA = 1
    LEVY_COSINE = 2
    LEVY_SINE = 3
    LEVY_TAIL = 4
    PATH_AREA = 5
    EXACT_DRAW = 6
    MINIBATCH = 7
    SUBSAMPLE = 8
    PROJECTION = 9
    START = 10
    SEED = 11
    CHECK = 12
    SPACE_TIME_TIME_AREA = 13
    UNIFORM = 14
    BETWEEN = 15
    VELOCITY = 16


def fill_normal(
    out: Tensor,
    *,
    seed: int,
    stream: int,
    step: int | Tensor = 0,
    first_particle: int = 0,
    first_component: int = 0,
    scale: float = 1.0,
    threads: int | None = None,
) -> Tensor:
    """Fill ``out`` with ``scale`` times standard normals and return it.

    Args:
        out: contiguous float32 or float64, (particles, components) for one step or (steps, particles, components) for
            consecutive steps, on any device.
        seed: 0 to 2**64 - 1.
        stream: what the draw is for, a Stream.
        scale: the standard deviation.
        step, first_particle, first_component: the indices of ``out``'s first entry. ``first_component`` is a multiple
            of 4, so that it starts a block in either dtype. A step may be an int64 tensor of one number on ``out``'s
            device, which is not read back: a captured CUDA graph draws other steps when it is replayed.
        threads: CPU threads to use; by default as many as the work is worth. The numbers are the same for any count.
    """
    steps_out = out if out.ndim == 3 else out.unsqueeze(0)
    _check_filled(steps_out)
    check_range(seed, step if isinstance(step, int) else 0, steps_out.shape[0], first_particle, steps_out.shape[1])
    check_components(stream, first_component, steps_out.shape[2], philox.normals_per_block(out.dtype))
    if out.numel() == 0:
        return out
    first_block = first_component // philox.normals_per_block(out.dtype)
    kernel = native.library() if out.device.type == "cpu" else None
    where = {"seed": seed, "stream": int(stream), "first_particle": first_particle, "first_block": first_block}
    if kernel is not None:
        native.fill(kernel, steps_out, first_step=int(step), scale=scale, threads=threads, **where)
    elif triton_fill.serves(out.device):
        at = step if isinstance(step, Tensor) else torch.full((), step, dtype=torch.int64, device=out.device)
        triton_fill.fill(steps_out, at, scale=scale, **where)
    else:
        fill_normal_reference(steps_out, seed, int(stream), step, first_particle, first_block, scale)
    return out


def fill_normal_reference(
    out: Tensor, seed: int, stream: int, first_step: int | Tensor, first_particle: int, first_block: int, scale: float
) -> None:
    """The same fill by tensor operations, in pieces of bounded memory; ``out`` is (steps, particles, components)."""
    steps, particles, components = out.shape
    per_block = philox.normals_per_block(out.dtype)
    blocks = -(-components // per_block)
    block = torch.arange(first_block, first_block + blocks, device=out.device)
    rows = out.view(-1, components)
    for start in range(0, steps * particles, max(1, _REFERENCE_BLOCKS // blocks)):
        piece = rows[start : start + max(1, _REFERENCE_BLOCKS // blocks)]
        row = torch.arange(start, start + len(piece), device=out.device).unsqueeze(-1)
        drawn = philox.words(
            seed=seed,
            particle=first_particle + row % particles,
            step=first_step + torch.div(row, particles, rounding_mode="floor"),
            stream=stream,
            block=block,
        )
        piece.copy_(philox.normals(drawn, out.dtype, scale).flatten(1)[:, :components])


def draw_uniform(shape: tuple[int, ...], *, seed: int, stream: int, step: int = 0, device: torch.device) -> Tensor:
    """Uniform float64 numbers in (0, 1) with 32 random bits, (particles, components) or (steps, particles, components)
    from that step on."""
    *several, particles, components = shape
    steps = several[0] if several else 1
    check_range(seed, step, steps, 0, particles)
    check_components(stream, 0, components, 4)
    blocks = -(-components // 4)
    where = {"seed": seed, "stream": int(stream)}
    kernel = native.library() if device.type == "cpu" else None
    if kernel is not None:
        drawn = torch.empty(steps, particles, 4 * blocks, dtype=torch.int32)
        native.fill(kernel, drawn, first_particle=0, first_step=step, first_block=0, scale=1.0, **where)
        drawn = drawn.long() & philox.WORD
    else:
        particle, block = torch.arange(particles, device=device), torch.arange(blocks, device=device)
        at_step = torch.arange(step, step + steps, device=device).view(-1, 1, 1)
        drawn = philox.words(particle=particle.unsqueeze(-1), step=at_step, block=block, **where).flatten(2)
    return (drawn[..., :components].to(torch.float64).view(shape) + 0.5) * 2.0**-32


class NormalSource(Protocol):
    """What gives the standard normals of one step."""

    def draw(self, stream: Stream, like: Tensor, components: int, *, first_row: int = 0, first: int = 0) -> Tensor: ...


@dataclass(frozen=True)
class StepNormals:
    """The standard normals of one step, for a run of particles.

    Attributes:
        seed: of the run.
        step: the number of the step.
        first_particle: the number of the first particle.
    """

    seed: int
    step: int
    first_particle: int = 0

    def draw(self, stream: Stream, like: Tensor, components: int, *, first_row: int = 0, first: int = 0) -> Tensor:
        """(particles, components) normals with ``like``'s rows, dtype and device, from row and component given."""
        out = torch.empty(len(like), components, dtype=like.dtype, device=like.device)
        return fill_normal(
            out,
            seed=self.seed,
            stream=stream,
            step=self.step,
            first_particle=self.first_particle + first_row,
            first_component=first,
        )


def derive_seed(seed: int, index: int) -> int:
    """The ``index``-th of a sequence of seeds that a seed stands for, from 0 to 2**48 - 1."""
    check_seed(seed)
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < MAX_STEPS:
        raise ValueError(
            f"a seed stands for the seeds of index 0 to 2**48 - 1; got index {index!r}: derive from another seed"
        )
    particle = step = torch.zeros(1, dtype=torch.long)
    words = philox.words(seed=seed, particle=particle, step=step + index, stream=int(Stream.SEED), block=particle)
    low, high = words.flatten()[:2].tolist()
    return low | high << 32


def check_seed(seed: int) -> None:
    """One clear error for what can't be a seed."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**64:
        raise ValueError(f"a seed is an integer from 0 to 2**64 - 1; got {seed!r}")


def check_range(seed: int, step: int, steps: int, first_particle: int, particles: int) -> None:
    """One clear error for draws that the counter has no numbers for."""
    check_seed(seed)
    if first_particle < 0 or first_particle + particles > MAX_PARTICLES:
        raise ValueError(f"particles are numbered from 0 to 2**32 - 1; got {first_particle} and {particles} more")
    if particles > MAX_PARTICLES // 2:  # the kernel carries between its 32-bit digits
        raise ValueError(f"one fill takes at most 2**31 particles; got {particles}: fill in parts")
    if step < 0 or step + steps > MAX_STEPS:
        raise ValueError(f"steps are numbered from 0 to 2**48 - 1; got {step} and {steps} more")


def check_components(stream: int, first: int, components: int, per_block: int) -> None:
    """One clear error for components that the counter has no blocks for, and for what is no stream."""
    if not 0 <= stream < MAX_STREAMS:
        raise ValueError(f"streams are numbered from 0 to 2**16 - 1; got {stream}")
    if first < 0 or first % 4:
        raise ValueError(f"first_component starts a block: a multiple of 4; got {first}")
    if first + components > MAX_BLOCKS * per_block:
        raise ValueError(
            f"components are numbered from 0 to 2**32 blocks of {per_block}, less one; got {first} and {components} "
            "more: draw the rest from another stream, step or seed"
        )
    if components > MAX_BLOCKS // 2 * per_block:  # the kernel carries between its 32-bit digits
        raise ValueError(f"one fill takes at most 2**31 blocks of {per_block} components; got {components}")


def _check_filled(out: Tensor) -> None:
    if out.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"noise comes in float32 or float64; the tensor to fill is {out.dtype}")
    if out.ndim != 3 or not out.is_contiguous():
        raise ValueError(
            "the tensor to fill must be contiguous, (particles, components) or (steps, particles, components); it has "
            f"shape {tuple(out.shape)} and strides {out.stride()}"
        )
