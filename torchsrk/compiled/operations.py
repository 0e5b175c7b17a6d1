"""What C a tensor operation becomes, entry by entry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from .trace import CannotCompile


class Kind(Enum):
    """What a C expression is: a vector over a tile's particles, a condition of that form, one number for all, or a
    place in a tensor."""

    VECTOR = "V"
    MASK = "M"
    NUMBER = "REAL"
    PLACE = "int64_t"


Operand = tuple[str, Kind]


def vector(operand: Operand) -> str:
    """The operand as a vector."""
    text, kind = operand
    forms = {Kind.MASK: "v_number({})", Kind.NUMBER: "splat({})", Kind.PLACE: "splat((REAL){})"}
    return text if kind is Kind.VECTOR else forms[kind].format(text)


def number(operand: Operand) -> str:
    """The operand for arithmetic, where C itself spreads one number over a vector."""
    return operand[0] if operand[1] is Kind.NUMBER else vector(operand)


def mask(operand: Operand) -> str:
    """The operand as a condition."""
    text, kind = operand
    if kind is Kind.MASK:
        return text
    return f"({text} != 0)" if kind is Kind.VECTOR else f"splat_mask({text} != 0)"


@dataclass(frozen=True)
class Entrywise:
    """An operation entry by entry: the arguments it reads, the C of its result, and which arguments are no operands but
    say what it does."""

    arguments: tuple[str, ...]
    build: Callable[..., Operand]
    words: tuple[str, ...] = ()


def _function(name: str) -> Callable[..., Operand]:
    return lambda *operands: (f"v_{name}({', '.join(map(vector, operands))})", Kind.VECTOR)


def _infix(symbol: str) -> Callable[[Operand, Operand], Operand]:
    # The first is made a vector, so that the result is one even between two numbers.
    return lambda a, b: (f"({vector(a)} {symbol} {number(b)})", Kind.VECTOR)


def _comparison(symbol: str) -> Callable[[Operand, Operand], Operand]:
    return lambda a, b: (f"({vector(a)} {symbol} {number(b)})", Kind.MASK)


def _logical(symbol: str) -> Callable[[Operand, Operand], Operand]:
    return lambda a, b: (f"({mask(a)} {symbol} {mask(b)})", Kind.MASK)


def _not(x: Operand) -> Operand:
    return f"v_not({mask(x)})", Kind.MASK


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


def _divided(a: Operand, b: Operand, rounding_mode: str | None) -> Operand:
    if rounding_mode == "floor":
        return _function("floor_divide")(a, b)
    quotient = _infix("/")(a, b)
    return quotient if rounding_mode is None else _function("trunc")(quotient)


def _polygamma(x: Operand, n: int) -> Operand:
    if n != 1:
        raise CannotCompile(f"a step uses polygamma of order {n}, which has no C form here")
    return _function("trigamma")(x)


def integer_power(x: Operand, exponent: int) -> Operand:
    """x to a small integer power, by multiplication."""
    power = f"v_power({vector(x)}, {abs(exponent)})"
    return (power if exponent >= 0 else f"(1 / {power})"), Kind.VECTOR


def _unary(rules: dict[str, Callable[[Operand], Operand]]) -> dict[str, Entrywise]:
    return {f"{name}.default": Entrywise(("self",), build) for name, build in rules.items()}


def _binary(rules: dict[str, Callable[[Operand, Operand], Operand]], *overloads: str) -> dict[str, Entrywise]:
    return {
        f"{name}.{overload}": Entrywise(("self", "other"), build)
        for name, build in rules.items()
        for overload in overloads
    }


def _named(name: str, overloads: tuple[str, ...], arguments: tuple[str, ...], build: Callable[..., Operand]) -> dict:
    return {f"{name}.{overload}": Entrywise(arguments, build) for overload in overloads}


_SYMBOLS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<=", "eq": "==", "ne": "!="}
_FUNCTIONS = (
    *("sqrt", "floor", "ceil", "trunc", "lgamma", "sign", "relu", "sigmoid", "exp", "exp2", "expm1", "log", "log2"),
    *("log10", "log1p", "erf", "erfc", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh"),
    *("acosh", "atanh", "digamma", "erfinv", "i0"),
)
_SCALARS = ("Tensor", "Scalar")

# aten's name with its overload.
POINTWISE: dict[str, Entrywise] = {
    **_named("add", _SCALARS, ("self", "other", "alpha"), _multiple("+")),
    **_named("sub", _SCALARS, ("self", "other", "alpha"), _multiple("-")),
    **_named("rsub", _SCALARS, ("other", "self", "alpha"), _multiple("-")),
    **_binary({"mul": _infix("*"), "div": _infix("/"), "fmod": _function("fmod")}, *_SCALARS),
    **_binary({"remainder": _function("remainder")}, *_SCALARS, "Scalar_Tensor"),
    **_binary({name: _comparison(symbol) for name, symbol in _SYMBOLS.items()}, *_SCALARS),
    **_binary({name: _function(name) for name in ("maximum", "minimum", "atan2", "hypot", "fmin", "fmax")}, "default"),
    **_binary({"copysign": _function("copysign")}, *_SCALARS),
    **dict.fromkeys(("div.Tensor_mode", "div.Scalar_mode"), Entrywise(("self", "other"), _divided, ("rounding_mode",))),
    "polygamma.default": Entrywise(("self",), _polygamma, ("n",)),
    **_binary({f"logical_{name}": _logical(c) for name, c in (("and", "&"), ("or", "|"), ("xor", "^"))}, "default"),
    **_binary({f"bitwise_{name}": _logical(c) for name, c in (("and", "&"), ("or", "|"), ("xor", "^"))}, "Tensor"),
    **_unary(
        {
            **{name: _function(name) for name in _FUNCTIONS},
            **dict.fromkeys(("neg", "_neg_view", "_neg_view_copy"), lambda x: (f"(-{vector(x)})", Kind.VECTOR)),
            "reciprocal": lambda x: (f"(1 / {vector(x)})", Kind.VECTOR),
            "square": lambda x: integer_power(x, 2),
            "rsqrt": lambda x: (f"(1 / v_sqrt({vector(x)}))", Kind.VECTOR),
            "abs": _function("fabs"),
            **{f"special_{name}": _function(name) for name in ("erfcx", "i0e", "i1", "i1e")},
            "round": _function("rint"),
            "sgn": _function("sign"),
            "logical_not": _not,
            "bitwise_not": _not,
            "signbit": lambda x: (f"v_signbit({vector(x)})", Kind.MASK),
            "isnan": lambda x: (f"v_isnan({vector(x)})", Kind.MASK),
            "isinf": lambda x: (f"(v_fabs({vector(x)}) == (REAL)INFINITY)", Kind.MASK),
        }
    ),
    **_named(
        "where",
        ("self", "ScalarSelf", "ScalarOther", "Scalar"),
        ("condition", "self", "other"),
        lambda c, a, b: (f"v_select({mask(c)}, {vector(a)}, {vector(b)})", Kind.VECTOR),
    ),
    **_named("clamp", ("default", "Tensor"), ("self", "min", "max"), _clamp),
    **_named("clamp_min", ("default", "Tensor"), ("self", "min"), _clamp),
    **_named("clamp_max", ("default", "Tensor"), ("self", "max"), lambda x, high: _clamp(x, None, high)),
    **_named("pow", ("Tensor_Tensor", "Tensor_Scalar", "Scalar"), ("self", "exponent"), _function("pow")),
}
