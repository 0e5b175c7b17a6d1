"""Whether the draws of a run can be trusted: look at all that a run, its SDE and its tuning can tell."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from ..blocks import torch_threads
from ..integrators import Integrator, integrator_named
from ..potentials import Potential
from ..potentials.base import is_stateful
from ..sampling import Run, check_step_size
from ..sde import BaseSDE
from ..tuning import Finding, StepBias, Tuning, step_size_bias
from ..tuning.checks import Identities
from ..tuning.ensemble import Evaluator
from . import findings
from .diagnosis import Diagnosis
from .draws import Parameters, kept_positions, named, parameters_of, read
from .errors import MANY, standard_error
from .inference_data import least_draws, ranked, ranked_chains
from .rhat import checked_superchains, rhat_over_time

# Draws that energies are looked at of, positions in all, and those of particles that are few.
_LOOKS, _EVALUATED, _EVALUATED_OF_FEW = 32, 100_000, 1000
_STARTS = 1000  # of the chains that measure a bias
_MOST_STEPS = 2000  # of those
_LEAST_STEPS = 16
_FORGOTTEN = 20  # times that those chains forget where they were
# Steps that a bias is measured with, as parts of the run's own: chains with four times a step may well be unstable
# where those with the step are not, and one that is a quarter of it looks at none that is longer.
_SHORTER = (1, 2, 4)
_ROUNDING = 1e-9  # of a mean: a parameter that varies by less is constant


def diagnose(
    run: Run,
    *,
    tuning: Tuning | None = None,
    sde: BaseSDE | None = None,
    integrator: Integrator | str | None = None,
    step_size: float | None = None,
    tolerance: float = 0.05,
    parameters: Parameters | None = None,
    names: Sequence[str] | Mapping[str, Sequence[int]] | None = None,
    superchains: Tensor | int | None = None,
    seed: int = 0,
) -> Diagnosis:
    """What speaks for the draws of a run and what against them. Print it; it warns if they should not be trusted.

    What is looked at depends on what is given. A trajectory (``sample(thin=...)``) tells whether particles have
    forgotten where they started and whether anything still moves; an SDE with a potential, whether identities hold
    that do for every density; with the integrator and the step size as well, how large the step's bias is, for which
    chains are run that cost about as much as a thousand particles of the run did. A tuned run needs its ``tuning``
    alone. A correct run is called troubled by a thing looked at with a probability of about 1/1000.

    Args:
        run: of ``torchsrk.sample``, or ``Tuning.sample``.
        tuning: the plan whose run it is: tells the SDE, the integrator, the step size, the tolerance and the bias.
        sde, integrator, step_size: that the run was made with.
        tolerance: the bias of a mean or a standard deviation, and the drift, that are allowed, in standard deviations.
        parameters: positions (..., dim) to the parameters (..., parameters) that a user reads. A potential on an
            unconstrained space has its own.
        names: of the parameters; or a dict from names to the shapes of arrays that they are the entries of, in order.
        superchains: an id for every particle, or a number of groups of neighbours, if particles started together in
            groups of one size. By default every particle counts as one with a start of its own.
        seed: of the chains that measure the bias.

    Raises:
        ValueError: there are NaNs, no draws, or arguments that do not fit.
    """
    if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)) or not 0.0 < tolerance < math.inf:
        raise ValueError(f"tolerance is a positive number, in standard deviations; got {tolerance!r}")
    known = _known(tuning, sde, integrator, step_size, tolerance, parameters)
    positions = kept_positions(run)
    checked_superchains(superchains, positions.shape[1])
    theta = read(positions, known.parameters)
    if theta.shape[0] * theta.shape[1] < 2:
        raise ValueError("a single position tells nothing: take more particles, or keep more draws")
    look = _Look(known, run, positions, theta, named(names, theta.shape[-1]), superchains, seed)
    with torch_threads(1):
        diagnosis = look.diagnosis()
    if not diagnosis.trusted:
        text = "these draws should not be trusted: " + "; ".join(diagnosis.troubles)
        warnings.warn(text, RuntimeWarning, stacklevel=2)
    return diagnosis


@dataclass(frozen=True)
class _Known:
    """What a run was made with. ``inward`` takes positions to the coordinates of the SDE."""

    sde: BaseSDE | None
    scheme: Integrator | None
    step_size: float | None
    tolerance: float
    parameters: Parameters | None
    inward: Callable[[Tensor], Tensor]
    outward: Callable[[Tensor], Tensor]
    tuning: Tuning | None = None
    own_parameters: bool = False  # those that the tuning looked at

    @property
    def potential(self) -> Potential | None:
        potential = getattr(self.sde, "potential", None)
        return potential if isinstance(potential, Potential) else None


def _known(
    tuning: Tuning | None,
    sde: BaseSDE | None,
    integrator: Integrator | str | None,
    step_size: float | None,
    tolerance: float,
    parameters: Parameters | None,
) -> _Known:
    if tuning is not None:
        if not isinstance(tuning, Tuning):
            raise TypeError(f"tuning is what torchsrk.tune gives; got {type(tuning).__name__}")
        if sde is not None or integrator is not None or step_size is not None:
            raise ValueError("a tuning has its own sde, integrator and step_size: leave them out")
        affine = tuning.potential
        return _Known(
            sde=tuning.sde,
            scheme=tuning.integrator,
            step_size=tuning.step_size,
            tolerance=tuning.report.tolerance,
            parameters=parameters or parameters_of(affine.potential),
            inward=affine.inward,
            outward=affine.outward,
            tuning=tuning,
            own_parameters=parameters is None,
        )
    if sde is not None and not isinstance(sde, BaseSDE):
        raise TypeError(f"sde is the SDE that the run was of; got {type(sde).__name__}")
    if step_size is not None:
        check_step_size(step_size)
    scheme = None if integrator is None else integrator_named(integrator)
    known = _Known(sde, scheme, step_size, tolerance, parameters, _same, _same)
    return known if parameters is not None else replace(known, parameters=parameters_of(known.potential))


def _error_over_particles(energy: Tensor) -> Tensor:
    """Of the mean of every draw, from energies (draws, particles); NaN of one particle."""
    particles = energy.shape[1]
    return energy.std(1) / math.sqrt(particles) if particles > 1 else torch.full_like(energy[:, 0], math.nan)


def _same(x: Tensor) -> Tensor:
    return x


class _Evaluated(NamedTuple):
    """Energies (draws, particles) and gradients (draws, particles, dim) at points of the SDE's coordinates."""

    x: Tensor
    energy: Tensor
    gradient: Tensor


@dataclass
class _Look:
    """One run under inspection."""

    known: _Known
    run: Run
    positions: Tensor
    theta: Tensor
    names: tuple[str, ...]
    superchains: Tensor | int | None
    seed: int

    def diagnosis(self) -> Diagnosis:
        self.found: list[Finding] = []
        self.left_out: list[str] = []
        table = self._summary()
        sd = table["sd"]
        varies = sd > _ROUNDING * (table["mean"].abs() + sd)
        self._add(
            findings.moving(self.names, (~varies).nonzero().squeeze(-1).tolist(), self.known.parameters is not None)
        )
        self.kept = varies.nonzero().squeeze(-1)
        self.moving = tuple(self.names[k] for k in self.kept.tolist())
        ess = table["ess"][self.kept]
        self.least_ess = float(ess.nan_to_num(1.0).min()) if len(ess) else 1.0
        times, over_time = rhat_over_time(self.theta, self.superchains)
        if len(self.kept):
            table |= self._forgetting(over_time)
            self._precision(ess)
            self._drift()
        bias = self._bias()
        if bias is not None:
            table |= {"bias_mean": bias.mean, "bias_mean_error": bias.mean_error}
            table |= {"bias_sd": bias.sd, "bias_sd_error": bias.sd_error}
        evaluated = self._evaluate()
        identities = None if evaluated is None else self._identities(evaluated)
        if len(self.kept):
            self._add(findings.tails(self.moving, self.theta[..., self.kept], ess))
        self._told()
        return Diagnosis(
            names=self.names,
            draws=len(self.theta),
            particles=self.theta.shape[1],
            table=table,
            times=tuple(times),
            rhat_over_time=over_time,
            energy=None if evaluated is None else evaluated.energy.mean(1),
            energy_error=None if evaluated is None else _error_over_particles(evaluated.energy),
            identities=identities,
            bias=bias,
            tolerance=self.known.tolerance,
            parameters=self.known.parameters,
            findings=tuple(self.found),
            left_out=tuple(self.left_out),
        )

    def _add(self, finding: Finding | None) -> None:
        if finding is not None:
            self.found.append(finding)

    def _summary(self) -> dict[str, Tensor]:
        rows = self.theta.flatten(0, 1)
        sd, error = rows.std(0), standard_error(self.theta)
        table = {"mean": rows.mean(0), "sd": sd, "error": error, "ess": (sd / error).square()}
        ordered = rows.sort(0).values
        for percent in (5, 50, 95):
            table[f"q{percent}"] = ordered[round(0.01 * percent * (len(rows) - 1))]
        return table

    def _precision(self, ess: Tensor) -> None:
        if bool(ess.isnan().any()):
            self.left_out.append("the Monte Carlo error: too few particles, and too few draws to cut them in batches")
        else:
            self._add(findings.precise(self.moving, ess))

    def _forgetting(self, over_time: Tensor) -> dict[str, Tensor]:
        """R-hat both ways, as columns."""
        columns: dict[str, Tensor] = {}
        theta = self.theta[..., self.kept]
        draws, particles = theta.shape[:2]
        if len(over_time) and particles > 1:
            columns["nested_rhat"] = over_time[-1]
            self._add(findings.forgotten(self.moving, theta, self.superchains))
        elif draws < 2:
            self.left_out.append("whether starts are forgotten: there is one draw of each particle. Keep more (thin=…)")
        if draws < least_draws(particles):
            self.left_out.append(
                f"rank-normalised R-hat and ESS: they need {least_draws(particles)} draws of a particle"
            )
            return columns
        try:
            ranks = ranked(theta)
        except ImportError as error:
            self.left_out.append(f"rank-normalised R-hat and ESS: {error}")
            return columns
        self._add(findings.mixed(self.moving, ranks, draws, ranked_chains(particles)))
        for name, values in ranks.items():
            columns[name] = values.new_full((len(self.names),), math.nan).index_copy(0, self.kept.cpu(), values)
        return columns

    def _drift(self) -> None:
        draws, particles = self.theta.shape[:2]
        if draws >= 2 and particles >= MANY:
            self._add(findings.still(self.moving, self.theta[..., self.kept], self.known.tolerance))
        elif draws >= 2:
            self.left_out.append(f"drift: errors over particles need {MANY} of them")

    # ------------------------------------------------------------------------------------------- the step's bias

    def _bias(self) -> StepBias | None:
        known = self.known
        if known.scheme is not None and known.scheme.law_order == math.inf:
            self._add(Finding(True, f"{known.scheme.name} has an exact law at any step size"))
            return None
        bias = self._tuned_bias() or self._measured_bias()
        if bias is not None and len(self.kept):
            finding = findings.unbiased(self.moving, _columns(bias, lambda c: c[self.kept]), known.tolerance)
            self._add(finding)
            if finding is None:
                self.left_out.append("the step's bias: its error is larger than it. Diagnose more particles or draws")
        return bias

    def _tuned_bias(self) -> StepBias | None:
        """What tuning measured, brought by the law's order to the step size that it took."""
        tuning = self.known.tuning
        if tuning is None or tuning.report.bias is None or not self.known.own_parameters:
            return None
        bias, count = tuning.report.bias, len(self.names)
        by = (tuning.step_size / bias.step_size) ** bias.law_order
        return _columns(replace(bias, step_size=tuning.step_size), lambda column: by * column[:count].double())

    def _measured_bias(self) -> StepBias | None:
        known, step_size = self.known, self.known.step_size
        if known.sde is None or known.scheme is None or step_size is None:
            self.left_out.append("the step's bias: give sde, integrator and step_size, or the tuning")
            return None
        if is_stateful(known.sde):
            self.left_out.append("the step's bias: gradients are noisy, and their noise can't be told from it")
            return None
        starts = known.inward(self._starts())
        if len(starts) < MANY:
            self.left_out.append(f"the step's bias: chains that measure it start from {MANY} draws or more")
            return None
        time = step_size * self._steps_to_measure()
        tries: list[StepBias] = []
        try:
            for shorter in _SHORTER:
                tries.append(_bias_by(known.sde, starts, known, step_size, shorter, time=time, seed=self.seed))
                if findings.plausible(tries[-1]) <= known.tolerance:
                    break
        except ValueError as error:
            self.left_out.append(f"the step's bias: {error}")
            return None
        return min(tries, key=findings.plausible)

    def _steps_to_measure(self) -> int:
        """Steps in which draws are forgotten many times over, as far as the run shows; at most its own."""
        draws_of_each = self.least_ess / self.theta.shape[1]
        wanted = min(self.run.step, math.ceil(_FORGOTTEN * self.run.step / max(1.0, draws_of_each)))
        return min(_MOST_STEPS, max(_LEAST_STEPS, wanted))

    def _starts(self) -> Tensor:
        """Positions for chains to start from, evenly from the second half of the draws."""
        late = self.positions[len(self.positions) // 2 :].flatten(0, 1)
        return late[:: max(1, len(late) // _STARTS)][:_STARTS].contiguous()

    # --------------------------------------------------------------------------------------- energies and gradients

    def _evaluate(self) -> _Evaluated | None:
        potential = self.known.potential
        if potential is None:
            self.left_out.append("energies and identities: give an sde that has a potential")
            return None
        if is_stateful(potential):
            self.left_out.append("energies and identities: the potential estimates its gradients")
            return None
        draws, particles = self.theta.shape[:2]
        looks = min(draws, max(_LOOKS, _EVALUATED_OF_FEW // particles), max(2, _EVALUATED // particles))
        at = torch.linspace(draws - 1 if looks == 1 else 0, draws - 1, looks).round().long()
        z = self.known.inward(self.positions[at.to(self.positions.device)].flatten(0, 1))
        ensemble = Evaluator(potential, len(z))(z)
        self._add(findings.inside(float((~ensemble.finite).double().mean())))
        shape = (looks, particles)
        evaluated = _Evaluated(
            z.reshape(*shape, -1).double(),
            ensemble.energy.reshape(shape).double(),
            ensemble.gradient.reshape(*shape, -1).double(),
        )
        if looks > 1 and particles >= MANY and bool(ensemble.finite.all()):
            self._add(findings.energy_still(evaluated.energy, self.known.tolerance))
        return evaluated

    def _identities(self, evaluated: _Evaluated) -> Identities | None:
        found = findings.identical(evaluated.x, evaluated.gradient, self.known.tolerance)
        if found is None:
            self.left_out.append("identities: too few particles, and too few draws to cut them in batches")
            return None
        force, virial, value, finding = found
        self._add(finding)
        return Identities(force=force, virial=virial, virial_value=value)

    def _told(self) -> None:
        """What the run has counted, and what its tuning found."""
        counted = self.run.statistics
        if "capped" in counted:
            self._add(findings.uncapped(counted["capped"]))
        if "acceptance" in counted:
            self._add(findings.accepted(counted["acceptance"]))
        if self.known.tuning is not None:
            self.found += [Finding(f.fine, f"when tuned: {f.text}") for f in self.known.tuning.report.findings]


def _bias_by(
    sde: BaseSDE, starts: Tensor, known: _Known, step_size: float, shorter: int, *, time: float, seed: int
) -> StepBias:
    """The bias of a step size, by the law's order from that of a shorter one."""
    assert known.scheme is not None
    read_as = known.parameters or _same
    bias = step_size_bias(
        sde,
        starts,
        integrator=known.scheme,
        step_size=step_size / shorter,
        time=time,
        parameters=lambda z: _rows(read_as, known.outward(z)),
        seed=seed,
    )
    by = float(shorter) ** bias.law_order
    return _columns(replace(bias, step_size=step_size), lambda column: by * column.double())


def _columns(bias: StepBias, function: Callable[[Tensor], Tensor]) -> StepBias:
    """The same bias with a function of every column."""
    columns = {name: function(getattr(bias, name)) for name in ("mean", "mean_error", "sd", "sd_error")}
    return replace(bias, **columns)


def _rows(parameters: Parameters, x: Tensor) -> Tensor:
    """Parameters of positions of any leading shape, (..., parameters)."""
    return parameters(x.reshape(-1, x.shape[-1])).reshape(*x.shape[:-1], -1)
