"""What a coefficient is called with, and whether it can be: time is forgotten easily, or put in the wrong place."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from torch import Tensor, nn

_STATES, _TIMES = ("x", "y"), ("t", "time")


def check_arguments(name: str, function: Callable[..., Tensor], time_dependent: bool) -> None:
    """One clear error for a function of (t, x) that would be called as (x), or the other way, or as (x, t).

    What has no signature to look at is left for the run to call.
    """
    called, other = ("(t, x)", "(x)") if time_dependent else ("(x)", "(t, x)")
    try:
        signature = inspect.signature(function.forward if isinstance(function, nn.Module) else function)
    except (TypeError, ValueError):  # of builtins, as torch's own functions
        return
    given = list(signature.parameters)
    if time_dependent and len(given) > 1 and given[0] in _STATES and given[1] in _TIMES:
        raise TypeError(
            f"with time_dependent=True {name} is called as (t, x), and this one takes ({given[0]}, {given[1]}): "
            "exchange its arguments"
        )
    if _takes(signature, 2 if time_dependent else 1) or not _takes(signature, 1 if time_dependent else 2):
        return
    advice = (
        "leave time_dependent=True out, or give all coefficients t as their first argument"
        if time_dependent
        else "SDE(..., time_dependent=True) calls all coefficients so"
    )
    raise TypeError(f"{name} takes {other}, and is called as {called}: {advice}")


def _takes(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True
