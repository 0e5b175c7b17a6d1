"""The loop: ``sample`` draws from what an SDE converges to, ``integrate`` solves it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from heapq import merge
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor

from .blocks import Blocks, torch_threads
from .brownian import BrownianPath, FreshNoise, Increment, LevyArea, MrongowiusRoesslerLevyArea, Needs, start_normals
from .brownian.draws import GivenNormals, assemble, draws, levy_draws
from .brownian.noise import check_range
from .compiled import BoundSteps, CannotCompile, Problem, TorchSteps, checked_steps, compiling_pays, torch_steps
from .integrators import Integrator, integrator_named
from .potentials.base import is_stateful
from .recompute import recomputed
from .sde import BaseSDE
from .sde.probe import check_structure
from .solving import Solve, Steps
from .transforms import below_transforms, outside_transforms, spread

Callback = Callable[[int, Tensor], None]
Advance = Callable[[Tensor, Tensor, int, int], object]  # from states, into states, from step, to step

# Steps between checks. A compiled run of few particles is so fast that checking would take most of its time: it may
# make more, up to so many numbers.
_CHECK_EVERY, _CHECK_AT_MOST_EVERY, _CHECKED_NUMBERS = 16, 4096, 1 << 24


class NonFiniteStateError(RuntimeError):
    """The state became infinite or NaN.

    Attributes:
        step: the first step at which it was seen.
        count: how many particles.
        last_finite: the last state known to be finite, and ``last_finite_step`` its step; ``sample(state=...)`` takes
            it.
    """

    def __init__(self, step: int, state: Tensor, last_finite: Tensor, last_finite_step: int) -> None:
        self.step = step
        state, last_finite = below_transforms(state), below_transforms(last_finite)
        self.count = int((~state.isfinite()).any(-1).sum())
        self.last_finite, self.last_finite_step = last_finite, last_finite_step
        particles = math.prod(state.shape[:-1])
        super().__init__(
            f"{self.count} of {particles} particles are not finite at step {step}; step {last_finite_step} was still "
            "finite (its state is this error's last_finite). Usually the step size is too large for this SDE: take a "
            "smaller one."
        )


@dataclass(frozen=True)
class Run:
    """What ``sample`` gives.

    Attributes:
        final: the last positions, (..., dim).
        trajectory: the kept positions, (kept, ..., dim), if thin was given.
        state: the last state, (..., width), of which the position is what is reported. Most schemes have no other.
        step: the number of the next step: ``sample(..., x0=run.final, state=run.state, first_step=run.step)`` goes on
            as if never stopped.
        statistics: what the scheme tells about the run: "acceptance", of those that accept or reject.
    """

    final: Tensor
    trajectory: Tensor | None
    state: Tensor
    step: int
    statistics: dict[str, float] = field(default_factory=dict)


def sample(
    sde: BaseSDE,
    x0: Tensor,
    *,
    integrator: Integrator | str,
    step_size: float,
    num_steps: int,
    seed: int,
    state: Tensor | None = None,
    burn_in: int = 0,
    thin: int | None = None,
    first_step: int = 0,
    first_particle: int = 0,
    levy_area: LevyArea | None = None,
    callbacks: Iterable[Callback] = (),
    check_every: int | None = None,
    block_size: int | None = None,
    progress: bool = False,
    compile: bool | Literal["auto", "torch"] = False,
) -> Run:
    """Run particles through ``burn_in + num_steps`` steps, without a graph and in memory that doesn't grow with them.

    The noise of a particle at a step depends on (seed, particle, step) alone: not on the batch, on threads, on thinning
    or on where a run was cut. On the CPU particles run in blocks, one thread each, so that the states too are the same
    bits for any number of threads: drift and diffusion must treat every particle on its own. Everything runs in x0's
    precision, with autocast off.

    Args:
        x0: the initial positions, (..., dim); the leading dimensions are particles, numbered in row-major order.
        integrator: a scheme or its name: "em", "srk-ld", "srk-id" and more.
        state: the state of an earlier run of this scheme, whose final positions x0 are, to go on from.
        burn_in: steps made first, whose positions are not kept.
        thin: keep the positions of every ``thin``-th step after the burn-in; None keeps the last alone.
        first_step: the number of the first step, to go on from an earlier run.
        first_particle: the number of the first particle, when x0 is a part of a larger batch.
        levy_area: how Lévy areas are drawn, for schemes that need them; by default Mrongowius-Rößler.
        callbacks: called as callback(step, x) after every step, with a copy of the positions.
        check_every: steps between checks that the state is finite, between which blocks run on their own: 16 by
            default, and more for few particles when compiled. A failure is traced back to its step whatever this is.
        block_size: particles (rows of x0) in a block, instead of a default from the dimension. A network so dear that
            few particles keep all cores busy wants ``block_size=len(x0)``: one block, threaded by torch.
        progress: show a progress bar.
        compile: run scheme, gradient and noise as one C loop (see torchsrk/compiled). The states are those of an eager
            run to rounding, and the same bits for any number of threads and any batch of more than four. Compiling
            takes about a second, and a fraction of it when found in the cache on disk; "auto" compiles if this run is
            long enough to gain by it. "torch" leaves it to torch.compile, for other devices and for what has no C form:
            all particles at once, with the same noise; it takes torch many seconds, for every step size and number of
            particles anew, and bits may depend on the number of threads. What can't be compiled runs eagerly, after a
            warning that says why.

    Raises:
        NonFiniteStateError: the state became infinite or NaN.
    """
    for name, value, least in (
        ("num_steps", num_steps, 1),
        ("burn_in", burn_in, 0),
        ("thin", 1 if thin is None else thin, 1),
        ("first_step", first_step, 0),
        ("first_particle", first_particle, 0),
        ("check_every", 1 if check_every is None else check_every, 1),
        ("block_size", 1 if block_size is None else block_size, 1),
    ):
        _check_integer(name, value, least)
    scheme = _check_problem(sde, x0, integrator, step_size)
    steps_of_noise = (first_step * scheme.substeps, (burn_in + num_steps) * scheme.substeps)
    check_range(seed, *steps_of_noise, first_particle, math.prod(x0.shape[:-1]))
    if compile not in (True, False, "auto", "torch"):
        raise ValueError(f'compile is True, False, "auto" or "torch"; got {compile!r}')
    chain = _Chain(sde, scheme, float(step_size), seed, first_particle, levy_area, sde.brownian_dim(x0))
    callbacks = tuple(callbacks)

    blocks = Blocks(x0, block_size, divisible=not is_stateful(sde))
    kept_from, end = first_step + burn_in, first_step + burn_in + num_steps
    keep_at = range(0) if thin is None else range(kept_from + thin, end + 1, thin)
    threads = torch.get_num_threads()
    bar_of_steps = _progress_bar(burn_in + num_steps, progress, scheme, step_size)
    with _full_precision(x0), torch.no_grad(), blocks.threads(), bar_of_steps as bar:
        now = chain.start(blocks, x0, first_step) if state is None else chain.given(state, x0)
        before, counted = torch.empty_like(now), chain.tallies(now)
        trajectory = None if thin is None else x0.new_empty(num_steps // thin, *x0.shape)
        advance: Advance = partial(chain.advance_blocks, blocks)
        compiled: BoundSteps | TorchSteps | None = None
        gradients = scheme.gradients_per_step * (burn_in + num_steps)
        if compile == "torch":
            compiled = chain.compiled_by_torch(now, first_step, bar)
            advance = advance if compiled is None else partial(_on_threads, compiled.advance, threads)
        elif compile is True or (compile == "auto" and compiling_pays(gradients, now.numel())):
            compiled = chain.compiled(now, blocks, first_step, threads, bar)
            advance = advance if compiled is None else compiled.advance
            check_every = check_every or max(_CHECK_EVERY, min(_CHECK_AT_MOST_EVERY, _CHECKED_NUMBERS // now.numel()))
        look_at = range(first_step, end, 1 if callbacks else check_every or _CHECK_EVERY)
        for start, stop in pairwise(merge(look_at, keep_at, (end,))):
            if start == stop:
                continue
            now, before = before, now
            advance(before, now, start, stop)
            if not _is_finite(now):
                failure = _locate_failure(advance, before, now, start, stop)
                if compiled is not None:  # the SDE's own code may have an error to raise there
                    chain.advance_blocks(blocks, failure.last_finite, now, failure.step - 1, failure.step)
                raise failure
            bar.update(stop - start)
            for callback in callbacks:
                callback(stop, chain.positions(blocks, now, stop).clone())
            if trajectory is not None and stop in keep_at:
                trajectory[keep_at.index(stop)] = chain.positions(blocks, now, stop)
        per_step = {name: (count - counted[name]) / (burn_in + num_steps) for name, count in chain.tallies(now).items()}
        return Run(chain.positions(blocks, now, end), trajectory, now, end, per_step)


def problem_of(
    sde: BaseSDE, x0: Tensor, *, integrator: Integrator | str, step_size: float, levy_area: LevyArea | None = None
) -> Problem:
    """What ``sample`` would compile, of particles x0 (..., dim)."""
    scheme = _check_problem(sde, x0, integrator, step_size)
    chain = _Chain(sde, scheme, float(step_size), 0, 0, levy_area, sde.brownian_dim(x0))
    return chain.problem(chain.start(Blocks(x0, None, divisible=False), x0, 0))


@dataclass(frozen=True)
class _Chain:
    """A scheme on an SDE with its noise: advances any rows of the state through any steps."""

    sde: BaseSDE
    scheme: Integrator
    step_size: float
    seed: int
    first_particle: int
    levy_area: LevyArea | None
    brownian_dim: int

    def start(self, blocks: Blocks, x0: Tensor, first_step: int) -> Tensor:
        """The state of particles at x0, a new tensor."""

        def begin(x: Tensor, row: int) -> Tensor:
            normals = start_normals(self.seed, first_step * self.scheme.substeps, self._particle(x, row))
            with torch.no_grad():
                return self.scheme.init(self.sde, first_step * self.step_size, x, self.step_size, normals)

        state = blocks.map(begin, x0.detach())
        if not _is_finite(state):
            bad = int((~state.isfinite()).any(-1).sum())
            raise ValueError(
                f"{self.scheme} can't start from x0: an energy or a gradient of {bad} of its particles is infinite or "
                "NaN. Start them where the density is finite"
            )
        return state

    def given(self, state: Tensor, x0: Tensor) -> Tensor:
        """A copy of the state of an earlier run, if this scheme can go on from it."""
        if not isinstance(state, Tensor) or state.dtype != x0.dtype or state.shape[:-1] != x0.shape[:-1]:
            given = f"{state.dtype} {tuple(state.shape)}" if isinstance(state, Tensor) else type(state).__name__
            raise ValueError(
                f"state is that of an earlier run, {x0.dtype} {(*x0.shape[:-1], 'width')} for this x0; got {given}"
            )
        if not is_stateful(self.sde):  # its gradients are counted: none may be made to look
            row = x0.detach()[:1] if x0.ndim > 1 else x0.detach()
            width = self.scheme.init(self.sde, 0.0, row, self.step_size, torch.zeros_like).shape[-1]
            if state.shape[-1] != width:
                raise ValueError(
                    f"{self.scheme} has states of width {width} here; got one of shape {tuple(state.shape)}: go on "
                    "with the scheme it is from, or from its positions, x0 alone"
                )
        if not _is_finite(state):
            raise ValueError(f"state has {int((~state.isfinite()).sum())} entries that are infinite or NaN")
        return state.detach().clone(memory_format=torch.contiguous_format)

    def positions(self, blocks: Blocks, state: Tensor, step: int) -> Tensor:
        """What is reported of a state: itself, if there is no more to it."""
        needs, t = self.scheme.position_needs, step * self.step_size

        def position(x: Tensor, row: int) -> Tensor:
            with torch.no_grad():
                increment = self._increment(self._noise(x, row), step, needs) if needs else None
                return self.scheme.position(self.sde, t, x, increment)

        if not needs and self.scheme.position(self.sde, t, state, None) is state:
            return state
        return blocks.map(position, state)

    def tallies(self, state: Tensor) -> dict[str, float]:
        """What the scheme has counted up to a state, on average over particles."""
        return {name: float(count.double().mean()) for name, count in self.scheme.tallies(state).items()}

    def advance(self, x: Tensor, row: int, *, first: int, last: int) -> Tensor:
        """Rows of the state from ``row`` on, from step ``first`` to step ``last``."""
        noise = self._noise(x, row, overwrite=True)
        needs = self.scheme.required(self.sde)
        with torch.no_grad():  # a thread of the pool has a grad mode of its own
            for step in range(first, last):
                increment = self._increment(noise, step, needs)
                x = noise.apart(self.scheme.step(self.sde, step * self.step_size, x, increment))
        return x

    def advance_blocks(self, blocks: Blocks, source: Tensor, out: Tensor, first: int, last: int) -> None:
        """Write to ``out`` the states ``source`` of step ``first``, taken to step ``last``."""
        blocks.run(partial(self.advance, first=first, last=last), source, out)

    def advance_copies(self, x: Tensor, spans: Sequence[range], *, first: int, last: int) -> Tensor:
        """Copies (copies, rows, dim) of the rows in ``spans``, each with the noise of its row."""
        needs, copies, rows = self.scheme.required(self.sde), len(x), x.flatten(0, 1)
        noises = [self._noise(rows[: len(span)], span.start) for span in spans]
        with torch.no_grad():
            for step in range(first, last):
                increments = [self._increment(noise, step, needs) for noise in noises]
                joined = Increment.joined(increments, copies)
                rows = self.scheme.step(self.sde, step * self.step_size, rows, joined)
        return rows.view(x.shape)

    def compiled(self, state: Tensor, blocks: Blocks, first_step: int, threads: int, bar: Any) -> BoundSteps | None:
        """The same steps compiled, or None after a warning that says why not."""
        bar.set_postfix_str("compiling")
        numbers = {"seed": self.seed, "first_particle": self.first_particle, "first_step": first_step}
        try:
            if is_stateful(self.sde):
                raise CannotCompile("the potential changes with every gradient, as one that draws minibatches does")
            bound, steps = checked_steps(self.problem(state), self, blocks.spans, threads=threads, **numbers)
        except CannotCompile as reason:
            warnings.warn(f"compile=True: this run is eager, as {reason}", RuntimeWarning, stacklevel=3)
            bar.set_postfix_str("eager")
            return None
        bar.set_postfix_str(f"compiled in {steps.seconds:.1f} s")
        return bound

    def compiled_by_torch(self, state: Tensor, first_step: int, bar: Any) -> TorchSteps | None:
        """The same steps by torch.compile, or None after a warning that says why not."""
        bar.set_postfix_str("compiling")
        numbers = {"seed": self.seed, "first_particle": self.first_particle, "first_step": first_step}
        try:
            if is_stateful(self.sde):
                raise CannotCompile("the potential changes with every gradient, as one that draws minibatches does")
            steps = torch_steps(self.problem(state), self, **numbers)
        except CannotCompile as reason:
            warnings.warn(f'compile="torch": this run is eager, as {reason}', RuntimeWarning, stacklevel=3)
            steps = None
        bar.set_postfix_str("eager" if steps is None else "compiled")
        return steps

    def problem(self, state: Tensor) -> Problem:
        """The step as a function of normals, which knows nothing of where they come from."""
        levy_area = MrongowiusRoesslerLevyArea() if self.levy_area is None else self.levy_area
        needs, substeps = self.scheme.required(self.sde), self.scheme.substeps
        shortest, brownian = self.step_size / substeps, self.brownian_dim
        drawn = draws(needs, shortest, brownian) + levy_draws(needs, shortest, brownian, levy_area)

        def increment(dt: float, normals: Sequence[Tensor]) -> Increment:
            given = list(zip(drawn, normals, strict=True))
            series = GivenNormals({draw.stream: tensor for draw, tensor in given if not draw.part})
            areas = partial(levy_area.sample_piece, dt=dt, normals=series) if Needs.LEVY_AREA in needs else None
            return assemble(dt, {draw.part: tensor for draw, tensor in given if draw.part}, areas)

        def step(dt: float, x: Tensor, *arguments: Any) -> Tensor:
            *normals, t = arguments
            if substeps == 1:
                return self.scheme.step(self.sde, t, x, increment(dt, normals))
            parts = zip(*(tensor.chunk(substeps, -1) for tensor in normals), strict=True)
            together = Increment.beside([increment(dt / substeps, part) for part in parts])
            return self.scheme.step(self.sde, t, x, together)

        return Problem(step, drawn, self.step_size, state, (self.sde, self.scheme, levy_area), substeps)

    def _increment(self, noise: FreshNoise, step: int, needs: Needs) -> Increment:
        return _increment(noise, self.scheme, step, step * self.step_size, self.step_size, needs)

    def _noise(self, x: Tensor, row: int, overwrite: bool = False) -> FreshNoise:
        return FreshNoise(
            self.seed,
            (*x.shape[:-1], self.brownian_dim),
            dtype=x.dtype,
            device=x.device,
            first_particle=self._particle(x, row),
            levy_area=self.levy_area,
            overwrite=overwrite and self.scheme.substeps == 1,
        )

    def _particle(self, x: Tensor, row: int) -> int:
        """The number of the first particle of rows x from ``row`` on."""
        return self.first_particle + row * math.prod(x.shape[1:-1])


def _on_threads(advance: Advance, threads: int, *args: Any) -> None:
    """Steps of all particles at once, for torch to share out."""
    with torch_threads(threads):
        advance(*args)


def _increment(
    noise: FreshNoise | BrownianPath, scheme: Integrator, number: int, t: float, dt: float, needs: Needs
) -> Increment:
    """What a scheme reads of the noise for its step of that number."""
    if scheme.substeps == 1:
        return noise.increment(number, t, dt, needs)
    count, short = scheme.substeps, dt / scheme.substeps
    return Increment.beside(
        [noise.increment(number * count + part, t + part * short, short, needs) for part in range(count)]
    )


def _locate_failure(advance: Advance, previous: Tensor, state: Tensor, first: int, last: int) -> NonFiniteStateError:
    """The error for a state that was finite at step ``first`` and is not at ``last``.

    The steps between are made again one by one: the noise is the same, so the failure is too.
    """
    good = previous
    for step in range(first, last):
        bad = torch.empty_like(good)
        advance(good, bad, step, step + 1)
        if not _is_finite(bad):
            return NonFiniteStateError(step + 1, bad, good, step)
        good = bad
    return NonFiniteStateError(last, state, previous, first)  # a stochastic gradient need not fail twice


def integrate(
    sde: BaseSDE,
    x0: Tensor,
    ts: Tensor | Sequence[float],
    *,
    integrator: Integrator | str,
    step_size: float,
    seed: int | None = None,
    path: BrownianPath | None = None,
    levy_area: LevyArea | None = None,
    partial_step: bool = False,
    recompute: bool = False,
    check_every: int = _CHECK_EVERY,
    progress: bool = False,
    compile: bool = False,
) -> Tensor:
    """Solve the SDE from x0 at ts[0] and return its positions at ts, (times, ..., dim); differentiable.

    Gradients reach x0 and the SDE's parameters. Between two times of ts the steps all have length ``step_size``, and
    there is a whole number of them; with ``partial_step=True`` the last one may be shorter. Everything runs in x0's
    precision, with autocast off: a network that is to run in a lower one opens an autocast region of its own, and
    returns x's dtype. Under ``torch.func.vmap`` all entries see the same noise: particles are numbered within an entry.

    Args:
        seed: of fresh noise; or
        path: a BrownianPath, to couple solutions with one another. Give exactly one of the two.
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
    _check_integer("check_every", check_every, 1)
    if compile not in (True, False):
        raise ValueError(f"compile is True or False; got {compile!r}")
    scheme = _check_problem(sde, x0, integrator, step_size)
    noise = _noise_source(sde, x0, seed, path, levy_area)
    if recompute and is_stateful(sde):
        raise ValueError(
            "recompute=True makes every step twice, and this SDE's potential would draw other minibatches the second "
            "time: use recompute=False"
        )
    plan = _plan(ts, step_size, partial_step)
    if scheme.equal_steps and len({dt for _, dt, _ in plan}) > 1:
        raise ValueError(
            f"{scheme} makes steps of one length: take a step size that divides the times, not partial_step"
        )
    needs, position_needs = scheme.required(sde), scheme.position_needs
    end, last = plan[-1][0] + plan[-1][1], plan[-1][1]
    if position_needs and path is not None and end + last > path.t1 + 1e-6 * last:
        raise ValueError(
            f"{scheme} reports positions by the noise of one more step: give a path up to {end + last:.9g} or further; "
            f"this one ends at {path.t1:.9g}"
        )
    own = {**dict(sde.named_parameters()), **dict(sde.named_buffers())}

    def position(state: Tensor, number: int) -> Tensor:
        """What is reported of the state before the step of that number."""
        increment = None
        t, dt, _ = plan[number] if number < len(plan) else (plan[-1][0] + plan[-1][1], plan[-1][1], True)
        if position_needs:
            with outside_transforms():
                increment = _increment(noise, scheme, number, t, dt, position_needs)
        return scheme.position(sde, t, state, increment)

    def advance(x: Tensor, first: int, last: int) -> tuple[Tensor, ...]:
        """The positions after the steps of plan[first:last] that end at a time of ts, then the last state."""
        kept = []
        with _full_precision(x):  # here, as a backward pass may call it from elsewhere
            for number in range(first, last):
                t, dt, is_output = plan[number]
                with outside_transforms():
                    increment = _increment(noise, scheme, number, t, dt, needs)
                x = scheme.step(sde, t, x, increment)
                if is_output:
                    kept.append(position(x, number + 1))
        return (*kept, x)

    def locate(x: Tensor, failed: Tensor, first: int, last: int) -> NonFiniteStateError:
        with torch.no_grad():
            return _locate_failure(lambda a, b, i, k: b.copy_(advance(a, i, k)[-1]), x, failed.detach(), first, last)

    normals = _start_normals_of(noise)
    with _full_precision(x0):
        states, x = [x0], scheme.init(sde, plan[0][0], spread(x0), float(step_size), normals)
    segment = math.ceil(math.sqrt(len(plan))) if recompute else check_every
    if compile and (solve := _compiled_solve(sde, scheme, x, plan, noise, advance)) is not None:
        reported = solve(x, locate, segment if recompute else len(plan))
        numbers = [number + 1 for number, (_, _, is_output) in enumerate(plan) if is_output]
        with _full_precision(x0):
            states += [position(state, number) for state, number in zip(reported, numbers, strict=True)]
        return _differentiable(torch.stack(states), scheme)
    with _progress_bar(len(plan), progress, scheme, step_size) as bar:
        for start in range(0, len(plan), segment):
            end = min(start + segment, len(plan))
            piece = partial(advance, first=start, last=end)
            kept = recomputed(piece, x, own) if recompute else piece(x)
            if not _is_finite(kept[-1]):
                raise locate(x.detach(), kept[-1], start, end)
            states.extend(kept[:-1])
            x = kept[-1]
            bar.update(end - start)
    return _differentiable(torch.stack(states), scheme)


def _differentiable(positions: Tensor, scheme: Integrator) -> Tensor:
    """The positions, or an error if their gradients would be wrong."""
    if positions.requires_grad and not scheme.differentiable:
        raise ValueError(
            f"{scheme} accepts and rejects, which has no derivative: gradients through it would be wrong. Solve under "
            "torch.no_grad(), or take another scheme"
        )
    return positions


def _compiled_solve(
    sde: BaseSDE,
    scheme: Integrator,
    x: Tensor,
    plan: list[tuple[float, float, bool]],
    noise: FreshNoise | BrownianPath,
    advance: Steps,
) -> Solve | None:
    """The solve compiled, or None after a warning that says why not."""
    lengths = {dt for _, dt, _ in plan}
    try:
        if is_stateful(sde):
            raise CannotCompile("the potential changes with every gradient, as one that draws minibatches does")
        if isinstance(noise, BrownianPath):
            raise CannotCompile("its noise comes from a path")
        if len(lengths) > 1:
            raise CannotCompile("its steps have more than one length")
        if not scheme.differentiable:
            raise CannotCompile(f"{scheme} accepts and rejects, which has no derivative")
        chain = _Chain(sde, scheme, lengths.pop(), noise.seed, 0, noise.levy_area, noise.shape[-1])
        with _full_precision(x):
            return Solve.checked(chain.problem(x), plan, noise.seed, advance)
    except CannotCompile as reason:
        warnings.warn(f"compile=True: this solve is plain, as {reason}", RuntimeWarning, stacklevel=3)
        return None


def _start_normals_of(noise: FreshNoise | BrownianPath) -> Callable[[Tensor], Tensor]:
    """Normals for a start, the same for all entries of a vmap, as the noise is."""
    drawn = start_normals(noise.seed)

    def normals(like: Tensor) -> Tensor:
        with outside_transforms():
            return drawn(torch.empty(like.shape, dtype=like.dtype, device=like.device))

    return normals


def _noise_source(
    sde: BaseSDE, x0: Tensor, seed: int | None, path: BrownianPath | None, levy_area: LevyArea | None
) -> FreshNoise | BrownianPath:
    """Fresh noise from a seed, or a path that fits."""
    shape = (*x0.shape[:-1], sde.brownian_dim(x0))
    if seed is not None and path is None:
        return FreshNoise(seed, shape, dtype=x0.dtype, device=x0.device, levy_area=levy_area)
    if path is None or seed is not None:
        raise ValueError("give exactly one of seed= (fresh noise) and path= (a BrownianPath)")
    if path.shape != shape or path.dtype != x0.dtype:
        raise ValueError(
            f"the path has shape {path.shape} in {path.dtype}; this SDE from this x0 needs {shape} in {x0.dtype}"
        )
    return path


def _plan(ts: Tensor | Sequence[float], step_size: float, partial_step: bool) -> list[tuple[float, float, bool]]:
    """The steps as (t, dt, whether a time of ts ends it). Counted in integers: times are products, never sums."""
    times = [float(t) for t in ts]
    if len(times) < 2 or any(not a < b for a, b in pairwise(times)):
        raise ValueError(f"ts holds two or more increasing times, the first that of x0; got {times}")
    precision = torch.finfo(ts.dtype if isinstance(ts, Tensor) and ts.is_floating_point() else torch.float64).eps
    plan = []
    for start, end in pairwise(times):
        count = (end - start) / step_size
        # ts may be float32: a step count off by its rounding is not a wish for a sliver of a step.
        slack = min(1e-2, 1e-5 + 4.0 * precision * max(abs(start), abs(end)) / step_size)
        is_whole = round(count) >= 1 and abs(count - round(count)) < slack
        whole = round(count) if is_whole else math.floor(count)
        rest = 0.0 if is_whole else end - start - whole * step_size
        if rest > 0.0 and not partial_step:
            raise ValueError(
                f"[{start}, {end}] is {count:.9g} steps of {step_size}, not a whole number: take step_size="
                f"{(end - start) / math.ceil(count):.9g}, or partial_step=True for a shorter last step"
            )
        plan += [(start + k * step_size, step_size, False) for k in range(whole)]
        if rest > 0.0:
            plan.append((end - rest, rest, False))
        plan[-1] = (*plan[-1][:2], True)
    return plan


def _is_finite(x: Tensor) -> bool:
    x = below_transforms(x)
    # One pass settles the usual case: a sum is finite only if every term is. A finite state may overflow its sum.
    return bool(x.sum().isfinite()) or bool(x.isfinite().all())


@contextmanager
def _full_precision(x: Tensor) -> Iterator[None]:
    """Within: no autocast and no inference mode. Neither reaches the threads that blocks run on, and noise rounded to
    sixteen bits has another law. A network may open an autocast region of its own."""
    with torch.autocast(x.device.type, enabled=False):
        if not torch.is_inference_mode_enabled():
            yield
            return
        with torch.inference_mode(False), torch.no_grad():
            yield


def _progress_bar(total: int, show: bool, scheme: Integrator, step_size: float) -> AbstractContextManager[Any]:
    if not show:
        return nullcontext(_NoBar())
    from tqdm import tqdm

    name = scheme.name or type(scheme).__name__
    return tqdm(total=total, desc=f"{name}, h = {step_size:g}", unit="step", leave=None)


class _NoBar:
    """A progress bar that is not shown."""

    def update(self, steps: int) -> None: ...

    def set_postfix_str(self, text: str) -> None: ...


def check_step_size(step_size: float) -> None:
    """One clear error for what can't be a step size."""
    if isinstance(step_size, bool) or not isinstance(step_size, (int, float)) or not 0.0 < step_size < math.inf:
        raise ValueError(f"step_size is a positive number; got {step_size!r}")


def _check_integer(name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} is an integer, at least {least}; got {value!r}")


def _check_problem(sde: BaseSDE, x0: Tensor, integrator: Integrator | str, step_size: float) -> Integrator:
    """Everything that can be wrong before the first step, each with one error that says the way out."""
    if not isinstance(sde, BaseSDE):
        raise TypeError(
            f"expected an SDE, Langevin or ItoDiffusion; got {type(sde).__name__}. For a potential: "
            "Langevin(potential)."
        )
    scheme = integrator_named(integrator)
    scheme.check(sde)
    if not isinstance(x0, Tensor) or x0.dtype not in (torch.float32, torch.float64):
        given = x0.dtype if isinstance(x0, Tensor) else type(x0).__name__
        raise TypeError(f"x0 is a float32 or float64 tensor (..., dim); got {given}")
    if x0.ndim < 1 or x0.numel() == 0:
        raise ValueError(f"x0 is (..., dim) with at least one particle; got shape {tuple(x0.shape)}")
    if sde.dim is not None and x0.shape[-1] != sde.dim:
        raise ValueError(f"the SDE has dimension {sde.dim}; x0 has shape {tuple(x0.shape)}: expected (..., {sde.dim})")
    if not _is_finite(x0):
        raise ValueError(f"x0 has {int((~below_transforms(x0).isfinite()).sum())} entries that are infinite or NaN")
    check_step_size(step_size)
    for name, tensor in (*sde.named_parameters(), *sde.named_buffers()):
        if tensor.is_floating_point() and (tensor.dtype != x0.dtype or tensor.device != x0.device):
            raise TypeError(
                f"x0 is {x0.dtype} on {x0.device}, but the SDE's {name} is {tensor.dtype} on {tensor.device}: call "
                f"sde.to(x0.device, x0.dtype), or x0.to the other way"
            )
    check_structure(sde, x0)
    return scheme
