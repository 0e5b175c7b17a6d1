"""``sample``: particles through many steps, towards what an SDE converges to."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import merge
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..blocks import Blocks, torch_threads
from ..brownian import LevyArea
from ..brownian.noise import check_range
from ..compiled import CapturedSteps, compiling_pays
from ..dtensors import is_sharded
from ..integrators import Integrator
from ..sde import BaseSDE, as_sde
from ..sde.probe import check_reached
from .beginnings import are_positions
from .causes import tell_cause
from .checks import Compile, check_integer, check_levy_area, check_problem, check_way, doubt_at_start
from .compiling import compiled_steps, steps_by_torch
from .dynamics import Dynamics
from .failures import Advance, NonFiniteStateError, is_finite, locate_failure
from .plans import Pace, checked_lengths
from .signs import Watch, add_hint_of_sign
from .surroundings import full_precision, progress_bar

if TYPE_CHECKING:
    from ..compiled.steps import Bound

Callback = Callable[[int, Tensor], None]

# Steps between checks. A compiled run of few particles is so fast that checking would take most of its time: it may
# make more, up to so many numbers.
CHECK_EVERY, _CHECK_AT_MOST_EVERY, _CHECKED_NUMBERS = 16, 4096, 1 << 24


class Company:
    """Who else runs particles of a batch: nobody. ``torchsrk.distributed`` has other processes in its place."""

    def started(self) -> None:
        """The states are there: what they were made from is read no more."""

    def look(self) -> None:
        """Between segments of steps: raise if another process has failed."""

    def average(self, count: Tensor) -> float:
        """Of a number for every row, over the rows of all."""
        return float(count.double().mean())

    def agreed(self, compiled: Bound | CapturedSteps | None) -> Bound | CapturedSteps | None:
        """Compiled steps, if all run compiled ones."""
        return compiled


@dataclass(frozen=True)
class Run:
    """What ``sample`` gives.

    Attributes:
        final: the last positions, (..., dim).
        trajectory: the kept positions, (kept, ..., dim), if thin was given.
        state: the last state, (..., width), of which the position is what is reported. Most schemes have no other.
        step: the number of the next step: ``sample(..., x0=run.final, state=run.state, first_step=run.step)`` goes on
            as if never stopped, and ``torchsrk.Chain`` does so by itself.
        statistics: what the scheme tells about the run: "acceptance", of those that accept or reject.
        time: when it ended, of an SDE that depends on time.
        constrain: of a run of a plan, positions (..., dim) to the parameters that a user reads. ``diagnose``,
            ``to_arviz`` and ``posterior_figure`` read these, unless they are given others.
        plan: of a run of a plan, the plan's ``mark``.
    """

    final: Tensor
    trajectory: Tensor | None
    state: Tensor
    step: int
    statistics: dict[str, float] = field(default_factory=dict)
    time: float | None = None
    constrain: Callable[[Tensor], Tensor] | None = None
    plan: str | None = None

    def state_dict(self) -> dict[str, Any]:
        """All of it but the function ``constrain``, as tensors, numbers and text."""
        kept = {name: value for name, value in vars(self).items() if name != "constrain"}
        return {**kept, "constrained": self.constrain is not None}

    @staticmethod
    def restored(state: dict[str, Any], constrain: Callable[[Tensor], Tensor] | None = None) -> Run:
        """The run whose ``state_dict`` this is; ``constrain``, as that of the plan, if it is to be read."""
        kept = {name: value for name, value in state.items() if name != "constrained"}
        return Run(**kept, constrain=constrain or (_not_kept if state["constrained"] else None))

    def __getstate__(self) -> dict[str, Any]:
        # A function of the user's own often can't be pickled, and a run could before it carried one.
        return {**vars(self), "constrain": None if self.constrain is None else _not_kept}


def _not_kept(x: Tensor) -> Tensor:
    raise ValueError(
        "this run was saved, and how its positions become parameters was not saved with it: give tuning=, the plan "
        "that drew it, or parameters="
    )


def sample(
    sde: BaseSDE,
    x0: Tensor,
    *,
    integrator: Integrator | str,
    seed: int,
    step_size: float | None = None,
    num_steps: int | None = None,
    step_sizes: Tensor | Sequence[float] | None = None,
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
    compile: Compile = False,
) -> Run:
    """Run particles through ``burn_in + num_steps`` steps, without a graph and in memory that doesn't grow with them.

    The noise of a particle at a step depends on (seed, particle, step) alone: not on the batch, on threads, on thinning
    or on where a run was cut. On the CPU particles run in blocks, one thread each, so that the states too are the same
    bits for any number of threads: drift and diffusion must treat every particle on its own. Everything runs in x0's
    precision, with autocast off.

    Args:
        sde: a Langevin, UnderdampedLangevin, ItoDiffusion or SDE, or an object written for torchsde.
        x0: the initial positions, (..., dim); the leading dimensions are particles, numbered in row-major order. Of a
            DTensor sharded over rows every process runs its own, to the same bits, and what comes is sharded likewise
            (see torchsrk/distributed).
        integrator: a scheme or its name: "em", "srk-ld", "srk-id" and more.
        seed: of the noise. The same seed and step numbers are the same noise: a loop that calls ``sample`` again
            and again from where it stopped, with one seed and without ``first_step=run.step``, gives every particle the
            same kicks each time, and the law comes out wrong. ``torchsrk.Chain`` counts the steps itself.
        step_size: the length of all steps, with ``num_steps``; or give ``step_sizes``.
        num_steps: how many there are.
        step_sizes: the length of every step, from step number 0 on, of those before ``first_step`` too; num_steps is
            then what these leave, or fewer. For an SDE that wants smaller steps as time goes on.
        state: the state of an earlier run of this scheme, to go on from; x0 are its final positions, and others are
            refused. ("lm" reports positions by noise: there any will do that noise explains, ``run.state`` among them.)
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
            warning that says why. On a CUDA device True means one Triton kernel, and steps captured as a CUDA graph for
            what is none, after such a warning; "triton" asks for the kernel wherever Triton can run it.

    Raises:
        NonFiniteStateError: the state became infinite or NaN.
    """
    sde, step_sizes = as_sde(sde), None if step_sizes is None else checked_lengths(step_sizes)
    options = {**locals()}
    return runner_for(x0)(**options)


def runner_for(x0: Tensor) -> Callable[..., Run]:
    """``sample`` of particles that are all here, or of some that are spread over processes.

    It takes a ``watch``, too: of a chain, whose energies are looked at from its start on.
    """
    if is_sharded(x0):
        from ..distributed.sampling import sample_sharded

        return sample_sharded
    return sample_alone


def sample_alone(
    sde: BaseSDE,
    x0: Tensor,
    *,
    integrator: Integrator | str,
    seed: int,
    step_size: float | None,
    num_steps: int | None,
    step_sizes: Tensor | Sequence[float] | None,
    state: Tensor | None,
    burn_in: int,
    thin: int | None,
    first_step: int,
    first_particle: int,
    levy_area: LevyArea | None,
    callbacks: Iterable[Callback],
    check_every: int | None,
    block_size: int | None,
    progress: bool,
    compile: Compile,
    company: Company | None = None,
    watch: Watch | None = None,
) -> Run:
    """``sample`` of particles that are all here, or of those of a batch that are."""
    pace = Pace.of(step_size, step_sizes)
    told = num_steps is not None or not pace.lengths
    _check_numbers(num_steps if told else 1, burn_in, thin, first_step, first_particle)
    if not told:
        num_steps = _steps_left(pace, first_step, burn_in)
    check_way(check_every, block_size, compile)
    check_levy_area(levy_area)
    assert num_steps is not None
    scheme = check_problem(sde, x0, integrator, pace.step_size)
    steps = burn_in + num_steps
    _check_pace(pace, scheme, first_step + steps)
    sde.check_end(pace.start(first_step + steps))
    may_stop_anywhere = watch is not None  # as a chain does, which goes on from there
    if not first_step:
        _warn_of(doubt_at_start(sde, x0))
    check_range(seed, first_step * scheme.substeps, steps * scheme.substeps, first_particle, math.prod(x0.shape[:-1]))
    company = company or Company()
    dynamics = Dynamics(sde, scheme, pace, seed, first_particle, levy_area, sde.brownian_dim(x0), first_step)
    callbacks = tuple(callbacks)

    blocks = Blocks(x0, block_size, divisible=not dynamics.is_stateful)
    kept_from, end = first_step + burn_in, first_step + steps
    keep_at = range(0) if thin is None else range(kept_from + thin, end + 1, thin)
    threads = torch.get_num_threads()
    with (
        full_precision(x0),
        torch.no_grad(),
        blocks.threads(),
        progress_bar(steps, progress, scheme, pace.step_size) as bar,
    ):
        now = dynamics.start(blocks, x0, first_step) if state is None else dynamics.given(state, x0)
        if state is not None and not are_positions(dynamics, blocks, now, first_step, x0, same_noise=False):
            raise ValueError(
                "the state's particles are elsewhere than at x0: a state goes with the positions that came with it, "
                "x0=run.final with state=run.state. From other positions a run begins without a state, and with "
                "another seed where first_step does not go on from that of all earlier runs, as noise would repeat"
            )
        watch = watch or Watch.of(x0)
        company.started()
        before, counted = torch.empty_like(now), dynamics.tallies(now, company.average)
        trajectory = None if thin is None else x0.new_empty(num_steps // thin, *x0.shape)
        way = _way_on(dynamics, blocks, now, compile, range(first_step, end), threads, company, bar)
        look_at = range(first_step, end, 1 if callbacks else check_every or way.check_every)
        for start, stop in pairwise(merge(look_at, keep_at, (end,))):
            if start == stop:
                continue
            now, before = before, now
            try:
                way.go(before, now, start, stop)
            except NonFiniteStateError as failure:
                began = {"first_step": first_step, "first_particle": first_particle}
                tell_cause(failure, sde, x0, pace.start(failure.last_finite_step), mapped=blocks.map, **began)
                add_hint_of_sign(failure, sde, watch.start, partial(way.dynamics.positions, blocks))
                raise
            company.look()
            bar.update(stop - start)
            for callback in callbacks:
                callback(stop, way.dynamics.positions(blocks, now, stop).clone())
            if trajectory is not None and stop in keep_at:
                trajectory[keep_at.index(stop)] = way.dynamics.positions(blocks, now, stop)
        tallies = way.dynamics.tallies(now, company.average).items()
        per_step = {name: (count - counted[name]) / steps for name, count in tallies}
        final = way.dynamics.positions(blocks, now, end)
        check_reached(sde, final)
        watch.look(sde, final, stacklevel=4)
        if not may_stop_anywhere:
            _warn_of(sde.doubt_at_end(pace.start(end)))
        return Run(final, trajectory, now, end, per_step, pace.start(end))


def _warn_of(doubt: str | None) -> None:
    if doubt is not None:
        warnings.warn(doubt, RuntimeWarning, stacklevel=4)


def _steps_left(pace: Pace, first_step: int, burn_in: int) -> int:
    left = len(pace.lengths) - first_step - burn_in
    if left < 1:
        raise ValueError(
            f"step_sizes has the lengths of {len(pace.lengths)} steps, from step number 0 on, and first_step="
            f"{first_step} and burn_in={burn_in} leave none of them: give those of the steps to come, too"
        )
    return left


def _check_pace(pace: Pace, scheme: Integrator, end: int) -> None:
    if pace.lengths and end > len(pace.lengths):
        raise ValueError(f"step_sizes has the lengths of {len(pace.lengths)} steps, and this run goes to step {end}")
    if scheme.equal_steps and not pace.is_even:
        raise ValueError(f"{scheme} makes steps of one length: give step_size")


def _check_numbers(num_steps: int | None, burn_in: int, thin: int | None, first_step: int, first_particle: int) -> None:
    for name, value, least in (
        ("num_steps", num_steps, 1),
        ("burn_in", burn_in, 0),
        ("thin", 1 if thin is None else thin, 1),
        ("first_step", first_step, 0),
        ("first_particle", first_particle, 0),
    ):
        check_integer(name, value, least)


@dataclass(frozen=True)
class _Way:
    """How states get from step to step: by compiled steps if there are any, and else by the dynamics' own.

    Attributes:
        check_every: steps between checks, where the user has not said.
    """

    dynamics: Dynamics
    blocks: Blocks
    compiled: Advance | None = None
    check_every: int = CHECK_EVERY

    def go(self, before: Tensor, now: Tensor, start: int, stop: int) -> None:
        """Write to ``now`` the states ``before``, of step ``start``, taken to step ``stop``."""
        eager = partial(self.dynamics.advance_blocks, self.blocks)
        advance = self.compiled or eager
        advance(before, now, start, stop)
        if self.dynamics.minibatches is not None:
            self.dynamics.minibatches.go_to(stop)
        if not is_finite(now):
            failure = locate_failure(advance, before, now, start, stop)
            if self.compiled is not None:  # the SDE's own code may have an error to raise there
                eager(failure.last_finite, now, failure.step - 1, failure.step)
            raise failure


def _way_on(
    dynamics: Dynamics,
    blocks: Blocks,
    state: Tensor,
    compile: Compile,
    steps: range,
    threads: int,
    company: Company,
    bar: Any,
) -> _Way:
    """Compiled where that is wanted and can be."""
    eager = _Way(dynamics, blocks)
    if compile == "torch" and dynamics.pace.lengths:
        message = f"compile={compile!r}: this run is eager, as its steps have lengths of their own"
        warnings.warn(message, RuntimeWarning, stacklevel=4)
        return eager
    if compile == "torch":
        by_torch = steps_by_torch(dynamics, state, steps.start, bar)
        return eager if by_torch is None else _Way(dynamics, blocks, partial(_on_threads, by_torch.advance, threads))
    gradients = dynamics.scheme.gradients_per_step * len(steps)
    if not compile or (compile == "auto" and not compiling_pays(gradients, state.numel())):
        return eager
    language = "triton" if compile == "triton" or state.device.type == "cuda" else "c"
    drawing, found = compiled_steps(dynamics, state, blocks, steps, threads, bar, language)
    check_every = max(CHECK_EVERY, min(_CHECK_AT_MOST_EVERY, _CHECKED_NUMBERS // state.numel()))
    if company.agreed(found) is None or found is None:
        return _Way(dynamics, blocks, check_every=check_every)
    return _Way(drawing, blocks, found.advance, check_every)


def _on_threads(advance: Advance, threads: int, *args: Any) -> None:
    """Steps of all particles at once, for torch to share out."""
    with torch_threads(threads):
        advance(*args)
