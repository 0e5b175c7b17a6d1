"""The steps of a dynamics compiled, or a word on why not."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..blocks import Blocks
from ..brownian import Increment, LevyArea, MrongowiusRoesslerLevyArea, Needs
from ..brownian.draws import Draw, GivenNormals, assemble, draws, levy_draws
from ..compiled import (
    CannotCompile,
    CapturedSteps,
    LengthsAs,
    Places,
    Problem,
    TorchSteps,
    Uneven,
    captured_steps,
    checked_steps,
    torch_steps,
)
from ..integrators import Integrator
from ..integrators.first_step import check_state
from ..potentials.minibatches import Minibatches, draws_kept, draws_minibatches_alone
from ..sde import BaseSDE, as_sde
from .checks import check_levy_area, check_problem
from .dynamics import Dynamics
from .plans import Pace

if TYPE_CHECKING:
    from ..compiled.steps import Bound


def compiled_steps(
    dynamics: Dynamics, state: Tensor, blocks: Blocks, steps: range, threads: int, bar: Any, language: str
) -> tuple[Dynamics, Bound | CapturedSteps | None]:
    """The same steps compiled, with the dynamics that they are of; after a warning that says why not, captured on a
    CUDA device, or None."""
    bar.set_postfix_str("compiling")
    first_step = steps.start
    numbers = _numbers(dynamics, first_step)
    chosen = dynamics
    try:
        chosen = with_minibatches(dynamics, state, first_step)
        problem = problem_for(chosen, state, language, exact_time=language == "c")
        if language == "triton" and problem.places:
            raise CannotCompile("a kernel draws no minibatches")
        if language == "triton" and problem.uneven is not None:
            raise CannotCompile("its steps have lengths of their own")
        numbers["first_step"] = _step_to_check(dynamics, steps)
        bound, program = checked_steps(problem, chosen, blocks.spans, threads=threads, **numbers)
    except CannotCompile as reason:
        asked = 'compile="triton"' if language == "triton" and state.device.type != "cuda" else "compile=True"
        captured = _captured(dynamics, state, f"{asked}: this run", reason, _numbers(dynamics, first_step))
        bar.set_postfix_str("eager" if captured is None else "captured")
        return dynamics, captured
    finally:
        if chosen.minibatches is not None:  # a check draws some
            chosen.minibatches.go_to(first_step)
    bar.set_postfix_str(f"compiled in {program.seconds:.1f} s")
    return chosen, bound


def with_minibatches(dynamics: Dynamics, state: Tensor, first_step: int) -> Dynamics:
    """The dynamics with its minibatches, if it draws any, by the numbers of steps from ``first_step`` on.

    Raises:
        CannotCompile: they don't follow from these.
    """
    if not dynamics.is_stateful:
        return dynamics
    if not draws_minibatches_alone(dynamics.sde):
        raise CannotCompile("the potential changes with every gradient, and not as one that draws minibatches")
    row = state[:1] if state.ndim > 1 else state
    problem = problem_for(dynamics, row)
    normals = [row.new_zeros(*row.shape[:-1], problem.substeps * draw.components) for draw in problem.noise]
    try:
        with torch.no_grad():
            step = partial(problem.step, dynamics.pace.step_size, row, *normals, dynamics.pace.start(first_step))
            return replace(dynamics, minibatches=Minibatches.of(dynamics.sde, step, first_step))
    except Exception as error:  # the user's own, as a rule, which the run will raise again
        raise CannotCompile(f"a step of one particle fails: {error}") from error


def _captured(
    dynamics: Dynamics, state: Tensor, run: str, reason: CannotCompile, numbers: dict[str, Any]
) -> CapturedSteps | None:
    """What is no single kernel: captured where that can be, with a warning of either."""
    found, text = None, f"{run} is eager, as {reason}"
    if state.device.type == "cuda" and not dynamics.is_stateful and not dynamics.pace.lengths:
        try:
            found = captured_steps(problem_for(dynamics, state), dynamics, **numbers)
            text = f"{run} replays captured steps and is no single kernel, as {reason}"
        except CannotCompile as another:
            text = f"{text}; and {another}"
    warnings.warn(text, RuntimeWarning, stacklevel=4)
    return found


def steps_by_torch(dynamics: Dynamics, state: Tensor, first_step: int, bar: Any) -> TorchSteps | None:
    """The same steps by torch.compile, or None after a warning that says why not."""
    bar.set_postfix_str("compiling")
    try:
        if dynamics.is_stateful:
            raise CannotCompile("the potential changes with every gradient, as one that draws minibatches does")
        steps = torch_steps(problem_for(dynamics, state), dynamics, **_numbers(dynamics, first_step))
    except CannotCompile as reason:
        warnings.warn(f'compile="torch": this run is eager, as {reason}', RuntimeWarning, stacklevel=3)
        steps = None
    bar.set_postfix_str("eager" if steps is None else "compiled")
    return steps


def problem_for(dynamics: Dynamics, state: Tensor, language: str = "c", *, exact_time: bool = False) -> Problem:
    """The step as a function of normals, which knows nothing of where they come from; with ``exact_time`` it gets the
    time of an SDE that needs it so in float64, whatever the states have."""
    scheme, sde, minibatches = dynamics.scheme, dynamics.sde, dynamics.minibatches
    levy_area = MrongowiusRoesslerLevyArea() if dynamics.levy_area is None else dynamics.levy_area
    needs, substeps = scheme.required(sde), scheme.substeps
    brownian = dynamics.brownian_dim
    pace, exact = dynamics.pace, exact_time and sde.needs_exact_time and state.dtype != torch.float64

    def noise_of(length: float) -> tuple[Draw, ...]:
        short = length / substeps
        return draws(needs, short, brownian) + levy_draws(needs, short, brownian, levy_area)

    drawn = noise_of(pace.step_size)

    def increment(dt: float, normals: Sequence[Tensor]) -> Increment:
        given = list(zip(drawn, normals, strict=True))
        series = GivenNormals({draw.stream: tensor for draw, tensor in given if not draw.part})
        areas = partial(levy_area.sample_piece, dt=dt, normals=series) if Needs.LEVY_AREA in needs else None
        return assemble(dt, {draw.part: tensor for draw, tensor in given if draw.part}, areas)

    def step(dt: float, x: Tensor, *arguments: Any) -> Tensor:
        if exact:
            *normals, _, t, length = arguments
            with LengthsAs(length, t):
                return of_normals(dt, x, *normals, t)
        if minibatches is None:
            return of_normals(dt, x, *arguments)
        with minibatches.given(arguments[len(drawn) + 1 :]):
            return of_normals(dt, x, *arguments[: len(drawn) + 1])

    def of_normals(dt: float, x: Tensor, *arguments: Any) -> Tensor:
        *normals, t = arguments
        moved = scheme.step(sde, t, x, of_substeps(dt, normals))
        check_state(scheme, moved, x)
        return moved

    def of_substeps(dt: float, normals: Sequence[Tensor]) -> Increment:
        if substeps == 1:
            return increment(dt, normals)
        parts = zip(*(tensor.chunk(substeps, -1) for tensor in normals), strict=True)
        return Increment.beside([increment(dt / substeps, part) for part in parts])

    places: tuple[Places, ...] = ()
    if minibatches is not None:
        shapes = enumerate(minibatches.shapes)
        places = tuple(Places(shape, partial(minibatches.indices, number)) for number, shape in shapes)
    if exact:
        if places:
            raise CannotCompile("it needs its time in float64, and draws minibatches")
        places = tuple(Places((), partial(_in_float64, of), torch.float64) for of in (pace.start, pace.length))
    uneven = Uneven(pace.starts, pace.lengths, noise_of) if pace.lengths else None
    parts = (sde, scheme, levy_area) if Needs.LEVY_AREA in needs else (sde, scheme)
    return Problem(step, drawn, pace.step_size, state, parts, substeps, places, language, uneven)


def _in_float64(of: Callable[[int], float], first: int, last: int) -> Tensor:
    return torch.tensor([of(step) for step in range(first, last)], dtype=torch.float64)


def _step_to_check(dynamics: Dynamics, steps: range) -> int:
    """Where two steps may be made to look at them: within the run, if the SDE or the lengths of steps end with it."""
    if not dynamics.pace.lengths and not dynamics.sde.needs_exact_time:
        return steps.start
    if steps.stop < 2:
        raise CannotCompile("it is a single step")
    return min(steps.start, steps.stop - 2)


def problem_of(
    sde: BaseSDE, x0: Tensor, *, integrator: Integrator | str, step_size: float, levy_area: LevyArea | None = None
) -> Problem:
    """What ``sample`` would compile, of particles x0 (..., dim)."""
    sde = as_sde(sde)
    check_levy_area(levy_area)
    scheme = check_problem(sde, x0, integrator, step_size)
    dynamics = Dynamics(sde, scheme, Pace(float(step_size)), 0, 0, levy_area, sde.brownian_dim(x0))
    with draws_kept(sde):
        state = dynamics.start(Blocks(x0, None, divisible=False), x0, 0)
    return problem_for(with_minibatches(dynamics, state, 0), state, exact_time=True)


def _numbers(dynamics: Dynamics, first_step: int) -> dict[str, int]:
    return {"seed": dynamics.seed, "first_particle": dynamics.first_particle, "first_step": first_step}
