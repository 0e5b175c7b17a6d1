"""A step's numbers as one Triton kernel: a program owns a block of particles, with their state in registers and noise
drawn in place, and takes them through all steps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources

import torch
from torch import fx

from ..brownian.draws import Draw
from ..brownian.philox import normals_per_block
from .trace import CannotCompile, TracedStep
from .unrolled import Unrolled

# Operations in a kernel: more take Triton's compiler minutes, and spill what registers don't hold.
_MOST_OPERATIONS = 8_000
_REALS = {torch.float32: "float32", torch.float64: "float64"}

_KERNEL = '''\
"""A step of particles, written by torchsrk."""

import triton
import triton.language as tl

from torchsrk.brownian.triton_philox import normals32, normals64
from torchsrk.compiled.triton_functions import *

REAL = tl.constexpr(tl.{real})


@triton.jit
def splat(x):
    return tl.cast(x, REAL)


@triton.jit
def spread(x, BLOCK: tl.constexpr):
    return tl.broadcast_to(tl.cast(x, REAL), (BLOCK,))


@triton.jit
def splat_mask(condition):
    return condition


@triton.jit
def v_number(condition):
    return tl.cast(condition, REAL)


@triton.jit(do_not_specialize=["seed", "first_particle", "first_step", "steps", "particles"])
def run(source, out, c, p, numbers, seed, first_particle, first_step, steps, particles, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = row < particles
    own = tl.minimum(row, particles - 1).to(tl.int64)
    particle = first_particle + own * {members}
    step_size = tl.load(numbers)
{before}
    for k in range(steps):
        step = tl.cast(first_step, tl.int64) + k
        t = spread(step.to(tl.float64) * step_size, BLOCK)
{body}
{after}
'''


@dataclass(frozen=True)
class TritonCode:
    """The kernel of a step, and what it reads beside the state: as StepCode of C."""

    source: str
    literals: tuple[float, ...]
    uniforms: tuple[fx.Node, ...]
    checks: tuple[fx.Node, ...]
    places: tuple[torch.Tensor, ...]
    longest_sum: int
    tables: tuple[fx.Node, ...] = ()

    @property
    def code(self) -> TritonCode:
        return self

    def is_like(self, other: TritonCode) -> bool:
        """Whether both say the same, of whatever numbers."""
        return self.source == other.source


def lower_to_triton(traced: TracedStep, noise: tuple[Draw, ...], substeps: int, members: int) -> TritonCode:
    """The kernel of a traced step.

    Raises:
        CannotCompile: an operation has no form, the step mixes particles, or it is too large.
    """
    unrolled = Unrolled(traced, ["x", *(f"n{k}_" for k in range(len(noise)))])
    cone = unrolled.scalars.cone(unrolled.results)
    if len(cone) > _MOST_OPERATIONS:
        raise CannotCompile(
            f"a step computes {len(cone)} numbers a particle, more than the {_MOST_OPERATIONS} that are written out "
            "for a GPU's registers"
        )
    _check_functions({unrolled.scalars[number].template for number in cone})
    text = _Text(unrolled, cone, noise, substeps, members)
    return TritonCode(
        text.kernel(),
        tuple(unrolled.literals),
        tuple(unrolled.uniforms),
        tuple(unrolled.checks),
        tuple(unrolled.places),
        unrolled.longest_sum,
    )


def _check_functions(templates: set[str]) -> None:
    called = {name for template in templates for name in re.findall(r"\bv_(\w+)\(", template)}
    missing = sorted(called - _functions())
    if missing:
        raise CannotCompile(f"a step uses {missing[0]}, which has no Triton form here")


@cache
def _functions() -> set[str]:
    """The functions that there are, without a look at Triton."""
    text = resources.files(__package__).joinpath("triton_functions.py").read_text(encoding="utf-8")
    return {"number", *re.findall(r"^def v_(\w+)", text, re.MULTILINE)}


@dataclass(frozen=True)
class _Text:
    unrolled: Unrolled
    cone: list[int]
    noise: tuple[Draw, ...]
    substeps: int
    members: int

    def kernel(self) -> str:
        width = len(self.unrolled.results)
        before = [*self._reads(), *(f"x{i} = tl.load(source + own * {width} + {i})" for i in range(width))]
        results = [f"y{i} = {self._name(number)}" for i, number in enumerate(self.unrolled.results)]
        # Of the shape and type that it had before, whatever a step has made of it: a loop's variables keep theirs.
        moved = [f"x{i} = spread(y{i}, BLOCK)" for i in range(width)]
        after = [f"tl.store(out + row * {width} + {i}, x{i}, mask=inside)" for i in range(width)]
        return _KERNEL.format(
            real=_REALS[self.unrolled.dtype],
            members=self.members,
            before=_indented(before, 1),
            body=_indented([*self._draws(), *self._operations(), *results, *moved], 2),
            after=_indented(after, 1),
        )

    def _reads(self) -> Iterator[str]:
        """Numbers that all particles share: literals, tensors that torch has computed, and scales of the noise."""
        places, start = {}, 0
        for k, node in enumerate(self.unrolled.uniforms):
            value = node.meta["val"]
            size = value.numel() if isinstance(value, torch.Tensor) else 1
            places.update({f"p{k}_{i}": start + i for i in range(size)})
            start += size
        for text in self._leaves():
            if text in places:
                yield f"{text} = spread(tl.load(p + {places[text]}), BLOCK)"
            elif text.startswith("c"):
                yield f"{text} = spread(tl.load(c + {text[1:]}), BLOCK)"
        for k in range(len(self.noise)):
            yield f"scale{k} = tl.cast(tl.load(numbers + {k + 1}), REAL)"

    def _leaves(self) -> list[str]:
        return [scalar.template for number in self.cone if not (scalar := self.unrolled.scalars[number]).operands]

    def _draws(self) -> Iterator[str]:
        """Blocks of normals, those alone that something is read of."""
        read, per_block = set(self._leaves()), normals_per_block(self.unrolled.dtype)
        draw = "normals32" if per_block == 4 else "normals64"
        for k, source in enumerate(self.noise):
            for part in range(self.substeps * self.members):
                substep, member = divmod(part, self.members)
                for block in range(-(-source.components // per_block)):
                    entries = [block * per_block + i for i in range(per_block)]
                    names = [
                        f"n{k}_{part * source.components + entry}" if entry < source.components else "_"
                        for entry in entries
                    ]
                    if not any(f"{name}_of0" in read for name in names):
                        continue
                    at = f"particle + {member}, step * {self.substeps} + {substep}"
                    yield f"{', '.join(names)} = {draw}(seed, {at}, {int(source.stream)}, {block}, scale{k})"

    def _operations(self) -> Iterator[str]:
        for number in self.cone:
            scalar = self.unrolled.scalars[number]
            if scalar.operands:
                yield f"{self._name(number)} = {scalar.template.format(*map(self._name, scalar.operands))}"

    @cached_property
    def _order(self) -> dict[int, int]:
        """The same for any number of particles that were traced."""
        return {number: place for place, number in enumerate(self.cone)}

    def _name(self, number: int) -> str:
        scalar = self.unrolled.scalars[number]
        return f"v{self._order[number]}" if scalar.operands else scalar.template.removesuffix("_of0")


def _indented(lines: list[str], depth: int) -> str:
    return "\n".join("    " * depth + line for line in lines)
