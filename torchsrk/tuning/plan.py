"""A plan to draw by: what tuning gives."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from ..integrators import GHMC, Integrator, integrator_named
from ..integrators.capped import Capped
from ..potentials import AffinePotential, Potential
from ..potentials.affine import Diagonal, LowRank, Triangular
from ..potentials.unconstrained import Constrained
from ..sampling import Run, sample
from ..sde import Langevin, UnderdampedLangevin
from ..targets import diffusion_for
from .likeness import gradients_seen, how_other
from .report import TuningReport
from .settle import longest_kick
from .together import entry_of

if TYPE_CHECKING:
    from ..diagnostics import Diagnosis

FRICTION = 1.0  # between draws: a whitened Gaussian forgets soonest


def reading_of(potential: Potential, constrain: Callable[[Tensor], Tensor] | None) -> Callable[[Tensor], Tensor] | None:
    """What takes positions to the parameters that are read: what was given, or what the potential says."""
    if constrain is None and isinstance(potential, Constrained):
        return potential.constrain
    return constrain


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
        seen: gradients of a few states, by which ``restored`` knows the density again.
        constrain: positions to the parameters that are read, as it was given to ``tune``, or as the potential has it;
            None where they are the positions. Runs of this plan carry it.
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
    seen: Tensor
    constrain: Callable[[Tensor], Tensor] | None = None

    @cached_property
    def mark(self) -> str:
        """What tells runs of this plan from those of others: a digest of its coordinates and numbers."""
        numbers = hashlib.sha256(repr((self.step_size, self.length, self.seed)).encode())
        for tensor in (self.potential.loc, *self.potential.scale.buffers()):
            numbers.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return numbers.hexdigest()[:16]

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
        if after is not None:
            self.check_own(after)
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
        final, trajectory = out(run.final), out(run.trajectory)
        return replace(run, final=final, trajectory=trajectory, constrain=self.constrain, plan=self.mark)

    def check_own(self, run: Run) -> None:
        """One clear error for a run to go on from that is none, or another plan's."""
        if not isinstance(run, Run):
            raise TypeError(
                f"after is a Run of this plan, such as plan.sample(10) gives; got {type(run).__name__}. A trajectory "
                "has positions alone: draws go on from the state of the Run that it is of"
            )
        if run.plan not in (None, self.mark):
            raise ValueError(
                "after is a run of another plan, whose coordinates are not those of this one: go on by the plan that "
                "drew it, or tune with start=run.final"
            )
        if run.state.shape[1:] != self.state.shape[1:]:
            raise ValueError(
                f"after is a run with states {tuple(run.state.shape)}, and those of this plan are "
                f"{tuple(self.state.shape)}: give a run that plan.sample made"
            )

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
            "seen": self.seen,
        }

    @staticmethod
    def restored(
        target: Potential,
        state: dict[str, Any],
        integrator: Integrator | str = "baoab",
        *,
        constrain: Callable[[Tensor], Tensor] | None = None,
    ) -> Tuning:
        """The plan whose ``state_dict`` this is, for the same density and scheme, and ``constrain`` if it was given.

        Raises:
            ValueError: the density is another one, by its gradients at a few of the states.
        """
        plan = Tuning.restored_unchecked(target, state, integrator, constrain)
        if "seen" not in state:
            warnings.warn(
                "this plan was saved without gradients of its density: it can't be told whether the one given here is "
                "the same",
                RuntimeWarning,
                stacklevel=2,
            )
            return replace(plan, seen=plan.gradients_now())
        if not plan.is_current:
            raise ValueError(
                "this plan was tuned for another density: gradients at its states are not those that it was saved "
                "with. Give the potential of before, data and all, or tune this one; tune(..., start=plan.positions) "
                "starts from the particles of the plan that was saved"
            )
        return plan

    @property
    def is_current(self) -> bool:
        """Whether the density is still the one that was tuned, as one with parameters that are trained is not."""
        return how_other(self.gradients_now(), self.seen) <= 1.0

    def gradients_now(self) -> Tensor:
        """What ``seen`` would be of the density as it is."""
        return gradients_seen(self.potential, self.state[..., : self.potential.loc.shape[-1]])

    @staticmethod
    def restored_unchecked(
        target: Potential,
        state: dict[str, Any],
        integrator: Integrator | str,
        constrain: Callable[[Tensor], Tensor] | None = None,
    ) -> Tuning:
        """``restored``, for those who look at the density themselves."""
        reports = tuple(TuningReport.restored(report) for report in state["reports"])
        scheme = GHMC() if reports[0].acceptance is not None else integrator_named(integrator)
        scale = dict(state["scale"])
        form = {kind.__name__: kind for kind in (Diagonal, LowRank, Triangular)}[scale.pop("form")]
        potential = AffinePotential(target, state["loc"], form(**scale))
        seen = state.get("seen")
        if seen is None:  # like no density: whoever looks tunes anew
            seen = torch.full_like(state["loc"], math.nan)
        return Tuning(
            potential=potential,
            sde=diffusion_for(scheme, potential, FRICTION),
            integrator=Capped(scheme, longest_kick(state["loc"].shape[-1])),
            reports=reports,
            seen=seen,
            constrain=reading_of(target, constrain),
            **{name: state[name] for name in ("step_size", "length", "state", "step", "seed")},
        )

    def __repr__(self) -> str:
        trusted = "trusted" if self.trusted else "NOT trusted"
        targets = f", targets={len(self.reports)}" if len(self.reports) > 1 else ""
        return (
            f"Tuning({self.integrator}, step_size={self.step_size:.3g}, length={self.length}, "
            f"particles={len(self.state)}{targets}, {trusted})"
        )
