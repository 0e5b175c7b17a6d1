"""What operations compute, on the single numbers that a step is unrolled to: sums, products, small matrices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .calls import Call
from .matrices import is_read
from .operations import Entrywise, Kind, Operand, integer_power, mask, vector
from .trace import CannotCompile

if TYPE_CHECKING:
    from .unrolled import Unrolled


def _reduced(unrolled: Unrolled, call: Call, start: float, build: Callable[..., Operand]) -> Tensor:
    source, given = unrolled.value(call["self"]), call.get("dim")
    rank = source.ndim
    dims = [given] if isinstance(given, int) else given or range(rank)
    dims = sorted({d % max(1, rank) for d in dims} & set(range(rank)))
    kept = [d for d in range(rank) if d not in dims]
    rows = source.permute(*kept, *dims).reshape(*(source.shape[d] for d in kept), -1)
    if not rows.shape[-1]:
        return torch.full(tuple(call.node.meta["val"].shape), unrolled.literal(start))
    found = [unrolled.tree(build, row) for row in rows.reshape(-1, rows.shape[-1]).tolist()]
    call.get("keepdim")  # is in the result's shape
    return torch.tensor(found, dtype=torch.int64).reshape(call.node.meta["val"].shape)


def added(a: Operand, b: Operand) -> Operand:
    return f"({vector(a)} + {vector(b)})", Kind.VECTOR


def multiplied(a: Operand, b: Operand) -> Operand:
    return f"({vector(a)} * {vector(b)})", Kind.VECTOR


def power(x: Operand, exponent: int) -> Operand:
    power = integer_power(x, abs(exponent))[0]
    return power if exponent >= 0 else f"v_divide(splat(1.0), {power})", Kind.VECTOR


def called(name: str) -> Callable[[Operand, Operand], Operand]:
    return lambda a, b: (f"{name}({vector(a)}, {vector(b)})", Kind.VECTOR)


def _reduction(start: float, build: Callable[..., Operand]) -> Callable[[Unrolled, Call], Tensor]:
    return lambda unrolled, call: _reduced(unrolled, call, start, build)


def _condition(symbol: str, start: float) -> Callable[[Unrolled, Call], Tensor]:
    def rule(unrolled: Unrolled, call: Call) -> Tensor:
        return _reduced(unrolled, call, start, lambda a, b: (f"({mask(a)} {symbol} {mask(b)})", Kind.MASK))

    return rule


def _mean(unrolled: Unrolled, call: Call) -> Tensor:
    total = _reduced(unrolled, call, 0.0, added)
    terms = unrolled.value(call["self"]).numel() // max(1, total.numel())
    share = torch.tensor(unrolled.literal(1.0 / terms if terms else math.nan))
    return unrolled.entrywise(multiplied, total, share)


def _running(build: Callable[..., Operand]) -> Callable[[Unrolled, Call], Tensor]:
    def rule(unrolled: Unrolled, call: Call) -> Tensor:
        source, found = unrolled.value(call["self"]), []
        if not source.ndim:
            call["dim"]
            return source
        along = source.movedim(call["dim"], -1)
        for row in along.reshape(-1, along.shape[-1]).tolist():
            for place in range(1, len(row)):
                row[place] = unrolled.scalar(build, row[place - 1], row[place])
            found.append(row)
        unrolled.longest_sum = max(unrolled.longest_sum, along.shape[-1])
        return torch.tensor(found, dtype=torch.int64).reshape(along.shape).movedim(-1, call["dim"])

    return rule


def _product(unrolled: Unrolled, a: Tensor, b: Tensor) -> Tensor:
    """(..., n, k) times (..., k, m)."""
    terms = unrolled.entrywise(multiplied, a.unsqueeze(-2), b.mT.unsqueeze(-3))
    if not terms.shape[-1]:
        return torch.full(terms.shape[:-1], unrolled.literal(0.0))
    sums = [unrolled.tree(added, row) for row in terms.reshape(-1, terms.shape[-1]).tolist()]
    return torch.tensor(sums, dtype=torch.int64).reshape(terms.shape[:-1])


def _mm(unrolled: Unrolled, call: Call) -> Tensor:
    return _product(unrolled, unrolled.value(call["self"]), unrolled.value(call["mat2"]))


def _addmm(unrolled: Unrolled, call: Call) -> Tensor:
    made = _product(unrolled, unrolled.value(call["mat1"]), unrolled.value(call["mat2"]))
    return unrolled.entrywise(added, unrolled.value(call["self"]), made)


def _cholesky(unrolled: Unrolled, call: Call) -> list[Tensor]:
    """Column by column; a matrix that has no factor gives NaN, which ends the run."""
    source = unrolled.value(call["self"])
    size, upper = source.shape[-1], bool(call["upper"])
    call["check_errors"]
    if is_read(call, 1):
        raise CannotCompile("a step reads which matrices have no Cholesky factor")
    zero, made = unrolled.literal(0.0), []
    for matrix in source.reshape(-1, size, size).tolist():
        factor = [[zero] * size for _ in range(size)]
        for j in range(size):
            for i in range(j, size):
                terms = [unrolled.scalar(multiplied, factor[i][k], factor[j][k]) for k in range(j)]
                rest = unrolled.scalar(subtracted, matrix[i][j], unrolled.tree(added, terms)) if terms else matrix[i][j]
                build = root if i == j else called("v_divide")
                factor[i][j] = unrolled.scalar(build, rest, *(() if i == j else (factor[j][j],)))
        made.append(factor)
    factors = torch.tensor(made, dtype=torch.int64).reshape(source.shape)
    return [factors.mT if upper else factors, torch.full(source.shape[:-2], zero)]


def _solve_triangular(unrolled: Unrolled, call: Call) -> Tensor:
    a, b = unrolled.value(call["self"]), unrolled.value(call["B"])
    upper, left, unit = bool(call["upper"]), bool(call["left"]), bool(call["unitriangular"])
    if not left:
        a, b, upper = a.mT, b.mT, not upper
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *b.shape[-2:])
    size, solved = a.shape[-1], b.reshape(-1, *b.shape[-2:]).tolist()
    for matrix, rows in zip(a.reshape(-1, size, size).tolist(), solved, strict=True):
        for i in reversed(range(size)) if upper else range(size):
            known = range(i + 1, size) if upper else range(i)
            for column in range(len(rows[i])):
                terms = [unrolled.scalar(multiplied, matrix[i][k], rows[k][column]) for k in known]
                rest = rows[i][column]
                rest = unrolled.scalar(subtracted, rest, unrolled.tree(added, terms)) if terms else rest
                rows[i][column] = rest if unit else unrolled.scalar(called("v_divide"), rest, matrix[i][i])
    made = torch.tensor(solved, dtype=torch.int64).reshape(b.shape)
    return made if left else made.mT


def subtracted(a: Operand, b: Operand) -> Operand:
    return f"({vector(a)} - {vector(b)})", Kind.VECTOR


def root(x: Operand) -> Operand:
    return f"v_sqrt({vector(x)})", Kind.VECTOR


# How the places of what is written over are found: by the tensor of all places, the dimension and the index.
PUTS: dict[str, tuple[Callable[..., Tensor], str, bool]] = {
    "index_put.default": (lambda places, dim, index: places[tuple(or_all(index))], "values", False),
    "scatter.src": (lambda places, dim, index: places.gather(dim, index), "src", False),
    "scatter_add.default": (lambda places, dim, index: places.gather(dim, index), "src", True),
    "index_add.default": (lambda places, dim, index: places.index_select(dim, index), "source", True),
}


def or_all(indices: Sequence[Tensor | None]) -> list[Tensor | slice]:
    return [slice(None) if index is None else index for index in indices]


COUNTS = {"sum.default", "sum.dim_IntList"}
RULES: dict[str, Callable[[Unrolled, Call], Any]] = {
    **dict.fromkeys(("sum.default", "sum.dim_IntList"), _reduction(0.0, added)),
    **dict.fromkeys(("mean.default", "mean.dim"), _mean),
    **dict.fromkeys(("prod.default", "prod.dim_int"), _reduction(1.0, multiplied)),
    "amax.default": _reduction(-math.inf, called("v_maximum")),
    "amin.default": _reduction(math.inf, called("v_minimum")),
    **dict.fromkeys(("any.default", "any.dim", "any.dims"), _condition("|", 0.0)),
    **dict.fromkeys(("all.default", "all.dim", "all.dims"), _condition("&", 1.0)),
    "cumsum.default": _running(added),
    "cumprod.default": _running(multiplied),
    "logcumsumexp.default": _running(called("v_logaddexp")),
    "linalg_cholesky_ex.default": _cholesky,
    "linalg_solve_triangular.default": _solve_triangular,
    "mm.default": _mm,
    "bmm.default": _mm,
    "addmm.default": _addmm,
}

# Where a text of C is not one of Triton's, or rounds otherwise there.
OWN_POINTWISE: dict[str, Entrywise] = {
    **dict.fromkeys(("div.Tensor", "div.Scalar"), Entrywise(("self", "other"), called("v_divide"))),
    "neg.default": Entrywise(("self",), lambda x: (f"v_neg({vector(x)})", Kind.VECTOR)),
    "reciprocal.default": Entrywise(("self",), lambda x: (f"v_divide(splat(1.0), {vector(x)})", Kind.VECTOR)),
    "rsqrt.default": Entrywise(("self",), lambda x: (f"v_divide(splat(1.0), v_sqrt({vector(x)}))", Kind.VECTOR)),
    "isinf.default": Entrywise(("self",), lambda x: (f"v_isinf({vector(x)})", Kind.MASK)),
}
