"""What tuning found, in numbers and in words."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from .bias import StepBias
from .checks import Identities

_MOST_CAPPED = 0.01
_REMEMBERED = 0.2
_MOST_DEVIATION = 5.0  # standard errors, for identities over all coordinates
_TAIL, _TAIL_ERROR = (
    0.03,
    3.5,
)  # 0.12 of one parameter and 0.22 of ten, by 1,000 particles; no fourth moments from 1/4 on


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        fine: whether it is as it should be.
        text: what was found, and what to do if it is not fine.
        about: the parameters that it names.
    """

    fine: bool
    text: str
    about: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{'fine   ' if self.fine else 'TROUBLE'}  {self.text}"


class Judged:
    """What has findings, and by them a verdict."""

    findings: tuple[Finding, ...]

    @property
    def trusted(self) -> bool:
        """Whether nothing speaks against the draws."""
        return all(finding.fine for finding in self.findings)

    @property
    def troubles(self) -> list[str]:
        """What speaks against them."""
        return [finding.text for finding in self.findings if not finding.fine]

    @property
    def verdict(self) -> str:
        """Both in a sentence."""
        return "Nothing speaks against these draws." if self.trusted else "These draws should not be trusted as is."


@dataclass(frozen=True)
class TuningReport(Judged):
    """What a plan stands on.

    Attributes:
        particles: how many.
        gradients: a particle, in all, by phase.
        rounds, restarted: of the descent to the typical set, and the share of particles that started again at others.
        windows, calm: of settling.
        memory, slowest, warmup_time: the largest correlation with where particles were at half of the warm-up, of
            which coordinate, and how long that was, in whitened time.
        drift: of means and second moments since then, in standard errors.
        capped: the share of kicks that were capped at the plan's step size.
        outside: the share of particles where the density is 0 or NaN.
        tolerance, bias, bound: the bias allowed, what was measured, and the largest one plausible at the plan's step.
        memory_time: after which draws hardly know of one another.
        identities: E[g] = 0 and E[(x - x̄)g] = 1.
        tails: how heavy they are, (2, parameters): the shape of the outer tenth on either side.
        acceptance: of the adjusted phase, if there is one.
        metric: the form of the metric: Diagonal, LowRank or Triangular.
    """

    particles: int
    gradients: dict[str, float]
    rounds: int
    restarted: float
    windows: int
    calm: bool
    memory: float
    slowest: int
    warmup_time: float
    drift: float
    capped: float
    outside: float
    tolerance: float
    bias: StepBias | None
    bound: float
    memory_time: float
    identities: Identities
    tails: Tensor
    metric: str
    acceptance: float | None = None
    findings: tuple[Finding, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "findings", tuple(self._look()))

    @staticmethod
    def restored(state: dict[str, Any]) -> TuningReport:
        """The report that ``dataclasses.asdict`` made this of."""
        parts = {name: value for name, value in state.items() if name != "findings"}
        parts["bias"] = None if parts["bias"] is None else StepBias(**parts["bias"])
        parts["identities"] = Identities(**parts["identities"])
        return TuningReport(**parts)

    def __str__(self) -> str:
        spent = ", ".join(f"{count:.0f} to {phase}" for phase, count in self.gradients.items())
        lines = [f"{sum(self.gradients.values()):.0f} gradients a particle: {spent}; a {self.metric.lower()} metric"]
        lines += [str(finding) for finding in self.findings]
        return "\n".join([*lines, self.verdict])

    def _look(self) -> list[Finding]:
        found = [self._inside(), self._forgotten(), self._still(), self._uncapped(), self._unbiased()]
        found += [self._identical(), self._tails()]
        return [finding for finding in found if finding is not None]

    def _inside(self) -> Finding | None:
        if self.outside == 0.0:
            return None
        return Finding(
            False,
            f"{self.outside:.1%} of the particles are where the density is 0 or NaN: it has an edge, that a diffusion "
            "does not see. Give its support, so that it is sampled through a bijection",
        )

    def _forgotten(self) -> Finding:
        seen = (
            f"coordinate {self.slowest} has a correlation of {self.memory:.2f} with itself {self._half():.0f} units ago"
        )
        fine = self.memory < _REMEMBERED
        if fine:
            return Finding(True, f"particles have forgotten where they were at half the warm-up: {seen}")
        if self.memory > 0.7:
            why = "There are modes that they do not cross between, whose shares are those of the start, or a direction"
            why += " in which they hardly move"
        else:
            why = "There is a direction in which they move slowly"
        return Finding(
            False,
            f"particles remember where they were: {seen}. {why}. Reparametrise (a funnel wants its non-centred form)",
        )

    def _still(self) -> Finding:
        fine = self.drift < 5.0
        seen = f"means and second moments moved by at most {self.drift:.1f} standard errors in {self._half():.0f} units"
        return Finding(fine, seen if fine else f"{seen}: the warm-up ended before they were settled")

    def _half(self) -> float:
        return 0.5 * self.warmup_time

    def _uncapped(self) -> Finding:
        fine = self.capped <= _MOST_CAPPED
        seen = f"{self.capped:.2%} of kicks were capped"
        why = "gradients are far steeper in some places than one metric can serve, as in the neck of a funnel"
        return Finding(fine, seen if fine else f"{seen}: {why}. Reparametrise")

    def _unbiased(self) -> Finding | None:
        if self.bias is None:
            return None
        at, kind, bias, error = self.bias.worst()
        stretch = self.bound / max(self.bias.bound(), 1e-300)
        read = self.tails.shape[-1]  # what a user reads comes first, and then the sampler's own coordinates
        name = f"parameter {at}" if at < read else f"unconstrained coordinate {at - read}"
        seen = (
            f"the step size biases no mean or standard deviation by more than {self.bound:.3f} sd (the worst: the "
            f"{kind} of {name}, {stretch * bias:+.3f} ± {stretch * error:.3f})"
        )
        fine = self.bound <= self.tolerance * (1.0 + 1e-9)
        if fine:
            return Finding(True, seen)
        return Finding(
            False, f"{seen}, and {self.tolerance:g} is allowed: the bias does not settle as steps get shorter"
        )

    def _identical(self) -> Finding:
        worst = self.identities.worst()
        # The largest of so many normals.
        allowed = _MOST_DEVIATION + 0.5 * math.log10(2 * len(self.identities.force))
        seen = f"E[g] = 0 and E[(x - x̄)g] = 1 hold within {worst:.1f} standard errors"
        fine = worst <= allowed
        return Finding(fine, seen if fine else f"{seen}: the particles do not have the density's law")

    def _tails(self) -> Finding:
        heaviest = self.tails.amax(0)
        at, value = int(heaviest.argmax()), float(heaviest.max())
        seen = f"the heaviest tail, of parameter {at}, has the shape {value:.2f}"
        # The largest of so many estimates.
        allowed = _TAIL + _TAIL_ERROR * math.sqrt(math.log(heaviest.numel() * 2) / self.particles)
        if value <= allowed:
            return Finding(True, f"{seen}, and {allowed:.2f} is heavy")
        return Finding(
            False,
            f"{seen}, as a Student-t with {1.0 / value:.0f} degrees of freedom: its standard deviation hangs on a few "
            "rare draws. Read its quantiles",
        )
