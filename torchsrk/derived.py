"""Numbers that remember how they come from a step size, so that those of another step size can be computed from it.

A compiled step reads its numbers at run time. Which of them change with the step size, and how, is found out while it
is traced: a scheme is given a step size that remembers, and computes with it as with any float.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import wraps
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class OtherForm(ValueError):
    """From this step size other numbers are made, and not the same ones with other values."""


@dataclass(frozen=True, eq=False)
class Formula:
    """A number, or several, as a function of the step size. It is data, so that it can be kept for another process.

    Attributes:
        what: "step size", an operator, "call" of a function, "entry" of a tuple or "attribute" of what another gives.
        given: that function, place or name, and the numbers and formulas that it is applied to.
    """

    what: str
    given: tuple[Any, ...] = ()

    def __call__(self, h: Any) -> Any:
        if self.what == "step size":
            return h
        return _MEANINGS[self.what](*(part(h) if isinstance(part, Formula) else part for part in self.given))


STEP_SIZE = Formula("step size")


class Ledger:
    """The numbers that were made from a step size.

    Attributes:
        made: what computes each again, by its value.
        decided: something was decided by one of them (a branch, a number of terms), which no other number tells of.
    """

    def __init__(self) -> None:
        self.made: dict[float, list[Formula]] = {}
        self.decided = False

    def step_size(self, value: float) -> Derived:
        """The step size that all others come from."""
        return Derived(value, STEP_SIZE, self)

    def function(self, value: float, elsewhere: float, value_there: float) -> Formula | None:
        """What gave ``value``, and gives ``value_there`` from the step size ``elsewhere``."""
        found = (again for again in self.made.get(value, ()) if again(elsewhere) == value_there)
        return next(found, None)


class Derived(float):
    """A float that is a function of the step size. Arithmetic with it gives others; what decides by it is noted."""

    __slots__ = ("again", "ledger")
    again: Formula
    ledger: Ledger

    def __new__(cls, value: float, again: Formula, ledger: Ledger) -> Derived:
        number = super().__new__(cls, value)
        number.again, number.ledger = again, ledger
        ledger.made.setdefault(plain(number), []).append(again)
        return number


# The functions that formulas may call, by their names.
FUNCTIONS: dict[str, Callable[..., Any]] = {}


def of_step_size(function: F) -> F:
    """Let a function of numbers, that may do anything with them, take those made from a step size, too.

    It may return a number, a tuple or a dataclass: each number of it is then one that remembers.
    """

    @wraps(function)
    def lifted(*args: Any) -> Any:
        ledgers = [value.ledger for value in args if isinstance(value, Derived)]
        if not ledgers:  # no next(..., None): torch.compile traces through here, and that of PyTorch 2.6 knows none
            return function(*args)
        again = Formula("call", (function, *map(_formula, args)))
        return _remembering(function(*map(plain, args)), again, ledgers[0])

    FUNCTIONS.setdefault(f"{function.__module__}.{function.__qualname__}", function)
    return lifted  # type: ignore[return-value]


exp = of_step_size(math.exp)
expm1 = of_step_size(math.expm1)
sqrt = of_step_size(math.sqrt)


def plain(number: Any) -> Any:
    """The same number as one that remembers nothing: for what is told of it elsewhere."""
    return float.__pos__(number) if isinstance(number, Derived) else number


def _remembering(value: Any, again: Formula, ledger: Ledger) -> Any:
    if isinstance(value, tuple):
        entries = ((part, Formula("entry", (place, len(value), again))) for place, part in enumerate(value))
        return tuple(_remembering(part, entry, ledger) for part, entry in entries)
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: Formula("attribute", (field.name, again)) for field in fields(value)}
        return replace(value, **{name: _remembering(getattr(value, name), of, ledger) for name, of in parts.items()})
    return Derived(value, again, ledger) if isinstance(value, float) else value


def _formula(number: Any) -> Any:
    """What tells a number at any step size: its formula, or itself."""
    return number.again if isinstance(number, Derived) else number


def _entry(place: int, size: int, values: Any) -> Any:
    if len(values) != size:
        raise OtherForm(f"there are {len(values)} numbers where there were {size}")
    return values[place]


_MEANINGS: dict[str, Callable[..., Any]] = {
    "call": lambda function, *args: function(*args),
    "entry": _entry,
    "attribute": lambda name, value: getattr(value, name),
}


def _arithmetic(name: str) -> None:
    apply = getattr(operator, name.removeprefix("r") if name in _REFLECTED else name)
    plainly = getattr(float, f"__{name}__")
    _MEANINGS[name] = lambda *args: apply(*(reversed(args) if name in _REFLECTED else args))

    def unary(self: Derived) -> Derived:
        return Derived(plainly(self), Formula(name, (self.again,)), self.ledger)

    def binary(self: Derived, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented  # a tensor, which takes it as a number
        number = plainly(self, plain(other))
        again = Formula(name, (self.again, _formula(other)))
        return Derived(number, again, self.ledger) if isinstance(number, float) else number

    setattr(Derived, f"__{name}__", unary if name in _UNARY else binary)


def _decision(name: str) -> None:
    plainly = getattr(float, f"__{name}__")

    def decided(self: Derived, *args: Any) -> Any:
        self.ledger.decided = True
        return plainly(self, *args)

    setattr(Derived, f"__{name}__", decided)


_UNARY = ("neg", "pos", "abs")
_REFLECTED = ("radd", "rsub", "rmul", "rtruediv", "rpow")
for _name in (*_UNARY, *_REFLECTED, "add", "sub", "mul", "truediv", "pow"):
    _arithmetic(_name)
for _name in (
    *("lt", "le", "gt", "ge", "eq", "ne", "bool", "hash", "float", "int", "round", "trunc", "floor", "ceil"),
    *("repr", "str", "format", "floordiv", "rfloordiv", "mod", "rmod", "divmod", "rdivmod", "reduce_ex"),
):
    _decision(_name)
