"""A plan to draw by: what tuning gives."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from ..integrators import GHMC, Integrator, integrator_named
from ..integrators.capped import Capped
from ..potentials import AffinePotential, Potential
from ..potentials.affine import Diagonal, LowRank, Triangular
from ..sampling import Run, sample
from ..sde import Langevin, UnderdampedLangevin
from ..targets import diffusion_for
from .report import TuningReport
from .settle import longest_kick
from .together import entry_of

if TYPE_CHECKING:
    from ..diagnostics import Diagnosis

FRICTION = 1.0  # between draws: a whitened Gaussian forgets soonest


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
        return Run(out(run.final), out(run.trajectory), run.state, run.step, run.statistics, run.time)

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
