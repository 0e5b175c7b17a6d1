"""The first step of a run, looked at: what a scheme of the user's own gets wrong is told there, once, by its name."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from torch import Tensor

from ..brownian.increment import ASKED_BY, Increment
from ..sde.base import BaseSDE, Time, check_output
from ..sde.terms import Term
from .base import Integrator
from .own_draws import told_of_draws


def first_step(scheme: Integrator, sde: BaseSDE, t: Time, state: Tensor, increment: Increment) -> Tensor:
    """``scheme.step``, with one clear error for what is no state, or for a part of the increment that it lacks."""
    try:
        with told_of_draws(scheme):
            moved = scheme.step(sde, t, state, increment)
    except (TypeError, AttributeError) as error:
        missing = _missing(error.__traceback__, increment) if "NoneType" in str(error) else []
        if not missing:
            raise
        asked = " | ".join(f"Needs.{ASKED_BY[part]}" for part in missing)
        parts = " and ".join(f"increment.{part}" for part in missing)
        raise TypeError(
            f"{type(scheme).__name__}.step reads {parts}, None as the scheme did not ask for it: set needs = {asked} "
            f"in the class ({error})"
        ) from error
    check_state(scheme, moved, state)
    return moved


def check_state(scheme: Integrator, moved: Any, state: Tensor) -> None:
    """One clear error for a step that returned something else than the next state."""
    what = f"{type(scheme).__name__}.step"
    if isinstance(moved, Tensor):
        valid = moved.shape == state.shape
        check_output(moved, state, valid=valid, what=what, expected="the next state, of the shape of x")
        return
    if moved is None:
        raise TypeError(f"{what} must return the next state; it returned None: does it end without `return`?")
    if isinstance(moved, Term):
        raise TypeError(
            f"{what} must return the next state; it returned what is to be added to one, a sum of drift and noise "
            "(a Term): return x + ..., or x - ..."
        )
    raise TypeError(f"{what} must return the next state, a tensor; it returned {type(moved).__name__}")


def checked_rows(scheme: Integrator, method: str, rows: Tensor, given: Tensor) -> Tensor:
    """What ``init`` or ``position`` made of positions or of states, if it is a row for each of theirs."""
    valid = isinstance(rows, Tensor) and rows.shape[:-1] == given.shape[:-1]
    expected = "a row for every particle, (..., width)"
    check_output(rows, given, valid=valid, what=f"{type(scheme).__name__}.{method}", expected=expected)
    return rows


def _missing(trace: TracebackType | None, increment: Increment) -> list[str]:
    """The parts that were not drawn, of those that the code reads which has failed with the increment at hand."""
    read: set[str] = set()
    while trace is not None:
        frame, trace = trace.tb_frame, trace.tb_next
        if frame.f_code is not first_step.__code__ and any(
            isinstance(value, Increment) for value in frame.f_locals.values()
        ):
            read.update(frame.f_code.co_names)
    return [part for part in ASKED_BY if part in read and getattr(increment, part) is None]
