"""The numbers of steps that have lengths of their own, one row for every step, for C to read."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .literals import Literals
from .problem import Problem, Uneven
from .trace import CannotCompile


class Rows:
    """The times of steps, and by their lengths the numbers in their code and the scales of their noise.

    Raises:
        CannotCompile: a step of another length is another step.
    """

    def __init__(self, literals: Literals, problem: Problem, uneven: Uneven) -> None:
        lengths = list(dict.fromkeys(uneven.lengths))
        row = {length: number for number, length in enumerate(lengths)}
        values = [_literals_at(literals, length) for length in lengths]
        self._rows = torch.tensor([row[length] for length in uneven.lengths])
        self._times = torch.tensor(uneven.starts[: len(uneven.lengths)], dtype=torch.float64)
        self._literals = torch.tensor(values, dtype=torch.float64).to(problem.state.dtype)
        scales = [_scales_at(problem, uneven, length) for length in lengths]
        self._scales = torch.tensor(scales, dtype=torch.float64)

    def point(self, run: Any, first: int, last: int) -> tuple[Tensor, ...]:
        """Point a run to those of its steps from one to another, which are returned to be kept until then."""
        rows = self._rows[first:last]
        times, literals, scales = self._times[first:last], self._literals[rows], self._scales[rows]
        run.times, run.literals, run.scales = (tensor.data_ptr() for tensor in (times, literals, scales))
        run.literals_apart, run.scales_apart = literals.shape[1], scales.shape[1]
        return times, literals, scales


def _literals_at(literals: Literals, length: float) -> list[float]:
    if not literals.known:
        raise CannotCompile(
            "its steps have lengths of their own, and not all that a step makes of its length was seen to be made of it"
        )
    values = literals.at(length)
    if values is None:
        raise CannotCompile(f"a step of length {length:.9g} is another one than that of the first length")
    return values or [0.0]


def _scales_at(problem: Problem, uneven: Uneven, length: float) -> list[float]:
    drawn = uneven.noise(length)
    forms = [[(draw.stream, draw.components, draw.part) for draw in draws] for draws in (problem.noise, drawn)]
    if forms[0] != forms[1]:
        raise CannotCompile(f"a step of length {length:.9g} draws other noise than one of the first length")
    return [draw.scale for draw in drawn]
