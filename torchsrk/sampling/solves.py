"""``integrate``: the solution of an SDE at given times, with gradients."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..brownian import BrownianPath, FreshNoise, LevyArea, start_normals
from ..compiled import CannotCompile
from ..integrators import Integrator
from ..integrators.first_step import checked_rows, first_step
from ..potentials.base import is_stateful
from ..recompute import recomputed
from ..sde import BaseSDE, as_sde
from ..sde.probe import check_reached
from ..solving import Solve
from ..transforms import outside_transforms, spread
from .causes import tell_cause
from .checks import check_integer, check_levy_area, check_problem, doubt_at_start
from .compiling import problem_for
from .dynamics import Dynamics, increment_of
from .failures import NonFiniteStateError, is_finite, locate_failure
from .plans import Pace, Plan, steps_between, steps_of
from .runs import CHECK_EVERY
from .surroundings import full_precision, progress_bar


def integrate(
    sde: BaseSDE,
    x0: Tensor,
    ts: Tensor | Sequence[float],
    *,
    integrator: Integrator | str,
    step_size: float | None = None,
    step_sizes: Tensor | Sequence[float] | None = None,
    seed: int | None = None,
    path: BrownianPath | None = None,
    levy_area: LevyArea | None = None,
    first_particle: int = 0,
    partial_step: bool = False,
    recompute: bool = False,
    check_every: int = CHECK_EVERY,
    progress: bool = False,
    compile: bool = False,
) -> Tensor:
    """Solve the SDE from x0 at ts[0] and return its positions at ts, (times, ..., dim); differentiable.

    Gradients reach x0 and the SDE's parameters. Between two times of ts the steps all have length ``step_size``, and
    there is a whole number of them; with ``partial_step=True`` the last one may be shorter. Everything runs in x0's
    precision, with autocast off: a network that is to run in a lower one opens an autocast region of its own, and
    returns x's dtype. Under ``torch.func.vmap`` all entries see the same noise: particles are numbered within an entry.

    Args:
        sde: an SDE, or an object written for torchsde, with ``f``, ``g``, ``noise_type`` and ``sde_type = "ito"``.
        x0: the positions at ts[0], (..., dim); the leading dimensions are particles.
        ts: increasing times, the first that of x0; the same for all particles.
        integrator: a scheme or its name: "srk-id" for any SDE, "sra1" where the noise is additive.
        step_size: the length of steps; or give ``step_sizes``.
        step_sizes: the length of every step from ts[0] to ts[-1]: every time of ts ends one.
        seed: of fresh noise; or give ``path``.
        path: a BrownianPath, to couple solutions with one another.
        partial_step: let the last step before a time of ts be shorter.
        first_particle: the number of the first particle, when x0 is a part of a larger batch: then its fresh noise is
            that of these particles of the batch, and gradients of all parts sum up to those of the whole.
        recompute: keep about √steps states for the backward pass and recompute the others (the noise is drawn again,
            not stored): memory grows like the square root of the steps, for one more forward pass. The result can be
            differentiated once, and not under torch.func; the SDE may change nothing in place.
        check_every: steps between checks that the state is finite; with ``recompute`` about √steps.
        levy_area, progress: as for ``sample``.
        compile: run all steps, forward and back, as C loops (see torchsrk/compiled): states and gradients are those of
            a plain solve to rounding, and the same bits for any number of threads. For fresh noise, steps of one length
            and x0 (particles, dim) on the CPU, with a drift and a diffusion that treat every particle on its own; the
            result can be differentiated once, and states are all that is kept for it. Compiling takes some seconds,
            once for an SDE: its parameters may change. What can't be compiled is solved plainly, after a warning.
    """
    check_integer("check_every", check_every, 1)
    check_integer("first_particle", first_particle, 0)
    check_levy_area(levy_area)
    if compile not in (True, False):
        raise ValueError(f"compile is True or False, of integrate; got {compile!r}: 'auto' and others are of sample")
    sde, pace = as_sde(sde), Pace.of(step_size, step_sizes)
    scheme = check_problem(sde, x0, integrator, pace.step_size)
    noise = _noise_source(sde, x0, seed, path, levy_area, first_particle)
    if recompute and is_stateful(sde):
        raise ValueError(
            "recompute=True makes every step twice, and this SDE's potential would draw other minibatches the second "
            "time: use recompute=False"
        )
    plan = steps_of(ts, pace.lengths) if pace.lengths else steps_between(ts, pace.step_size, partial_step)
    if scheme.equal_steps and len({dt for _, dt, _ in plan}) > 1:
        raise ValueError(
            f"{scheme} makes steps of one length: take a step size that divides the times, not partial_step"
        )
    solver = _Solver(sde, scheme, noise, plan, x0)
    solver.check_path()
    start, end = plan[0][0], plan[-1][0] + plan[-1][1]
    sde.check_end(end)
    for doubt in (None if start else doubt_at_start(sde, x0), sde.doubt_at_end(end)):
        if doubt is not None:
            warnings.warn(doubt, RuntimeWarning, stacklevel=2)
    with full_precision(x0):
        x = scheme.init(sde, plan[0][0], spread(x0), pace.step_size, _start_normals_of(noise))
        checked_rows(scheme, "init", x, x0)
    segment = math.ceil(math.sqrt(len(plan))) if recompute else check_every
    if compile and (solve := _compiled_solve(solver, x)) is not None:
        reported = solve(x, solver.locate, segment if recompute else len(plan))
        numbers = [number + 1 for number, (_, _, is_output) in enumerate(plan) if is_output]
        with full_precision(x0):
            states = [solver.position(state, number) for state, number in zip(reported, numbers, strict=True)]
    else:
        with progress_bar(len(plan), progress, scheme, pace.step_size) as bar:
            states = solver.solved(x, segment, recompute, bar)
    check_reached(sde, states[-1])
    return _differentiable(torch.stack([x0, *states]), scheme)


@dataclass(frozen=True)
class _Solver:
    """The steps of a plan."""

    sde: BaseSDE
    scheme: Integrator
    noise: FreshNoise | BrownianPath
    plan: Plan
    x0: Tensor

    def check_path(self) -> None:
        (t, last, _), noise = self.plan[-1], self.noise
        end = t + last
        if self.scheme.position_needs and isinstance(noise, BrownianPath) and end + last > noise.t1 + 1e-6 * last:
            raise ValueError(
                f"{self.scheme} reports positions by the noise of one more step: give a path up to {end + last:.9g} or "
                f"further; this one ends at {noise.t1:.9g}"
            )

    def position(self, state: Tensor, number: int) -> Tensor:
        """What is reported of the state before the step of that number."""
        plan, needs, increment = self.plan, self.scheme.position_needs, None
        t, dt, _ = plan[number] if number < len(plan) else (plan[-1][0] + plan[-1][1], plan[-1][1], True)
        if needs:
            with outside_transforms():
                increment = increment_of(self.noise, self.scheme, number, t, dt, needs)
        return self.scheme.position(self.sde, t, state, increment)

    def advance(self, x: Tensor, first: int, last: int) -> tuple[Tensor, ...]:
        """The positions after the steps of plan[first:last] that end at a time that is asked for, then the last
        state."""
        kept, needs = [], self.scheme.required(self.sde)
        with full_precision(x):  # here, as a backward pass may call it from elsewhere
            for number in range(first, last):
                t, dt, is_output = self.plan[number]
                with outside_transforms():
                    increment = increment_of(self.noise, self.scheme, number, t, dt, needs)
                step = self.scheme.step if number else partial(first_step, self.scheme)
                x = step(self.sde, t, x, increment)
                if is_output:
                    kept.append(self.position(x, number + 1))
        return (*kept, x)

    def solved(self, x: Tensor, segment: int, recompute: bool, bar: Any) -> list[Tensor]:
        """The positions at the times that are asked for, after the first."""
        own = {**dict(self.sde.named_parameters()), **dict(self.sde.named_buffers())}
        states: list[Tensor] = []
        for start in range(0, len(self.plan), segment):
            end = min(start + segment, len(self.plan))
            piece = partial(self.advance, first=start, last=end)
            kept = recomputed(piece, x, own) if recompute else piece(x)
            if not is_finite(kept[-1]):
                raise self.locate(x.detach(), kept[-1], start, end)
            states.extend(kept[:-1])
            x = kept[-1]
            bar.update(end - start)
        return states

    def locate(self, x: Tensor, failed: Tensor, first: int, last: int) -> NonFiniteStateError:
        def advance(source: Tensor, out: Tensor, first: int, last: int) -> None:
            out.copy_(self.advance(source, first, last)[-1])

        with torch.no_grad():
            failure = locate_failure(advance, x, failed.detach(), first, last)
        with full_precision(x):
            first = self.noise.first_particle if isinstance(self.noise, FreshNoise) else 0
            t = self.plan[failure.last_finite_step][0]
            tell_cause(failure, self.sde, self.x0, t, first_step=0, first_particle=first)
        return failure


def _differentiable(positions: Tensor, scheme: Integrator) -> Tensor:
    """The positions, or an error if their gradients would be wrong."""
    if positions.requires_grad and not scheme.differentiable:
        raise ValueError(
            f"{scheme} accepts and rejects, which has no derivative: gradients through it would be wrong. Solve under "
            "torch.no_grad(), or take another scheme"
        )
    return positions


def _compiled_solve(solver: _Solver, x: Tensor) -> Solve | None:
    """The solve compiled, or None after a warning that says why not."""
    sde, scheme, noise = solver.sde, solver.scheme, solver.noise
    lengths = {dt for _, dt, _ in solver.plan}
    try:
        if is_stateful(sde):
            raise CannotCompile("the potential changes with every gradient, as one that draws minibatches does")
        if isinstance(noise, BrownianPath):
            raise CannotCompile("its noise comes from a path")
        if len(lengths) > 1:
            raise CannotCompile("its steps have more than one length")
        if not scheme.differentiable:
            raise CannotCompile(f"{scheme} accepts and rejects, which has no derivative")
        first = noise.first_particle
        dynamics = Dynamics(sde, scheme, Pace(lengths.pop()), noise.seed, first, noise.levy_area, noise.shape[-1])
        with full_precision(x):
            problem = problem_for(dynamics, x)
            return Solve.checked(problem, solver.plan, solver.advance, seed=noise.seed, first_particle=first)
    except CannotCompile as reason:
        warnings.warn(f"compile=True: this solve is plain, as {reason}", RuntimeWarning, stacklevel=3)
        return None


def _start_normals_of(noise: FreshNoise | BrownianPath) -> Callable[[Tensor], Tensor]:
    """Normals for a start, the same for all entries of a vmap, as the noise is."""
    first_particle = noise.first_particle if isinstance(noise, FreshNoise) else 0
    drawn = start_normals(noise.seed, first_particle=first_particle)

    def normals(like: Tensor) -> Tensor:
        with outside_transforms():
            return drawn(torch.empty(like.shape, dtype=like.dtype, device=like.device))

    return normals


def _noise_source(
    sde: BaseSDE,
    x0: Tensor,
    seed: int | None,
    path: BrownianPath | None,
    levy_area: LevyArea | None,
    first_particle: int,
) -> FreshNoise | BrownianPath:
    """Fresh noise from a seed, or a path that fits."""
    shape = (*x0.shape[:-1], sde.brownian_dim(x0))
    if seed is not None and path is None:
        place: dict[str, Any] = {"dtype": x0.dtype, "device": x0.device, "first_particle": first_particle}
        return FreshNoise(seed, shape, levy_area=levy_area, **place)
    if path is None or seed is not None:
        raise ValueError("give exactly one of seed= (fresh noise) and path= (a BrownianPath)")
    if first_particle:
        raise ValueError(f"first_particle={first_particle} is for fresh noise: a path has that of its own particles")
    if path.shape != shape or path.dtype != x0.dtype or path.device.type != x0.device.type:
        raise ValueError(
            f"the path has shape {path.shape} in {path.dtype} on {path.device}; this SDE from this x0 needs {shape} in "
            f"{x0.dtype} on {x0.device}: make it as BrownianPath({shape}, dtype={x0.dtype}, device='{x0.device}', ...)"
        )
    return path
