"""From times and lengths to steps."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from .checks import check_step_size

Plan = list[tuple[float, float, bool]]  # steps (t, dt, whether a time that is asked for ends it)


@dataclass(frozen=True)
class Pace:
    """When a step begins and how long it is: steps of one length, or of given ones that begin at time 0."""

    step_size: float
    lengths: tuple[float, ...] = ()
    starts: tuple[float, ...] = ()  # of the steps, and the end of the last

    @classmethod
    def of(cls, step_size: float | None, step_sizes: Tensor | Sequence[float] | None) -> Pace:
        """From exactly one of the two."""
        if (step_size is None) is (step_sizes is None):
            raise ValueError("give exactly one of step_size= (a number) and step_sizes= (the length of every step)")
        if step_sizes is None:
            check_step_size(step_size)
            assert step_size is not None
            return cls(float(step_size))
        lengths = checked_lengths(step_sizes)
        return cls(lengths[0], lengths, tuple(accumulate(lengths, initial=0.0)))

    @property
    def is_even(self) -> bool:
        return len(set(self.lengths)) <= 1

    def start(self, step: int) -> float:
        return self.starts[step] if self.lengths else step * self.step_size

    def length(self, step: int) -> float:
        """After the last of the given steps, that of the last: some schemes report positions by a step more."""
        return self.lengths[min(step, len(self.lengths) - 1)] if self.lengths else self.step_size


def checked_lengths(step_sizes: Tensor | Sequence[float]) -> tuple[float, ...]:
    """Positive numbers, or one clear error."""
    given = _listed(step_sizes)
    wrong = [number for number, size in enumerate(given or ()) if not _is_length(size)]
    if not given or wrong:
        place = f", where entry {wrong[0]} of {len(given)} is {reprlib.repr(given[wrong[0]])}" if given else ""
        raise ValueError(
            f"step_sizes holds one positive number for every step; got {reprlib.repr(step_sizes)}{place}. One length "
            "for all steps is step_size="
        )
    return tuple(map(float, given))


def _is_length(value: Any) -> bool:
    return _is_number(value) and 0.0 < float(value) < math.inf


def steps_between(ts: Tensor | Sequence[float], step_size: float, partial_step: bool) -> Plan:
    """The steps as (t, dt, whether a time of ts ends it). Counted in integers: times are products, never sums."""
    times = _increasing(ts)
    plan: Plan = []
    for start, end in pairwise(times):
        count = (end - start) / step_size
        # ts may be float32: a step count off by its rounding is not a wish for a sliver of a step.
        slack = min(1e-2, 1e-5 + 4.0 * _precision(ts) * max(abs(start), abs(end)) / step_size)
        is_whole = round(count) >= 1 and abs(count - round(count)) < slack
        whole = round(count) if is_whole else math.floor(count)
        rest = 0.0 if is_whole else end - start - whole * step_size
        if rest > 0.0 and not partial_step:
            raise ValueError(
                f"[{start}, {end}] is {count:.9g} steps of {step_size}, not a whole number: take step_size="
                f"{(end - start) / math.ceil(count):.9g}, or partial_step=True for a shorter last step"
            )
        plan += [(start + k * step_size, step_size, False) for k in range(whole)]
        if rest > 0.0:
            plan.append((end - rest, rest, False))
        plan[-1] = (*plan[-1][:2], True)
    return plan


def steps_of(ts: Tensor | Sequence[float], lengths: Sequence[float]) -> Plan:
    """Steps of given lengths from the first time on; every other time ends one of them, and the last the last."""
    times = _increasing(ts)
    ends = list(accumulate(lengths, initial=times[0]))
    numbers = [min(range(len(ends)), key=lambda k, t=t: abs(ends[k] - t)) for t in times]  # type: ignore[misc]
    for time, number in zip(times, numbers, strict=True):
        length = lengths[max(0, number - 1)]
        slack = 1e-5 * length + 4.0 * _precision(ts) * max(abs(times[0]), abs(times[-1]))
        if abs(ends[number] - time) > slack:
            raise ValueError(
                f"no step ends at {time:.9g}: the nearest does at {ends[number]:.9g}. The sums of step_sizes, from "
                f"{times[0]:.9g} on, hold every time of ts"
            )
    if numbers[-1] != len(lengths) or len(set(numbers)) < len(numbers):
        raise ValueError(f"{len(lengths)} step_sizes reach to {ends[-1]:.9g}, and ts to {times[-1]:.9g}")
    return [(ends[k], length, k + 1 in numbers) for k, length in enumerate(lengths)]


def _increasing(ts: Tensor | Sequence[float]) -> list[float]:
    given = _listed(ts)
    if given is not None and any(_is_row(t) for t in given):
        shape = f"shape {tuple(ts.shape)}" if hasattr(ts, "shape") else f"{len(given)} rows"
        raise ValueError(
            f"ts is one grid of times (times,) for all particles; got {shape}. Where particles have times of their "
            "own, solve at all of these times together, sorted, and read each particle's rows"
        )
    if given is None or not all(map(_is_number, given)):
        raise ValueError(f"ts holds two or more increasing times, the first that of x0; got {reprlib.repr(ts)}")
    times = [float(t) for t in given]
    if len(times) > 1 and all(a > b for a, b in pairwise(times)):
        raise ValueError(
            f"ts holds increasing times, and these decrease: {times}. Noise has no way back: give the SDE of the "
            "reversed time s = ts[0] - t and increasing s (ReverseDiffusion is that of a score model), or sort ts"
        )
    if len(times) < 2 or any(not a < b for a, b in pairwise(times)) or not all(map(math.isfinite, times)):
        raise ValueError(f"ts holds two or more increasing times, all finite, the first that of x0; got {times}")
    return times


def _listed(values: Any) -> list[Any] | None:
    """The entries of a tensor, an array or a sequence; None of what has none, and of words."""
    if isinstance(values, Tensor):
        return values.detach().tolist() if values.ndim else None
    is_other = isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable)
    return None if is_other or getattr(values, "ndim", 1) == 0 else list(values)


def _is_row(value: Any) -> bool:
    return isinstance(value, (list, tuple)) or getattr(value, "ndim", 0) > 0


def _is_number(value: Any) -> bool:
    if isinstance(value, (str, bytes, bool)) or _is_row(value):
        return False
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _precision(ts: Tensor | Sequence[float]) -> float:
    return torch.finfo(ts.dtype if isinstance(ts, Tensor) and ts.is_floating_point() else torch.float64).eps
