"""From a density to a plan: coordinates, scheme, step size, length and states to go on from."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from torch.distributions import Distribution

from ..blocks import torch_threads
from ..brownian import Stream, start_normals
from ..brownian.noise import check_seed, derive_seed, draw_uniform
from ..coupling import coupled_positions, periods_of
from ..integrators import GHMC, Integrator, integrator_named
from ..integrators.capped import Capped
from ..potentials import AffinePotential, FunctionPotential, Potential, UnconstrainedPotential
from ..potentials.affine import Diagonal, LowRank, Triangular
from ..potentials.base import is_stateful
from ..sampling import Run, sample
from ..sde import Langevin, UnderdampedLangevin
from .bias import LEVELS, StepBias, bias_of
from .checks import identities, tail_shapes
from .ensemble import Ensemble, Evaluator
from .length import memory_time
from .metric import whitened
from .reach import Reached, reach
from .report import TuningReport
from .settle import LEAST_STEP, Settled, longest_kick, settle

if TYPE_CHECKING:
    from ..diagnostics import Diagnosis

FRICTION = 1.0  # between draws: a whitened Gaussian forgets soonest
_LARGEST_STEP = 0.6
_BIAS_TIME = 10.0
_MOST_TRIES = 4
_LEAST_PARTICLES = 32
_ACCEPTANCE = 0.8

LogDensity = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Tuning:
    """A plan to draw from a density, and what it stands on.

    Attributes:
        potential: the density's energy in whitened coordinates z; ``potential.outward(z)`` are those it was given in.
        sde, integrator, step_size: the diffusion of z, and what simulates it.
        length: steps between draws that hardly know of one another.
        state: states of the particles, (particles, width), to go on from.
        step: the number of the next step.
        seed: of all draws.
        report: what was found on the way, and whether the draws can be trusted.
    """

    potential: AffinePotential
    sde: Langevin | UnderdampedLangevin
    integrator: Integrator
    step_size: float
    length: int
    state: Tensor
    step: int
    seed: int
    report: TuningReport

    @property
    def positions(self) -> Tensor:
        """Where the particles are, (particles, dim)."""
        return self.potential.outward(self.state[..., : self.potential.loc.shape[-1]])

    def sample(
        self,
        draws: int = 1,
        *,
        after: Run | None = None,
        compile: bool | Literal["auto"] = False,
        progress: bool = False,
    ) -> Run:
        """So many draws of every particle, as a Run whose trajectory is (draws, particles, dim).

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
            "report": asdict(self.report),
        }

    @staticmethod
    def restored(target: Potential, state: dict[str, Any], integrator: Integrator | str = "baoab") -> Tuning:
        """The plan whose ``state_dict`` this is, for the same density and scheme."""
        report = TuningReport.restored(state["report"])
        scheme = GHMC() if report.acceptance is not None else integrator_named(integrator)
        scale = dict(state["scale"])
        form = {kind.__name__: kind for kind in (Diagonal, LowRank, Triangular)}[scale.pop("form")]
        potential = AffinePotential(target, state["loc"], form(**scale))
        return Tuning(
            potential=potential,
            sde=diffusion(scheme, potential),
            integrator=Capped(scheme, longest_kick(state["loc"].shape[-1])),
            report=report,
            **{name: state[name] for name in ("step_size", "length", "state", "step", "seed")},
        )

    def __repr__(self) -> str:
        trusted = "trusted" if self.report.trusted else "NOT trusted"
        return (
            f"Tuning({self.integrator}, step_size={self.step_size:.3g}, length={self.length}, "
            f"particles={len(self.state)}, {trusted})"
        )


def tune(
    target: Potential | LogDensity,
    *,
    dim: int | None = None,
    particles: int = 1000,
    seed: int,
    tolerance: float = 0.05,
    start: Tensor | Distribution | None = None,
    constrain: Callable[[Tensor], Tensor] | None = None,
    integrator: Integrator | str = "baoab",
    adjust: bool = False,
    compile: bool | Literal["auto"] = False,
    progress: bool = False,
) -> Tuning:
    """Find out how to draw from a density on ℝⁿ, with no number but the bias that is allowed.

    Thousands of particles descend to the typical set, settle there in coordinates whitened by their own Fisher metric,
    and measure the bias of a step size on one path. The result is a function of the arguments: the same bits on any
    number of threads. It warns if its draws should not be trusted, and ``report`` says why.

    Args:
        target: a Potential, or a log density up to a constant, points (..., dim) to (...).
        dim: the dimension, where the target does not say it.
        particles: how many. Means and standard deviations are known to about 1/√(particles·draws).
        tolerance: the largest bias of a mean or a standard deviation that a step size may make, in standard deviations.
        start: where particles start: (particles, dim), a point (dim,) about which they are spread by ±2, or a
            distribution of points. By default uniform on (-2, 2).
        constrain: positions (..., dim) to the parameters (..., parameters) that are read in the end, whose bias is then
            held within the tolerance as well. An UnconstrainedPotential has its own.
        integrator: an unadjusted scheme.
        adjust: draw by generalized Hamiltonian Monte Carlo in the same coordinates, with an exact law.
        compile, progress: as for ``torchsrk.sample``.

    Raises:
        ValueError: the density is nowhere finite, depends on nothing, or has no shape to learn.
    """
    potential = _as_potential(target, dim)
    width = _checked(potential, particles, tolerance, seed)
    scheme = integrator_named(integrator)
    x = _start(potential, start, particles, width, seed)
    evaluate = Evaluator(potential, len(x))
    spent: dict[str, float] = {}
    with torch_threads(1), torch.no_grad(), _phases(evaluate, spent, progress) as phase:
        with phase("reach"):
            reached = reach(evaluate, x, seed=derive_seed(seed, 0), show=phase.show)
        with phase("settle"):
            settled = settle(evaluate, reached.ensemble, seed=derive_seed(seed, 1), compile=compile, show=phase.show)
        with phase("choose"):
            chosen = _choose(evaluate, settled, scheme, tolerance, derive_seed(seed, 2), constrain, phase.show)
        acceptance = None
        if adjust:
            with phase("adjust"):
                chosen, acceptance = _adjusted(evaluate, chosen, derive_seed(seed, 3))
        plan = _plan(evaluate, chosen, reached, settled, spent, tolerance, acceptance, derive_seed(seed, 4))
    if not plan.report.trusted:
        warnings.warn(
            "draws of this density should not be trusted: " + "; ".join(plan.report.troubles),
            RuntimeWarning,
            stacklevel=2,
        )
    return plan


@dataclass(frozen=True)
class _Chosen:
    """A step size, and the particles that it was measured on."""

    sde: Langevin | UnderdampedLangevin
    scheme: Integrator
    step_size: float
    bias: StepBias | None
    bound: float
    memory_time: float
    z: Tensor
    tails: Tensor

    @property
    def potential(self) -> AffinePotential:
        assert isinstance(self.sde.potential, AffinePotential)
        return self.sde.potential


def _choose(
    evaluate: Evaluator,
    settled: Settled,
    scheme: Integrator,
    tolerance: float,
    seed: int,
    constrain: Callable[[Tensor], Tensor] | None,
    show: Callable[[str], None],
) -> _Chosen:
    """The largest step size whose bias, its error included, is below the tolerance."""
    potential = whitened(evaluate.potential, settled.ensemble)
    sde = diffusion(scheme, potential)
    z, step_size = potential.inward(settled.ensemble.x), 0.5 * min(_LARGEST_STEP, settled.step_size)
    parameters = partial(_parameters, potential, _constraint(evaluate.potential, constrain))
    capped = Capped(scheme, longest_kick(z.shape[-1]))
    for number in range(_MOST_TRIES):
        periods = max(4, periods_of(_BIAS_TIME, step_size, LEVELS))
        with evaluate.all_threads():
            kept = coupled_positions(
                sde,
                z,
                integrator=capped,
                step_size=step_size,
                levels=LEVELS,
                periods=periods,
                seed=derive_seed(seed, number),
            )
        evaluate.gradients += scheme.gradients_per_step * periods * (2**LEVELS - 1) + LEVELS
        if not bool(kept.isfinite().all()):
            raise ValueError(
                "particles left every bound at the smallest step size tried: the density is improper, or not smooth"
            )
        bias = bias_of(kept, capped, step_size, parameters)
        z, wanted = kept[-1, 0].contiguous(), bias.largest_step(tolerance)
        show(f"step size {step_size:.3g}: bias at most {bias.bound():.3f} sd")
        if wanted >= step_size or number + 1 == _MOST_TRIES or step_size <= 0.5 * LEAST_STEP:
            break
        step_size = max(0.8 * wanted, 0.25 * step_size, 0.5 * LEAST_STEP)
    # Twice the shortest step that was measured is the longest whose bias was.
    taken = min(_LARGEST_STEP, 2.0 * step_size, max(wanted, step_size))
    theta = parameters(kept[:, 0])
    forgotten, _ = memory_time(theta, step_size * 2 ** (LEVELS - 1))
    # Tails of what a user reads: a logarithm may have a long one where the parameter itself has an end.
    read = theta[..., : theta.shape[-1] - z.shape[-1]] if theta.shape[-1] > z.shape[-1] else theta
    return _Chosen(sde, scheme, taken, bias, bias.bound(taken), forgotten, z, tail_shapes(read.double()))


def _parameters(potential: AffinePotential, constrain: Callable[[Tensor], Tensor] | None, z: Tensor) -> Tensor:
    """What a user reads of particles z, and the sampler's own coordinates."""
    x = potential.outward(z)
    if constrain is None:
        return x
    points = constrain(x.reshape(-1, x.shape[-1]))
    return torch.cat((points.reshape(*x.shape[:-1], -1), x), -1)


def _constraint(
    potential: Potential, constrain: Callable[[Tensor], Tensor] | None
) -> Callable[[Tensor], Tensor] | None:
    if constrain is None and isinstance(potential, UnconstrainedPotential):
        return potential.constrain
    return constrain


def diffusion(scheme: Integrator, potential: Potential) -> Langevin | UnderdampedLangevin:
    """The diffusion that a scheme is for; overdamped if it serves both."""
    overdamped, underdamped = Langevin(potential), UnderdampedLangevin(potential, friction=FRICTION)
    if scheme.is_for(underdamped) and not scheme.is_for(overdamped):
        return underdamped
    scheme.check(overdamped)
    return overdamped


def _adjusted(evaluate: Evaluator, chosen: _Chosen, seed: int) -> tuple[_Chosen, float]:
    """The same coordinates with every step accepted or turned back, at a step that mostly is accepted."""
    sde = UnderdampedLangevin(chosen.potential, friction=FRICTION)
    step_size, steps, z, acceptance = chosen.step_size, 16, chosen.z, 0.0
    scheme = Capped(GHMC(), longest_kick(z.shape[-1]))
    for number in range(8):
        with evaluate.all_threads():
            run = sample(
                sde, z, integrator=scheme, step_size=step_size, num_steps=steps, seed=derive_seed(seed, number)
            )
        evaluate.gradients += steps + 1
        z, acceptance = run.final, run.statistics["acceptance"]
        if acceptance >= _ACCEPTANCE:
            break
        step_size *= 0.7
    bound = 0.0
    return _Chosen(sde, GHMC(), step_size, None, bound, chosen.memory_time, z, chosen.tails), acceptance


def _plan(
    evaluate: Evaluator,
    chosen: _Chosen,
    reached: Reached,
    settled: Settled,
    spent: dict[str, float],
    tolerance: float,
    acceptance: float | None,
    seed: int,
) -> Tuning:
    """The plan, and what is known of its particles."""
    potential, step_size = chosen.potential, chosen.step_size
    ensemble: Ensemble = evaluate(potential.outward(chosen.z))
    spent["check"] = 2.0  # with the one that states begin with
    pull = potential.scale.transposed(ensemble.gradient)
    scheme = Capped(chosen.scheme, longest_kick(chosen.z.shape[-1]))
    state = scheme.init(chosen.sde, 0.0, chosen.z, step_size, start_normals(seed))
    lengths = pull.norm(dim=-1)
    report = TuningReport(
        particles=len(chosen.z),
        gradients=spent,
        rounds=reached.rounds,
        restarted=reached.restarted,
        windows=settled.windows,
        calm=settled.calm,
        memory=settled.memory,
        slowest=settled.slowest,
        warmup_time=settled.time,
        drift=settled.drift,
        capped=float((step_size * lengths > scheme.cap).double().mean()),
        outside=float((~ensemble.finite).double().mean()),
        tolerance=tolerance,
        bias=chosen.bias,
        bound=chosen.bound,
        memory_time=chosen.memory_time,
        identities=identities(chosen.z.double(), pull.double()),
        tails=chosen.tails,
        metric=type(potential.scale).__name__,
        acceptance=acceptance,
    )
    return Tuning(
        potential=potential,
        sde=chosen.sde,
        integrator=scheme,
        step_size=step_size,
        length=max(1, math.ceil(chosen.memory_time / step_size)),
        state=state,
        step=0,
        seed=seed,
        report=report,
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


def _start(potential: Potential, start: Tensor | Distribution | None, particles: int, dim: int, seed: int) -> Tensor:
    like = next((t for t in (*potential.parameters(), *potential.buffers()) if t.is_floating_point()), torch.empty(0))
    if isinstance(start, Tensor) and start.is_floating_point():
        like = start
    spread = 4.0 * draw_uniform((particles, dim), seed=seed, stream=Stream.START, device=like.device) - 2.0
    spread = spread.to(like.dtype)
    if start is None:
        return spread
    if isinstance(start, Distribution):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            start = start.sample(torch.Size((particles,)))
    if not isinstance(start, Tensor) or start.shape not in ((dim,), (particles, dim)) or not start.is_floating_point():
        given = f"{start.dtype} {tuple(start.shape)}" if isinstance(start, Tensor) else type(start).__name__
        raise ValueError(f"start is a floating tensor ({particles}, {dim}) or ({dim},), or a distribution; got {given}")
    if not bool(start.isfinite().all()):
        raise ValueError(f"start has {int((~start.isfinite()).sum())} entries that are infinite or NaN")
    return start + spread if start.ndim == 1 else start.detach().clone()


class _Phases:
    """Counts what each phase spends, and shows where it is."""

    def __init__(self, evaluate: Evaluator, spent: dict[str, float], bar: Any) -> None:
        self.evaluate, self.spent, self.bar = evaluate, spent, bar

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        before = self.evaluate.gradients
        self.bar.set_description_str(f"tune: {name}")
        yield
        self.spent[name] = self.evaluate.gradients - before
        self.bar.update()

    def show(self, text: str) -> None:
        self.bar.set_postfix_str(text)


@contextmanager
def _phases(evaluate: Evaluator, spent: dict[str, float], progress: bool) -> Iterator[_Phases]:
    from tqdm import tqdm

    with tqdm(total=3, unit="phase", leave=None, disable=not progress) as bar:
        yield _Phases(evaluate, spent, bar)
