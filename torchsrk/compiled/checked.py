"""Compiled steps that were held against eager ones before a run takes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .check import Difference, EagerSteps, check_about, check_block, check_rows
from .problem import Problem
from .trace import CannotCompile, collected_later

if TYPE_CHECKING:
    from .programs import Found
    from .steps import Bound, Program

Check = Callable[..., Difference | None]

_SLOW = 0.25  # seconds: of a check so dear, as that of a long series, one is to do
_SHARE = 0.01  # of the time since the last check that another one may take, where nothing is known to have changed


@collected_later()  # also during the check: what a new trace has noted is still there
def checked_steps(
    problem: Problem,
    eager: EagerSteps,
    blocks: Sequence[range],
    *,
    seed: int,
    first_particle: int,
    first_step: int,
    threads: int,
) -> tuple[Bound, Program]:
    """The problem's steps, compiled and ready to run.

    A program that is new, that another one or another step size was used before, or whose fingerprint can't see all it
    reads is checked at every call; any other one as often as leaves the checks a small share of the time. One that
    fails is made anew, and one that holds is kept on disk.

    Args:
        blocks: the rows of the state that an eager run would advance together.

    Raises:
        CannotCompile: the message says why.
    """
    from . import stored  # and all of the compiler: a run that needs it loads it
    from .programs import find, forget

    difference: Difference | None = None
    traced = 0
    while traced < 2:
        found = find(problem)
        steps = found.steps
        try:
            bound = steps.bind(problem, found.key, seed, first_particle, threads)
        except Exception:  # of one from disk it may be the file's doing
            if not stored.reject(steps):
                raise
            forget(problem)
            continue
        difference = _difference(problem, found, bound, eager, blocks, first_step)
        if difference is None:
            stored.keep(problem, steps, found.key)
            return bound, steps
        forget(problem)
        traced += not stored.reject(steps)
    reason = f"the compiled step differs from the eager one: {difference}"
    forget(problem, reason)
    raise CannotCompile(reason)


def _difference(
    problem: Problem,
    program: Found,
    bound: Bound,
    eager: EagerSteps,
    blocks: Sequence[range],
    first_step: int,
) -> Difference | None:
    """The first that is found."""
    state, steps, checks = problem.state, program.steps, program.steps.checks
    # One block of every size; a state without a batch is one of its own kind.
    sizes = {len(rows) if state.ndim > 1 else 0: rows for rows in blocks}

    def held(check: Check, rows: range) -> Difference | None:
        x = state[rows.start : rows.stop] if state.ndim > 1 else state
        return check(eager, bound, x, rows.start, first_step, steps.longest_sum)

    if program.is_other:
        checks.sizes.clear()
    if program.is_other and max(sizes) > 1:
        was_held = steps.stored_as is not None or checks.at > -math.inf  # by another process, or for another SDE
        with checks.timed():
            found = held(check_about, sizes[max(sizes)])
        if found is not None:
            return found
        checks.sizes.add(max(sizes))
        if was_held or checks.seconds > _SLOW:
            checks.sizes |= sizes.keys()
            return None
    for rows in (rows for size, rows in sizes.items() if size not in checks.sizes):
        found = held(check_block, rows)
        if found is not None:
            return found
    if program.is_due or problem.uneven is not None or not steps.seen or checks.are_due(_SHARE):
        rows_of_state = state if state.ndim > 1 else state.unsqueeze(0)
        with checks.timed():
            found = check_rows(eager, bound, rows_of_state, first_step, steps.longest_sum)
        if found is not None:
            return found
    checks.sizes |= sizes.keys()
    return None
