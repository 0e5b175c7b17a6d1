"""Random functions of a state, as source text: statements drawn one by one and kept if they run on an example.

Statements come from idioms/*.txt, one a line: an expression, or statements between " ;; " that assign to {out}; those
that begin with @ stand before the function. What the names in braces become is in ``names.py``: {a} and {b} are values
of one shape, {s} a number a particle, {m} a matrix a particle, {q} a value that is no float of the state's precision,
{n} the size of the last dimension, {all} the leading part of an index, {c} a number, {p} a positive one, {K} and {L}
names of constants. Three groups have a use of their own: ``matrices`` and ``others`` make an {m} or a {q} where there
is none, and what is in ``raises`` is meant to raise.
"""

from __future__ import annotations

import math
import textwrap
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor

from .names import Names, Unavailable

IMPORTS = """\
import dataclasses, functools, itertools, math
from types import SimpleNamespace
import numpy as np
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import distributions, nn
from torchsrk import SDE, Langevin, sample
from torchsrk.potentials import FunctionPotential
"""
_AT_HAND: dict[str, Any] = {}
exec(IMPORTS, _AT_HAND)
_IDIOMS = {
    file.stem: [line.split(" ;; ") for line in file.read_text(encoding="utf-8").splitlines()]
    for file in sorted(Path(__file__).with_name("idioms").glob("*.txt"))
}
GROUPS = tuple(name for name in _IDIOMS if name not in ("matrices", "others", "raises"))
_LARGEST, _MOST_ENTRIES = 1e3, 400  # of a value on an example; of a value, a particle


@dataclass
class Function:
    """A function under construction.

    Attributes:
        values: its variables, on an example.
        before: lines that stand before it.
        lines: of its body.
        idioms: what it was made of, as (group, place in the group).
    """

    rng: Random
    dtype: str
    leading: int
    colon: bool
    constants: int = 0
    namespace: dict[str, Any] = field(default_factory=lambda: dict(_AT_HAND))
    values: dict[str, Tensor] = field(default_factory=dict)
    before: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    idioms: list[tuple[str, int]] = field(default_factory=list)

    def add(self, group: str, place: int, *, tried: bool = True) -> bool:
        """Add a statement; False if it does not run on the example."""
        names = Names(self.rng, self.values, self.dtype, self.leading, self.colon, self.constants)
        out = f"v{len(self.values)}"
        template = _IDIOMS[group][place]
        if not any("{out}" in line for line in template):
            template = [f"{{out}} = {template[-1]}"]
        names["out"] = out
        try:
            lines = [line.format_map(names) for line in template]
        except Unavailable as wanted:
            made = self.add(str(wanted), self.rng.randrange(number_of_idioms(str(wanted))))
            return made and self.add(group, place, tried=tried)
        before = [line for line in names.constants if line] + [line[1:] for line in lines if line[0] == "@"]
        lines = [line for line in lines if line[0] != "@"]
        if tried and not self._runs(before, lines, out):
            return False
        self.constants += len(names.constants)
        self.before += before
        self.lines += lines
        self.idioms.append((group, place))
        return True

    def _runs(self, before: list[str], lines: list[str], out: str) -> bool:
        namespace = {**self.namespace, **self.values}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec("\n".join(before), namespace)
                constants = {k: v for k, v in namespace.items() if k not in self.values}
                exec("\n".join(lines), namespace)
        except Exception:
            return False
        value = namespace[out]
        if not isinstance(value, Tensor) or not self._is_tame(value):
            return False
        self.namespace |= constants
        self.values[out] = value.detach()
        return True

    def _is_tame(self, value: Tensor) -> bool:
        leading = self.values["x"].shape[: self.leading]
        if value.is_complex() or value.shape[: self.leading] != leading or value.numel() == 0:
            return False
        if value.numel() > _MOST_ENTRIES * math.prod(leading):
            return False
        return bool(value.double().isfinite().all() and value.double().abs().max() < _LARGEST)

    # How a function ends.

    def last(self) -> str:
        return next(reversed(self.values))

    def rank(self, name: str) -> int:
        return self.values[name].ndim - self.leading

    def weight(self, name: str) -> float:
        """A factor that keeps a value's part of a step small."""
        return float(f"{self.rng.uniform(0.2, 0.8) / max(1.0, float(self.values[name].double().abs().max())):.2g}")

    def number(self) -> str:
        """The last value as one number a particle, times a weight."""
        name = self.last()
        cast = "" if f"{self.values[name].dtype}" == self.dtype else f".to({self.dtype})"
        rank = self.rank(name)
        dims = tuple(range(-rank, 0)) if rank > 1 else -1
        reduced = f".{self.rng.choice(('sum', 'mean', 'sum'))}({dims})" if rank else ""
        return f"{self.weight(name)} * {name}{cast}{reduced}"

    def vector(self) -> str:
        """The last value in the state's form, times a weight."""
        name = self.last()
        if self.values[name].shape != self.values["x"].shape:
            return f"({self.number()}).unsqueeze(-1) * torch.cos(x)"
        cast = "" if f"{self.values[name].dtype}" == self.dtype else f".to({self.dtype})"
        return f"{self.weight(name)} * {name}{cast}"

    def text(self, name: str, arguments: str, result: str) -> str:
        body = textwrap.indent("\n".join([*self.lines, f"return {result}"]), "    ")
        return "\n".join([*self.before, f"def {name}({arguments}):", body]) + "\n"


def draw_function(
    rng: Random,
    dim: int,
    dtype: str,
    *,
    leading: tuple[int, ...],
    colon: bool,
    constants: int,
    statements: int,
    wanted: tuple[str, int] | None = None,
) -> Function:
    """A function of x with so many statements, give or take, among them a wanted one if it runs."""
    function = Function(rng, dtype, len(leading), colon, constants)
    generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
    function.values["x"] = torch.randn(*leading, dim, dtype=getattr(torch, dtype[6:]), generator=generator)
    if wanted is not None:
        any(function.add(*wanted) for _ in range(5))
    for _ in range(4 * statements):
        if len(function.idioms) >= statements:
            break
        group = rng.choice(GROUPS)
        function.add(group, rng.randrange(number_of_idioms(group)))
    return function


def number_of_idioms(group: str) -> int:
    return len(_IDIOMS[group])


def idiom_of(number: int) -> tuple[str, int]:
    """The idioms in turn, so that as many programs as there are idioms meet each."""
    every = [(group, place) for group in GROUPS for place in range(number_of_idioms(group))]
    return every[number % len(every)]
