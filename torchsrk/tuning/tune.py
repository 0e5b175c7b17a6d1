"""From a density to a plan: coordinates, scheme, step size, length and states to go on from."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Size, Tensor
from torch.distributions import Distribution

from ..blocks import torch_threads
from ..brownian import Stream, start_normals
from ..brownian.noise import check_seed, derive_seed, draw_uniform
from ..coupling import periods_of
from ..integrators import GHMC, Integrator, integrator_named
from ..integrators.capped import Capped
from ..potentials import AffinePotential, FunctionPotential, Potential, UnconstrainedPotential
from ..potentials.affine import Diagonal, LowRank, Triangular
from ..potentials.base import is_stateful, row_by_row
from ..sampling import Run, sample
from ..sde import Langevin, UnderdampedLangevin
from ..targets import diffusion_for
from .bias import LEVELS, StepBias, bias_of
from .checks import identities, tail_shapes
from .ensemble import Ensemble
from .length import memory_time
from .metric import Coordinates, whitened
from .reach import reach
from .report import TuningReport
from .requests import Asking, Chain, Coupled, Phase, Points, Read, Show
from .settle import LEAST_STEP, Settled, longest_kick, settle
from .together import Density, entry_of, is_underdamped, joined, one_step_size, together

if TYPE_CHECKING:
    from ..diagnostics import Diagnosis

FRICTION = 1.0  # between draws: a whitened Gaussian forgets soonest
_LARGEST_STEP = 0.6
_BIAS_TIME, _MOST_BIAS_TIME = 10.0, 60.0
_RELAXED = 2.5  # memory times after which chains have gone nine tenths of the way to the laws of their own steps
_MOST_TRIES = 4
_LEAST_PARTICLES = 32
_ACCEPTANCE = 0.8

LogDensity = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Tuning:
    """A plan to draw from a density, or from each of a batch, and what it stands on.

    Attributes:
        potential: the density's energy in whitened coordinates z; ``potential.outward(z)`` are those it was given in.
        sde, integrator, step_size: the diffusion of z, and what simulates it. Targets of a batch have one step size:
            what differs between them is in their coordinates.
        length: steps between draws that hardly know of one another.
        state: states of the particles, (particles, *batch_shape, width), to go on from.
        step: the number of the next step.
        seed: of all draws.
        reports: what was found on the way, a report for every target of the batch in row-major order.
    """

    potential: AffinePotential
    sde: Langevin | UnderdampedLangevin
    integrator: Integrator
    step_size: float
    length: int
    state: Tensor
    step: int
    seed: int
    reports: tuple[TuningReport, ...]

    @property
    def report(self) -> TuningReport:
        """What was found on the way, and whether the draws can be trusted."""
        if len(self.reports) > 1:
            raise ValueError(f"there are {len(self.reports)} targets, each with its own report: see reports")
        return self.reports[0]

    @property
    def trusted(self) -> bool:
        """Whether nothing speaks against the draws of any target."""
        return all(report.trusted for report in self.reports)

    @property
    def troubles(self) -> list[str]:
        """What speaks against them, and of which target of a batch."""
        batch_shape = self.state.shape[1:-1]
        return [
            (f"target {entry_of(number, batch_shape)}: " if batch_shape else "") + trouble
            for number, report in enumerate(self.reports)
            for trouble in report.troubles
        ]

    @property
    def positions(self) -> Tensor:
        """Where the particles are, (particles, *batch_shape, dim)."""
        return self.potential.outward(self.state[..., : self.potential.loc.shape[-1]])

    def sample(
        self,
        draws: int = 1,
        *,
        after: Run | None = None,
        compile: bool | Literal["auto"] = False,
        progress: bool = False,
    ) -> Run:
        """So many draws of every particle, as a Run whose trajectory is (draws, particles, *batch_shape, dim).

        Draws go on from those of a Run ``after`` which they come; without one the same draws come again.
        """
        if isinstance(draws, bool) or not isinstance(draws, int) or draws < 1:
            raise ValueError(f"draws is a positive integer; got {draws!r}")
        state, step = (self.state, self.step) if after is None else (after.state, after.step)
        run = sample(
            self.sde,
            state[..., : self.potential.loc.shape[-1]].contiguous(),
            state=state,
            integrator=self.integrator,
            step_size=self.step_size,
            num_steps=draws * self.length,
            thin=self.length,
            seed=self.seed,
            first_step=step,
            compile=compile,
            progress=progress,
        )
        assert run.trajectory is not None
        out = self.potential.outward
        return Run(out(run.final), out(run.trajectory), run.state, run.step, run.statistics)

    def diagnose(self, run: Run, **options: Any) -> Diagnosis:
        """What a run of this plan is worth; options are those of ``torchsrk.diagnose``."""
        from ..diagnostics import diagnose

        return diagnose(run, tuning=self, **options)

    def state_dict(self) -> dict[str, Any]:
        """All of it but the density, as tensors, numbers and text."""
        return {
            "loc": self.potential.loc,
            "scale": {"form": type(self.potential.scale).__name__, **self.potential.scale.state_dict()},
            "step_size": self.step_size,
            "length": self.length,
            "state": self.state,
            "step": self.step,
            "seed": self.seed,
            "reports": [asdict(report) for report in self.reports],
        }

    @staticmethod
    def restored(target: Potential, state: dict[str, Any], integrator: Integrator | str = "baoab") -> Tuning:
        """The plan whose ``state_dict`` this is, for the same density and scheme."""
        reports = tuple(TuningReport.restored(report) for report in state["reports"])
        scheme = GHMC() if reports[0].acceptance is not None else integrator_named(integrator)
        scale = dict(state["scale"])
        form = {kind.__name__: kind for kind in (Diagonal, LowRank, Triangular)}[scale.pop("form")]
        potential = AffinePotential(target, state["loc"], form(**scale))
        return Tuning(
            potential=potential,
            sde=diffusion_for(scheme, potential, FRICTION),
            integrator=Capped(scheme, longest_kick(state["loc"].shape[-1])),
            reports=reports,
            **{name: state[name] for name in ("step_size", "length", "state", "step", "seed")},
        )

    def __repr__(self) -> str:
        trusted = "trusted" if self.trusted else "NOT trusted"
        targets = f", targets={len(self.reports)}" if len(self.reports) > 1 else ""
        return (
            f"Tuning({self.integrator}, step_size={self.step_size:.3g}, length={self.length}, "
            f"particles={len(self.state)}{targets}, {trusted})"
        )


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
        tolerance: the largest bias of a mean or a standard deviation that a step size may make, in standard deviations.
        start: where particles start: (particles, *batch_shape, dim), a point (*batch_shape, dim) about which they are
            spread by ±2, or a distribution of points. By default uniform on (-2, 2).
        batch_shape: of a batch of densities, that are tuned together, each with coordinates and a step of its own.
        constrain: positions (..., *batch_shape, dim) to the parameters (..., *batch_shape, parameters) that are read in
            the end, whose bias is then held within the tolerance as well. An UnconstrainedPotential has its own.
        integrator: an unadjusted scheme.
        adjust: draw by generalized Hamiltonian Monte Carlo in the same coordinates, with an exact law.
        progress: show a progress bar.

    Raises:
        ValueError: the density is nowhere finite, depends on nothing, or has no shape to learn.
    """
    potential, batch = _as_potential(target, dim), _checked_batch(batch_shape)
    width = _checked(potential, particles, tolerance, seed)
    scheme = integrator_named(integrator)
    x = _in_dtype_of(potential, _start(potential, start, (particles, *batch, width), seed))
    density = Density(potential, batch, _constraint(potential, constrain), particles)
    diffusion_for(scheme, potential, FRICTION)  # raises for a scheme that is for other diffusions
    tasks = [_plan(part, scheme, tolerance, adjust, seed) for part in x.reshape(particles, -1, width).unbind(1)]
    with torch_threads(1), torch.no_grad(), _bar(len(tasks) * (5 if adjust else 4), progress) as bar:
        plans, spent = together(tasks, density, bar)
        tuning = _joined(density, plans, spent, derive_seed(seed, 4))
    if not tuning.trusted:
        warnings.warn(
            "draws of this density should not be trusted: " + "; ".join(tuning.troubles), RuntimeWarning, stacklevel=2
        )
    return tuning


@dataclass(frozen=True)
class _Chosen:
    """A step size, and the particles that it was measured on."""

    coordinates: Coordinates
    scheme: Integrator
    step_size: float
    bias: StepBias | None
    bound: float
    memory_time: float
    z: Tensor
    tails: Tensor


@dataclass(frozen=True)
class _Plan:
    """The plan of one target, and a report that lacks the gradients that it took."""

    chosen: _Chosen
    report: Callable[[dict[str, float]], TuningReport]


def _plan(x: Tensor, scheme: Integrator, tolerance: float, adjust: bool, seed: int) -> Asking[_Plan]:
    """From particles x (particles, dim) that are anywhere to those of a plan."""
    yield Phase("reach")
    reached = yield from reach(x, seed=derive_seed(seed, 0))
    yield Phase("settle")
    settled = yield from settle(reached.ensemble, seed=derive_seed(seed, 1))
    yield Phase("choose")
    chosen = yield from _choose(settled, scheme, tolerance, derive_seed(seed, 2))
    acceptance = None
    if adjust:
        yield Phase("adjust")
        chosen, acceptance = yield from _adjusted(chosen, derive_seed(seed, 3))
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


def _choose(settled: Settled, scheme: Integrator, tolerance: float, seed: int) -> Asking[_Chosen]:
    """The largest step size whose bias, its error included, is below the tolerance."""
    coordinates = whitened(settled.ensemble)
    z, step_size = coordinates.inward(settled.ensemble.x), 0.5 * min(_LARGEST_STEP, settled.step_size)
    capped, time = Capped(scheme, longest_kick(z.shape[-1])), _BIAS_TIME
    for number in range(_MOST_TRIES):
        kept: Tensor = yield Coupled(
            z=z,
            coordinates=coordinates,
            scheme=capped,
            friction=FRICTION,
            step_size=step_size,
            periods=max(4, periods_of(time, step_size, LEVELS)),
            seed=derive_seed(seed, number),
        )
        if not bool(kept.isfinite().all()):
            raise ValueError(
                "particles left every bound at the smallest step size tried: the density is improper, or not smooth"
            )
        theta, read = yield from _parameters(coordinates, kept)
        bias = bias_of(theta, capped, step_size)
        z, wanted = kept[-1, 0].contiguous(), bias.largest_step(tolerance)
        forgotten = memory_time(theta[:, 0], step_size * 2 ** (LEVELS - 1))
        yield Show(f"step size {step_size:.3g}: bias at most {bias.bound():.3f} sd")
        long_enough = _RELAXED * forgotten <= 1.2 * time or time == _MOST_BIAS_TIME
        if long_enough and (wanted >= step_size or step_size <= 0.5 * LEAST_STEP):
            break
        time = min(_MOST_BIAS_TIME, max(time, _RELAXED * forgotten))
        if wanted < step_size:
            step_size = max(0.8 * wanted, 0.25 * step_size, 0.5 * LEAST_STEP)
    # Twice the shortest step that was measured is the longest whose bias was.
    taken = min(_LARGEST_STEP, 2.0 * step_size, max(wanted, step_size))
    tails = tail_shapes(theta[:, 0, :, :read].double())
    return _Chosen(coordinates, scheme, taken, bias, bias.bound(taken), forgotten, z, tails)


def _parameters(coordinates: Coordinates, kept: Tensor) -> Asking[tuple[Tensor, int]]:
    """What a user reads and then, where that is more, the sampler's own coordinates; and how many are the user's.

    Tails are those of what is read: a logarithm may have a long one where the parameter itself has an end.
    """
    x = coordinates.outward(kept)
    points: Tensor | None = yield Read(x)
    return (x, x.shape[-1]) if points is None else (torch.cat((points, x), -1), points.shape[-1])


def _constraint(
    potential: Potential, constrain: Callable[[Tensor], Tensor] | None
) -> Callable[[Tensor], Tensor] | None:
    if constrain is None and isinstance(potential, UnconstrainedPotential) and not potential.is_identity:
        return potential.constrain
    return constrain


def _adjusted(chosen: _Chosen, seed: int) -> Asking[tuple[_Chosen, float]]:
    """The same coordinates with every step accepted or turned back, at a step that mostly is accepted."""
    step_size, z, acceptance = chosen.step_size, chosen.z, 0.0
    for number in range(8):
        z, shares = yield Chain(
            z=z,
            coordinates=chosen.coordinates,
            scheme=Capped(GHMC(), longest_kick(z.shape[-1])),
            friction=FRICTION,
            step_size=step_size,
            steps=16,
            seed=derive_seed(seed, number),
        )
        acceptance = shares["acceptance"]
        if acceptance >= _ACCEPTANCE:
            break
        step_size *= 0.7
    adjusted = replace(chosen, scheme=GHMC(), step_size=step_size, bias=None, bound=0.0, z=z)
    return adjusted, acceptance


def _joined(density: Density, plans: Sequence[_Plan], spent: Sequence[dict[str, float]], seed: int) -> Tuning:
    """The plan of all targets."""
    chosen = [plan.chosen for plan in plans]
    step_size, coordinates, stretches = one_step_size(
        [part.step_size for part in chosen],
        [part.coordinates for part in chosen],
        underdamped=is_underdamped(chosen[0].scheme, density.potential),
    )
    together = joined(coordinates, density.batch_shape)
    potential = AffinePotential(density.potential, together.loc, together.scale)
    sde = diffusion_for(chosen[0].scheme, potential, FRICTION)
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
    )


# ------------------------------------------------------------------------------------------------------ at the door


def _as_potential(target: Potential | LogDensity, dim: int | None) -> Potential:
    if isinstance(target, Potential):
        return target
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
    if any(isinstance(size, bool) or not isinstance(size, int) or size < 1 for size in batch_shape):
        raise ValueError(f"batch_shape holds positive integers; got {tuple(batch_shape)}")
    return Size(batch_shape)


def _start(potential: Potential, start: Tensor | Distribution | None, shape: tuple[int, ...], seed: int) -> Tensor:
    """Starting points of this shape, (particles, *batch_shape, dim)."""
    like = next((t for t in (*potential.parameters(), *potential.buffers()) if t.is_floating_point()), torch.empty(0))
    if isinstance(start, Tensor) and start.is_floating_point():
        like = start
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
    with torch.no_grad():
        energy = row_by_row(lambda rows: potential(rows).unsqueeze(-1), x[:16], 1)
    return x.to(torch.promote_types(x.dtype, energy.dtype)) if energy.is_floating_point() else x


def _bar(phases: int, progress: bool) -> Any:
    from tqdm import tqdm

    return tqdm(total=phases, unit="phase", leave=None, disable=not progress)
