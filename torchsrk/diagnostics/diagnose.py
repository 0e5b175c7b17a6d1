"""Whether the draws of a run can be trusted: look at all that a run, its SDE and its tuning can tell."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from ..integrators import Integrator
from ..potentials.base import is_stateful
from ..sampling import Run
from ..sde import BaseSDE
from ..tuning import Finding, StepBias, Tuning
from ..tuning.checks import Identities
from ..tuning.ensemble import Ensemble, energies_and_gradients
from . import findings
from .bias import columns_of, measured_bias, starts_from, steps_to_measure, tuned_bias
from .diagnosis import Diagnosis
from .draws import Parameters, kept_positions, named, read
from .errors import MANY, standard_error
from .inference_data import least_draws, ranked, ranked_chains
from .known import Known, known_of
from .rhat import checked_superchains, rhat_over_time

# Draws that energies are looked at of, positions in all, and those of particles that are few.
_LOOKS, _EVALUATED, _EVALUATED_OF_FEW = 32, 100_000, 1000
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
        parameters: positions (..., dim) to the parameters (..., parameters) that a user reads. A run of a plan has its
            own, and a potential on an unconstrained space; ``parameters=lambda x: x`` reads the positions.
        names: of the parameters; or a dict from names to the shapes of arrays that they are the entries of, in order.
        superchains: an id for every particle, or a number of groups of neighbours, if particles started together in
            groups of one size. By default every particle counts as one with a start of its own.
        seed: of the chains that measure the bias.

    Raises:
        ValueError: there are NaNs, no draws, or arguments that do not fit.
    """
    if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)) or not 0.0 < tolerance < math.inf:
        raise ValueError(f"tolerance is a positive number, in standard deviations; got {tolerance!r}")
    positions = kept_positions(run)
    known = known_of(run, tuning, sde, integrator, step_size, tolerance, parameters)
    checked_superchains(superchains, positions.shape[1])
    theta = read(positions, known.parameters)
    if theta.shape[0] * theta.shape[1] < 2:
        raise ValueError("a single position tells nothing: take more particles, or keep more draws")
    look = _Look(known, run, positions, theta, named(names, theta.shape[-1]), superchains, seed)
    diagnosis = look.diagnosis()
    if not diagnosis.trusted:
        text = "these draws should not be trusted: " + "; ".join(diagnosis.troubles)
        warnings.warn(text, RuntimeWarning, stacklevel=2)
    return diagnosis


def _summary(theta: Tensor) -> dict[str, Tensor]:
    """Moments, quantiles and errors, as columns."""
    rows = theta.flatten(0, 1)
    mean, sd, error = rows.mean(0), rows.std(0), standard_error(theta)
    sd_error = standard_error((theta - mean).square()) / (2.0 * sd)
    table = {"mean": mean, "sd": sd, "error": error, "sd_error": sd_error, "ess": (sd / error).square()}
    ordered = rows.sort(0).values
    for percent in (5, 50, 95):
        table[f"q{percent}"] = ordered[round(0.01 * percent * (len(rows) - 1))]
    return table


def _error_over_particles(energy: Tensor) -> Tensor:
    """Of the mean of every draw, from energies (draws, particles); NaN of one particle."""
    particles = energy.shape[1]
    return energy.std(1) / math.sqrt(particles) if particles > 1 else torch.full_like(energy[:, 0], math.nan)


class _Evaluated(NamedTuple):
    """Energies (draws, particles) and gradients (draws, particles, dim) at points of the SDE's coordinates."""

    x: Tensor
    energy: Tensor
    gradient: Tensor


@dataclass
class _Look:
    """One run under inspection: what was found of it, and what could not be looked at."""

    known: Known
    run: Run
    positions: Tensor
    theta: Tensor
    names: tuple[str, ...]
    superchains: Tensor | int | None
    seed: int
    found: list[Finding] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.table = _summary(self.theta)
        mean, sd = self.table["mean"], self.table["sd"]
        varies = sd > _ROUNDING * (mean.abs() + sd)
        self.kept = varies.nonzero().squeeze(-1)
        self.moving = tuple(self.names[k] for k in self.kept.tolist())
        constant = (~varies).nonzero().squeeze(-1).tolist()
        self._add(findings.moving(self.names, constant, self.known.parameters is not None))

    def diagnosis(self) -> Diagnosis:
        times, over_time = rhat_over_time(self.theta, self.superchains)
        if len(self.kept):
            self._forgetting(over_time)
            self._precision()
            self._drift()
        bias = self._bias()
        if bias is not None:
            self.table |= {"bias_mean": bias.mean, "bias_mean_error": bias.mean_error}
            self.table |= {"bias_sd": bias.sd, "bias_sd_error": bias.sd_error}
        evaluated = self._evaluate()
        identities = None if evaluated is None else self._identities(evaluated)
        if len(self.kept):
            self._add(findings.tails(self.moving, self.theta[..., self.kept], self.table["ess"][self.kept]))
        self._told()
        return Diagnosis(
            names=self.names,
            draws=len(self.theta),
            particles=self.theta.shape[1],
            table=self.table,
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

    def _precision(self) -> None:
        ess = self.table["ess"][self.kept]
        if bool(ess.isnan().any()):
            self.left_out.append("the Monte Carlo error: too few particles, and too few draws to cut them in batches")
        else:
            spread = (self.table["sd_error"] / self.table["sd"])[self.kept]
            self._add(findings.precise(self.moving, ess, spread))

    def _forgetting(self, over_time: Tensor) -> None:
        """R-hat both ways."""
        theta = self.theta[..., self.kept]
        draws, particles = theta.shape[:2]
        if len(over_time) and particles > 1:
            self.table["nested_rhat"] = over_time[-1]
            self._add(findings.forgotten(self.moving, theta, self.superchains))
        elif draws < 2:
            self.left_out.append("whether starts are forgotten: there is one draw of each particle. Keep more (thin=…)")
        if draws < least_draws(particles):
            self.left_out.append(f"rank-normalised R-hat and ESS: they need {least_draws(particles)} draws a particle")
            return
        try:
            ranks = ranked(theta)
        except ImportError as error:
            self.left_out.append(f"rank-normalised R-hat and ESS: {error}")
            return
        self._add(findings.mixed(self.moving, ranks, draws, ranked_chains(particles)))
        for name, values in ranks.items():
            self.table[name] = values.new_full((len(self.names),), math.nan).index_copy(0, self.kept, values)

    def _drift(self) -> None:
        draws, particles = self.theta.shape[:2]
        if draws >= 2 and particles >= MANY:
            self._add(findings.still(self.moving, self.theta[..., self.kept], self.known.tolerance))
        elif draws >= 2:
            self.left_out.append(f"drift: errors over particles need {MANY} of them")

    # ------------------------------------------------------------------------------------------- the step's bias

    def _bias(self) -> StepBias | None:
        scheme = self.known.scheme
        if scheme is not None and scheme.law_order == math.inf:
            self._add(Finding(True, f"{scheme.name} has an exact law at any step size"))
            return None
        bias = tuned_bias(self.known, len(self.names)) or self._measured_bias()
        if bias is None or not len(self.kept):
            return bias
        finding = findings.unbiased(self.moving, columns_of(bias, lambda c: c[self.kept]), self.known.tolerance)
        self._add(finding)
        if finding is None:
            self.left_out.append("the step's bias: its error is larger than it. Diagnose more particles or draws")
        return bias

    def _measured_bias(self) -> StepBias | None:
        sde, scheme, step_size = self.known.sde, self.known.scheme, self.known.step_size
        if sde is None or scheme is None or step_size is None:
            self.left_out.append("the step's bias: give sde, integrator and step_size, or the tuning")
            return None
        if is_stateful(sde):
            self.left_out.append("the step's bias: gradients are noisy, and their noise can't be told from it")
            return None
        starts = self.known.inward(starts_from(self.positions))
        if len(starts) < MANY:
            self.left_out.append(f"the step's bias: chains that measure it start from {MANY} draws or more")
            return None
        ess = self.table["ess"][self.kept].nan_to_num(1.0)
        steps = steps_to_measure(self.run.step, float(ess.min()) / self.theta.shape[1] if len(ess) else 1.0)
        try:
            return measured_bias(self.known, sde, scheme, step_size, starts=starts, steps=steps, seed=self.seed)
        except ValueError as error:
            self.left_out.append(f"the step's bias: {error}")
            return None

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
        ensemble = Ensemble.found(z, *energies_and_gradients(potential, z))
        self._add(findings.inside(float((~ensemble.finite).double().mean())))
        shape = (looks, particles)
        evaluated = _Evaluated(
            z.reshape(*shape, -1).cpu().double(),
            ensemble.energy.reshape(shape).cpu().double(),
            ensemble.gradient.reshape(*shape, -1).cpu().double(),
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
