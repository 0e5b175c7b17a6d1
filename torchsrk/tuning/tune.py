"""From a density to a plan: coordinates, scheme, step size, length and states to go on from."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Size, Tensor
from torch.distributions import Distribution

from ..blocks import torch_threads
from ..brownian import Stream, start_normals
from ..brownian.noise import check_seed, derive_seed, draw_uniform
from ..integrators import Integrator, integrator_named
from ..integrators.capped import Capped
from ..potentials import FunctionPotential, Potential
from ..potentials.base import is_stateful, row_by_row
from ..potentials.precision import check_precision, error_of_dtypes, takes
from ..potentials.refusals import told_of_support
from ..potentials.unconstrained import Constrained
from ..sampling.signs import HINT, falls_without_end
from ..targets import checked_shape, diffusion_for, refuse_models
from .checks import identities
from .choose import Chosen, adjusted, choose
from .ensemble import Ensemble
from .likeness import gradients_seen
from .plan import FRICTION, Tuning, reading_of
from .reach import reach
from .report import TuningReport
from .requests import Asking, Phase, Points
from .settle import longest_kick, settle
from .shares import Shares
from .together import Density, is_underdamped, joined, one_step_size, together

_LEAST_PARTICLES = 32

LogDensity = Callable[[Tensor], Tensor]


def tune(
    target: Potential | LogDensity,
    *,
    dim: int | None = None,
    particles: int = 1000,
    seed: int,
    tolerance: float = 0.05,
    start: Tensor | Distribution | None = None,
    batch_shape: Sequence[int] = (),
    constrain: Callable[[Tensor], Tensor] | None = None,
    integrator: Integrator | str = "baoab",
    adjust: bool = False,
    compile: bool | Literal["auto"] = False,
    progress: bool = False,
) -> Tuning:
    """Find out how to draw from a density on ℝⁿ, with no number but the bias that is allowed.

    Thousands of particles descend to the typical set, settle there in coordinates whitened by their own Fisher metric,
    and measure the bias of a step size on one path. The result is a function of the arguments: the same bits on any
    number of threads. It warns if its draws should not be trusted, and the report says why.

    Args:
        target: a Potential, or a log density up to a constant, points (..., *batch_shape, dim) to (..., *batch_shape).
        dim: the dimension, where the target does not say it.
        particles: how many. Means and standard deviations are known to about 1/√(particles·draws).
        seed: of the starts, the noise and all that is random.
        tolerance: the largest bias of a mean or a standard deviation that a step size may make, in standard deviations.
        start: where particles start: (particles, *batch_shape, dim), a point (*batch_shape, dim) about which they are
            spread by ±2, or a distribution of points. By default uniform on (-2, 2).
        batch_shape: of a batch of densities, that are tuned together, each with coordinates and a step of its own.
        constrain: positions (..., *batch_shape, dim) to the parameters (..., *batch_shape, parameters) that are read in
            the end, whose bias is then held within the tolerance as well. An UnconstrainedPotential has its own, and
            a PyroPotential.
        integrator: an unadjusted scheme.
        adjust: draw by generalized Hamiltonian Monte Carlo in the same coordinates, with an exact law.
        compile: run chains as compiled steps (see ``sample``): for a density that is dear, or is tuned again and again.
            Draws by the plan take the same programs.
        progress: show a progress bar.

    Raises:
        ValueError: the density is nowhere finite, depends on nothing, or has no shape to learn.
    """
    potential, batch = _as_potential(target, dim), _checked_batch(batch_shape)
    width = _checked(potential, particles, tolerance, seed)
    scheme = integrator_named(integrator)
    with told_of_support():
        x = _in_dtype_of(potential, _start(potential, start, (particles, *batch, width), seed))
        density = Density(
            potential, batch, _constraint(potential, constrain), particles, compile, Shares.of(potential, x)
        )
        diffusion_for(scheme, potential, FRICTION)  # raises for a scheme that is for other diffusions
        tasks = [_plan(part, scheme, tolerance, adjust, seed) for part in x.reshape(particles, -1, width).unbind(1)]
        with torch_threads(1), torch.no_grad(), _bar(len(tasks) * (5 if adjust else 4), progress) as bar:
            plans, spent = together(tasks, density, bar)
            tuning = _joined(density, plans, spent, derive_seed(seed, 4), reading_of(potential, constrain))
    if not tuning.trusted and falls_without_end(potential, x, tuning.positions):
        raise ValueError(f"this density can't be sampled: {HINT}")
    if not tuning.trusted:
        warnings.warn(
            "draws of this density should not be trusted: " + "; ".join(tuning.troubles), RuntimeWarning, stacklevel=2
        )
    return tuning


@dataclass(frozen=True)
class _Plan:
    """The plan of one target, and a report that lacks the gradients that it took."""

    chosen: Chosen
    report: Callable[[dict[str, float]], TuningReport]


def _plan(x: Tensor, scheme: Integrator, tolerance: float, adjust: bool, seed: int) -> Asking[_Plan]:
    """From particles x (particles, dim) that are anywhere to those of a plan."""
    yield Phase("reach")
    reached = yield from reach(x, seed=derive_seed(seed, 0))
    yield Phase("settle")
    settled = yield from settle(reached.ensemble, seed=derive_seed(seed, 1))
    yield Phase("choose")
    chosen = yield from choose(settled, scheme, tolerance, derive_seed(seed, 2))
    acceptance = None
    if adjust:
        yield Phase("adjust")
        chosen, acceptance = yield from adjusted(chosen, derive_seed(seed, 3))
    yield Phase("check")
    ensemble: Ensemble = yield Points(chosen.coordinates.outward(chosen.z))
    pull = chosen.coordinates.pull(ensemble.gradient)
    report = partial(
        TuningReport,
        particles=len(x),
        rounds=reached.rounds,
        restarted=reached.restarted,
        windows=settled.windows,
        calm=settled.calm,
        memory=settled.memory,
        slowest=settled.slowest,
        warmup_time=settled.time,
        drift=settled.drift,
        capped=float((chosen.step_size * pull.norm(dim=-1) > longest_kick(x.shape[-1])).double().mean()),
        outside=float((~ensemble.finite).double().mean()),
        tolerance=tolerance,
        bias=chosen.bias,
        bound=chosen.bound,
        memory_time=chosen.memory_time,
        identities=identities(chosen.z.double(), pull.double()),
        tails=chosen.tails,
        metric=type(chosen.coordinates.scale).__name__,
        acceptance=acceptance,
    )
    return _Plan(chosen, lambda gradients: report(gradients=gradients))


def _constraint(
    potential: Potential, constrain: Callable[[Tensor], Tensor] | None
) -> Callable[[Tensor], Tensor] | None:
    if constrain is None and isinstance(potential, Constrained) and not potential.is_identity:
        return potential.constrain
    return constrain


def _joined(
    density: Density,
    plans: Sequence[_Plan],
    spent: Sequence[dict[str, float]],
    seed: int,
    reading: Callable[[Tensor], Tensor] | None,
) -> Tuning:
    """The plan of all targets."""
    chosen = [plan.chosen for plan in plans]
    step_size, coordinates, stretches = one_step_size(
        [part.step_size for part in chosen],
        [part.coordinates for part in chosen],
        underdamped=is_underdamped(chosen[0].scheme, density.potential),
    )
    potential, sde = density.whitened(chosen[0].scheme, FRICTION, joined(coordinates, density.batch_shape))
    z = torch.stack([part.z / by for part, by in zip(chosen, stretches, strict=True)], 1)
    scheme = Capped(chosen[0].scheme, longest_kick(z.shape[-1]))
    start = z.reshape(len(z), *density.batch_shape, -1)
    return Tuning(
        potential=potential,
        sde=sde,
        integrator=scheme,
        step_size=step_size,
        length=max(max(1, math.ceil(part.memory_time / part.step_size)) for part in chosen),
        state=scheme.init(sde, 0.0, start, step_size, start_normals(seed)),
        step=0,
        seed=seed,
        # One gradient more, that states begin with.
        reports=tuple(
            plan.report({**gradients, "check": gradients["check"] + 1.0})
            for plan, gradients in zip(plans, spent, strict=True)
        ),
        seen=gradients_seen(potential, start),
        constrain=reading,
    )


# ------------------------------------------------------------------------------------------------------ at the door


def _as_potential(target: Potential | LogDensity, dim: int | None) -> Potential:
    if isinstance(target, Potential):
        return target
    refuse_models(target)
    if isinstance(target, Distribution) or not callable(target):
        raise TypeError(
            f"target is a Potential or a log density on ℝⁿ (a callable); got {type(target).__name__}. A distribution "
            "goes to DiffusionDistribution, which takes it to an unconstrained space"
        )
    return FunctionPotential(_Negative(target), dim=dim)


class _Negative:
    """The energy of a log density."""

    def __init__(self, log_density: LogDensity) -> None:
        self.log_density = log_density

    def __call__(self, x: Tensor) -> Tensor:
        return -self.log_density(x)


def _checked(potential: Potential, particles: int, tolerance: float, seed: int) -> int:
    """The dimension, if all else can be worked with."""
    check_seed(seed)
    dim = potential.dim
    if dim is None or isinstance(dim, bool) or not isinstance(dim, int) or dim < 1:
        raise ValueError(f"dim is the dimension of the density, a positive integer; got {dim!r}")
    if isinstance(particles, bool) or not isinstance(particles, int) or particles < _LEAST_PARTICLES:
        raise ValueError(
            f"particles is an integer, at least {_LEAST_PARTICLES}: an ensemble knows the shape of its target by "
            f"numbers; got {particles!r}"
        )
    if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)) or not 0.0 < tolerance < math.inf:
        raise ValueError(f"tolerance is a positive number, in standard deviations; got {tolerance!r}")
    if is_stateful(potential):
        raise ValueError(
            "the potential changes with every gradient, as one that draws minibatches does: its noise can't be told "
            "from a step's bias. Tune on all of the data"
        )
    return dim


def _checked_batch(batch_shape: Sequence[int]) -> Size:
    batch_shape = checked_shape("batch_shape", batch_shape)
    if any(isinstance(size, bool) or not isinstance(size, int) or size < 1 for size in batch_shape):
        raise ValueError(f"batch_shape holds positive integers; got {tuple(batch_shape)}")
    return Size(batch_shape)


def _start(potential: Potential, start: Tensor | Distribution | None, shape: tuple[int, ...], seed: int) -> Tensor:
    """Starting points of this shape, (particles, *batch_shape, dim)."""
    like = next((t for t in (*potential.parameters(), *potential.buffers()) if t.is_floating_point()), torch.empty(0))
    if isinstance(start, Tensor) and start.is_floating_point():
        like = start
    check_precision(like)
    flat = (math.prod(shape[:-1]), shape[-1])
    spread = 4.0 * draw_uniform(flat, seed=seed, stream=Stream.START, device=like.device) - 2.0
    spread = spread.to(like.dtype).reshape(shape)
    if start is None:
        return spread
    if isinstance(start, Distribution):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            start = start.sample(torch.Size((shape[0],)))
    if not isinstance(start, Tensor) or start.shape not in (shape, shape[1:]) or not start.is_floating_point():
        given = f"{start.dtype} {tuple(start.shape)}" if isinstance(start, Tensor) else type(start).__name__
        raise ValueError(f"start is a floating tensor {shape} or {shape[1:]}, or a distribution; got {given}")
    if not bool(start.isfinite().all()):
        raise ValueError(f"start has {int((~start.isfinite()).sum())} entries that are infinite or NaN")
    return start + spread if start.shape != shape else start.detach().clone()


def _in_dtype_of(potential: Potential, x: Tensor) -> Tensor:
    """The points in the precision of the density's values: data in float64 is not looked at in float32."""
    try:
        energy = _some_energies(potential, x)
    except RuntimeError as error:  # as of a product with data of another dtype
        with suppress(RuntimeError):
            if x.dtype != torch.float64:
                _some_energies(potential, x.double())
                return x.double()
        refused = error_of_dtypes(potential, x, error)
        if refused is None:
            raise
        raise refused from error
    if not energy.is_floating_point():
        return x
    wanted = x.to(torch.promote_types(x.dtype, energy.dtype))
    # Data in both precisions may be of use with points in the lower one alone.
    return wanted if wanted.dtype == x.dtype or takes(potential, wanted) or not takes(potential, x) else x


def _some_energies(potential: Potential, x: Tensor) -> Tensor:
    with torch.no_grad():
        return row_by_row(lambda rows: potential(rows).unsqueeze(-1), x[:16], 1)


def _bar(phases: int, progress: bool) -> Any:
    from tqdm import tqdm

    return tqdm(total=phases, unit="phase", leave=None, disable=not progress)
