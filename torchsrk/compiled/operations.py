"""What C a tensor operation becomes, entry by entry."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum


class Kind(Enum):
    """What a C expression is: a vector over a tile's particles, a condition of that form, one number for all, or a
    place in a tensor."""

    VECTOR = "V"
    MASK = "M"
    NUMBER = "REAL"
    PLACE = "int"


Operand = tuple[str, Kind]


def vector(operand: Operand) -> str:
    """The operand as a vector."""
    text, kind = operand
    return {Kind.VECTOR: text, Kind.MASK: f"v_number({text})", Kind.NUMBER: f"splat({text})"}[kind]


def number(operand: Operand) -> str:
    """The operand for arithmetic, where C itself spreads one number over a vector."""
    return operand[0] if operand[1] is Kind.NUMBER else vector(operand)


def mask(operand: Operand) -> str:
    """The operand as a condition."""
    text, kind = operand
    if kind is Kind.MASK:
        return text
    return f"splat_mask({text} != 0)" if kind is Kind.NUMBER else f"({text} != 0)"


def _function(name: str) -> Callable[..., Operand]:
    return lambda *operands: (f"v_{name}({', '.join(map(vector, operands))})", Kind.VECTOR)


def _infix(symbol: str) -> Callable[[Operand, Operand], Operand]:
    # The first is made a vector, so that the result is one even between two numbers.
    return lambda a, b: (f"({vector(a)} {symbol} {number(b)})", Kind.VECTOR)


def _comparison(symbol: str) -> Callable[[Operand, Operand], Operand]:
    return lambda a, b: (f"({vector(a)} {symbol} {number(b)})", Kind.MASK)


def _logical(symbol: str) -> Callable[[Operand, Operand], Operand]:
    return lambda a, b: (f"({mask(a)} {symbol} {mask(b)})", Kind.MASK)


def _clamp(x: Operand, low: Operand | None = None, high: Operand | None = None) -> Operand:
    for bound, name in ((low, "maximum"), (high, "minimum")):
        if bound is not None:
            x = _function(name)(x, bound)
    return x


def _multiple(symbol: str) -> Callable[..., Operand]:
    """a ± alpha·b."""

    def combine(a: Operand, b: Operand, alpha: Operand | None = None) -> Operand:
        term = number(b) if alpha is None else f"{number(alpha)} * {vector(b)}"
        return f"({vector(a)} {symbol} {term})", Kind.VECTOR

    return combine


# aten's name, without its overload.
POINTWISE: dict[str, Callable[..., Operand]] = {
    "add": _multiple("+"),
    "sub": _multiple("-"),
    "rsub": lambda a, b, alpha=None: _multiple("-")(b, a, alpha),
    "mul": _infix("*"),
    "div": _infix("/"),
    "neg": lambda x: (f"(-{vector(x)})", Kind.VECTOR),
    "reciprocal": lambda x: (f"(1 / {vector(x)})", Kind.VECTOR),
    "square": lambda x: integer_power(x, 2),
    "rsqrt": lambda x: (f"(1 / v_sqrt({vector(x)}))", Kind.VECTOR),
    "abs": _function("fabs"),
    "round": _function("rint"),
    "where": lambda c, a, b: (f"v_select({mask(c)}, {vector(a)}, {vector(b)})", Kind.VECTOR),
    "clamp": _clamp,
    "clamp_min": _clamp,
    "clamp_max": lambda x, high: _clamp(x, None, high),
    "pow": _function("pow"),
    "gt": _comparison(">"),
    "ge": _comparison(">="),
    "lt": _comparison("<"),
    "le": _comparison("<="),
    "eq": _comparison("=="),
    "ne": _comparison("!="),
    "logical_and": _logical("&"),
    "bitwise_and": _logical("&"),
    "logical_or": _logical("|"),
    "bitwise_or": _logical("|"),
    "logical_xor": _logical("^"),
    "logical_not": lambda x: (f"v_not({mask(x)})", Kind.MASK),
    "bitwise_not": lambda x: (f"v_not({mask(x)})", Kind.MASK),
    "isnan": lambda x: (f"v_isnan({vector(x)})", Kind.MASK),
    "isinf": lambda x: (f"(v_fabs({vector(x)}) == (REAL)INFINITY)", Kind.MASK),
    "fmod": _function("fmod"),
    "sgn": _function("sign"),
    **{
        name: _function(name)
        for name in (
            *("sqrt", "floor", "ceil", "trunc", "lgamma", "sign", "relu", "sigmoid", "maximum", "minimum"),
            *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "erf", "erfc", "atan2", "hypot"),
            *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
        )
    },
}


def integer_power(x: Operand, exponent: int) -> Operand:
    """x to a small integer power, by multiplication."""
    power = f"v_power({vector(x)}, {abs(exponent)})"
    return (power if exponent >= 0 else f"(1 / {power})"), Kind.VECTOR
