"""Compiled steps beside eager ones, at the start of a run: a wrong program must not get as far as the user.

A few particles make two steps both ways, from their own states and from states moved about them, with the same noise.
They may differ by rounding, and no more: mostly by some ulps of what is added up. Where that does not explain a
difference, it depends on the step: a second eager one, from states moved by an ulp, tells how it conditions them, and a
few more, with the result of every single operation moved by an ulp, how it rounds within.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from ..brownian import Stream, fill_normal
from .calls import by_identity
from .trace import is_condition, plainly

_STEPS = 2  # from 0, say, where a wrong sign does not show, the first one leads away
_FIRST_ROWS = 16  # at least a tile: its lanes are all looked at
_BLOCK_ROWS = 64  # of either end of a block
_ULPS, _TIMES_NOISE, _JOLTS = 32.0, 16.0, 6
_FACTORS, _APART = 1 << 16, 40_503  # random ones, and from one result's to the next one's


class EagerSteps(Protocol):
    """The plain steps of a run."""

    def advance(self, x: Tensor, row: int, *, first: int, last: int) -> Tensor:
        """Rows of the state from ``row`` on, from step ``first`` to step ``last``."""

    def advance_copies(self, x: Tensor, spans: Sequence[range], *, first: int, last: int) -> Tensor:
        """Copies (copies, rows, dim) of the rows in ``spans``, each with the noise of its row."""


class CompiledRows(Protocol):
    """The compiled steps of a run, on any of its rows."""

    def advance_rows(self, x: Tensor, row: int, *, first: int, last: int) -> Tensor: ...


@dataclass(frozen=True)
class Difference:
    """Where a compiled step is not the eager one."""

    particle: int
    entry: int
    eager: float
    compiled: float
    rounding: float

    def __str__(self) -> str:
        return (
            f"entry {self.entry} of particle {self.particle} comes out as {self.compiled:.9g}, and eagerly as "
            f"{self.eager:.9g}, of which rounding explains {self.rounding:.1e}"
        )


def check_rows(
    eager: EagerSteps, compiled: CompiledRows, state: Tensor, first_step: int, longest_sum: int
) -> Difference | None:
    """Two steps of the first particles, one in the middle and the last, from where they are and from about there."""
    rows = len(state)
    spans = [range(min(rows, _FIRST_ROWS))]
    spans += [range(row, row + 1) for row in sorted({rows // 2, rows - 1}) if row >= _FIRST_ROWS]
    steps = {"first": first_step, "last": first_step + _STEPS}
    here = torch.cat([state[span.start : span.stop] for span in spans])
    starts = torch.stack((here, _about(here)))
    try:
        return _compare_copies(eager, compiled, starts, spans, steps, longest_sum)
    except Exception:  # a density need not be defined about there: where the particles are, an error is the run's own
        return _compare_copies(eager, compiled, starts[:1], spans, steps, longest_sum)


def check_block(
    eager: EagerSteps, compiled: CompiledRows, x: Tensor, row: int, first_step: int, longest_sum: int
) -> Difference | None:
    """One step of a whole block of particles, just as an eager run would make it: its size may matter, too.

    Its first rows and its last ones are compared.
    """
    step = {"first": first_step, "last": first_step + 1}
    if x.ndim == 1:
        found = compiled.advance_rows(x, row, **step)
        return _compare(lambda start: eager.advance(start, row, **step), x, found, longest_sum, [row])
    rows = [*range(min(len(x), _BLOCK_ROWS)), *range(max(_BLOCK_ROWS, len(x) - _BLOCK_ROWS), len(x))]
    head, tail = x[:_BLOCK_ROWS], x[_BLOCK_ROWS:][-_BLOCK_ROWS:]
    parts = [compiled.advance_rows(head, row, **step)]
    parts += [compiled.advance_rows(tail, row + len(x) - len(tail), **step)] if len(tail) else []

    def again(start: Tensor) -> Tensor:
        whole = x.clone()
        whole[rows] = start
        return eager.advance(whole, row, **step)[rows]

    return _compare(again, x[rows], torch.cat(parts), longest_sum, [row + place for place in rows])


def check_about(
    eager: EagerSteps, compiled: CompiledRows, x: Tensor, row: int, first_step: int, longest_sum: int
) -> Difference | None:
    """The same with half of the particles moved about, and of the second step, at which time has passed: what says most
    of a program, if no more is to be looked at."""
    moved = x.clone()
    moved[1::2] = _about(x)[1::2]
    try:
        return check_block(eager, compiled, moved, row, first_step + 1, longest_sum)
    except Exception:  # a density need not be defined about there, as in check_rows
        return check_block(eager, compiled, x, row, first_step + 1, longest_sum)


def check_whole(eager: EagerSteps, compiled: Tensor, x: Tensor, first_step: int, longest_sum: int) -> Difference | None:
    """One step of all particles at once, made eagerly from x and compiled to what is given."""

    def again(start: Tensor) -> Tensor:
        return eager.advance(start, 0, first=first_step, last=first_step + 1)

    return _compare(again, x, compiled, longest_sum, range(len(x) if x.ndim > 1 else 1))


def _compare_copies(
    eager: EagerSteps,
    compiled: CompiledRows,
    starts: Tensor,
    spans: Sequence[range],
    steps: dict[str, int],
    longest_sum: int,
) -> Difference | None:
    ends, parts = 0, []
    for span in spans:
        own = slice(ends, ends + len(span))
        parts.append(torch.stack([compiled.advance_rows(copy[own], span.start, **steps) for copy in starts]))
        ends += len(span)

    def again(start: Tensor) -> Tensor:
        return eager.advance_copies(start, spans, **steps)

    rows = [row for span in spans for row in span] * len(starts)
    return _compare(again, starts, torch.cat(parts, 1), longest_sum, rows)


def _compare(again: Any, start: Tensor, compiled: Tensor, longest_sum: int, rows: Sequence[int]) -> Difference | None:
    """The largest difference of compiled states from ``again(start)``, if rounding can't explain it.

    ``rows`` are the numbers of the particles in ``start``, one after another.
    """
    plain = again(start)
    eps = torch.finfo(start.dtype).eps
    ulps = _ULPS + math.sqrt(longest_sum)
    # A coordinate's increments tell the size of what is added up to it.
    increments = (plain - start).abs().nan_to_num(0.0, 0.0).amax(-2, keepdim=True) if start.ndim > 1 else 0.0
    explained = ulps * eps * (plain.abs() + start.abs() + increments)
    if _is_explained(plain, compiled, explained).all():
        return None
    with suppress(Exception):  # a condition that holds for the states may not hold an ulp beside them
        explained = explained + ulps * (again(_moved_by_an_ulp(start)) - plain).abs()
    if _is_explained(plain, compiled, explained).all():
        return None
    for noise in _noise_of_operations(again, start, plain):
        explained = torch.maximum(explained, ulps / _ULPS * _TIMES_NOISE * noise)
        wrong = ~_is_explained(plain, compiled, explained)
        if not wrong.any():
            return None
    excess = torch.where(wrong, (compiled - plain).abs().nan_to_num(math.inf, math.inf), -1.0)
    worst = int(excess.argmax())
    row, entry = divmod(worst, start.numel() // len(rows))
    values = (float(tensor.flatten()[worst]) for tensor in (plain, compiled, explained))
    return Difference(rows[row], entry, *values)


def _is_explained(plain: Tensor, compiled: Tensor, rounding: Tensor) -> Tensor:
    """Close enough, or not finite in both; and where rounding itself decides between the two, either will do."""
    same = (compiled - plain).abs() <= rounding
    both = ~plain.isfinite() & ~compiled.isfinite()
    return same | both | ~rounding.isfinite()


def _about(x: Tensor) -> Tensor:
    """States about given ones, far enough that a wrong term shows."""
    jitter = fill_normal(torch.empty_like(x).contiguous().flatten(0, -2), seed=0, stream=Stream.CHECK)
    return x + jitter.view(x.shape) * (1.0 + 0.5 * x.abs())


def _moved_by_an_ulp(x: Tensor) -> Tensor:
    side = torch.where(torch.arange(x.shape[-1], device=x.device) % 2 == 0, 1.0, -1.0).to(x.dtype)
    return x + torch.finfo(x.dtype).eps * side * x.abs().clamp_min(torch.finfo(x.dtype).tiny)


def _noise_of_operations(again: Any, start: Tensor, plain: Tensor) -> Iterator[Tensor]:
    """How far a step moves when each of its operations rounds otherwise; several times, as one may be enough."""
    for number in range(_JOLTS):
        try:
            with _Jolted(number), _ConditionsMet():
                moved = again(start)
        except Exception:  # the user's own, who looks at what was moved
            moved = plain
        off = (moved - plain).abs()
        agree = ~moved.isfinite() & ~plain.isfinite()
        yield torch.where(agree, 0.0, off.nan_to_num(math.inf, math.inf))


class _ConditionsMet(TorchFunctionMode):
    """Distributions take what they are given: zeros of a triangle are not quite where they were, or a 1 is above 1."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if is_condition(getattr(function, "__name__", ""), args, kwargs):
            return True
        return function(*args, **(kwargs or {}))


class _Jolted(TorchDispatchMode):
    """Every floating result of an operation moved by up to an ulp, at random: by factors that are drawn once, and taken
    from here and there, as a long series makes tens of thousands of results of a few numbers."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._generator = torch.Generator().manual_seed(seed)
        self._drawn: dict[tuple[torch.dtype, torch.device], Tensor] = {}
        self._taken = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # it would be imported for nothing, and asked at every operation

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = plainly(function, *args, **(kwargs or {}))
        parts = results if isinstance(results, tuple) else (results,)
        for place in _new_results(function):
            part = parts[place]
            if isinstance(part, Tensor) and part.is_floating_point() and part.numel():
                part.mul_(self._factors(part))
        return results

    def _factors(self, like: Tensor) -> Tensor:
        count, kind = like.numel(), (like.dtype, like.device)
        known = self._drawn.get(kind)
        if known is None or len(known) < count:
            around = torch.rand(max(count, _FACTORS), dtype=like.dtype, generator=self._generator).sub_(0.5)
            known = self._drawn[kind] = (1.0 + 2.0 * torch.finfo(like.dtype).eps * around).to(like.device)
        self._taken = (self._taken + _APART) % (len(known) - count + 1)
        return known[self._taken : self._taken + count].view(like.shape)


@by_identity
def _new_results(function: Any) -> tuple[int, ...]:
    """The places of an operation's results that are not what it was given, seen in another way."""
    infos = [declared.alias_info for declared in function._schema.returns]
    return tuple(place for place, info in enumerate(infos) if info is None or info.is_write)
