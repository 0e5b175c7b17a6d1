"""What a run was made with, as far as it is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor

from ..integrators import Integrator, integrator_named
from ..potentials import Potential
from ..sampling import Run, check_step_size
from ..sde import BaseSDE
from ..tuning import Tuning
from .draws import Parameters, parameters_for, parameters_of


def same(x: Tensor) -> Tensor:
    """x."""
    return x


@dataclass(frozen=True)
class Known:
    """The diffusion and the scheme of a run, and what is read of it.

    Attributes:
        sde, scheme, step_size: None where they are not known.
        tolerance: the bias that is allowed.
        parameters: positions to what is read; None if that is the positions.
        inward, outward: from positions to the coordinates of the SDE, and back.
        tuning: the plan, if there is one.
        as_tuned: whether what is read is what the tuning looked at.
    """

    sde: BaseSDE | None
    scheme: Integrator | None
    step_size: float | None
    tolerance: float
    parameters: Parameters | None
    inward: Callable[[Tensor], Tensor] = same
    outward: Callable[[Tensor], Tensor] = same
    tuning: Tuning | None = None
    as_tuned: bool = False

    @property
    def potential(self) -> Potential | None:
        """The SDE's, if it has one."""
        potential = getattr(self.sde, "potential", None)
        return potential if isinstance(potential, Potential) else None

    def read(self, z: Tensor) -> Tensor:
        """What is read of coordinates z (..., dim) of the SDE, (..., parameters)."""
        x = self.outward(z)
        if self.parameters is None:
            return x
        return self.parameters(x.reshape(-1, x.shape[-1])).reshape(*x.shape[:-1], -1)


def known_of(
    run: Run,
    tuning: Tuning | None,
    sde: BaseSDE | None,
    integrator: Integrator | str | None,
    step_size: float | None,
    tolerance: float,
    parameters: Parameters | None,
) -> Known:
    """All that ``diagnose`` is told of how a run was made, if it fits together."""
    if tuning is not None:
        if not isinstance(tuning, Tuning):
            raise TypeError(f"tuning is what torchsrk.tune gives; got {type(tuning).__name__}")
        if sde is not None or integrator is not None or step_size is not None:
            raise ValueError("a tuning has its own sde, integrator and step_size: leave them out")
        return Known(
            sde=tuning.sde,
            scheme=tuning.integrator,
            step_size=tuning.step_size,
            tolerance=tuning.report.tolerance,
            parameters=parameters or parameters_for(run, tuning),
            inward=tuning.potential.inward,
            outward=tuning.potential.outward,
            tuning=tuning,
            as_tuned=parameters is None,
        )
    if sde is not None and not isinstance(sde, BaseSDE):
        raise TypeError(f"sde is the SDE that the run was of; got {type(sde).__name__}")
    if step_size is not None:
        check_step_size(step_size)
    known = Known(sde, None if integrator is None else integrator_named(integrator), step_size, tolerance, parameters)
    if parameters is not None:
        return known
    return replace(known, parameters=parameters_for(run, None) or parameters_of(known.potential))
