"""Moments of a chain over its steps, with what noise leaves open.

A chain on the target and one on the Gaussian of the same moments take the same noise and stay close, so that the mean
of their difference is known far better than either; the Gaussian's own moments are exact where the scheme is linear
there (linear.py), and come from many cheap particles where it is not.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..brownian.noise import derive_seed
from ..integrators import OBABO, Integrator, integrator_named, registered
from ..potentials import Potential
from ..sampling import NonFiniteStateError, Run, sample
from ..sde import Langevin, UnderdampedLangevin
from .base import Context
from .linear import LinearScheme, probe
from .scheme_targets import Case, Target

BATCHES = 50  # of particles, whose scatter tells the noise
_MORE = 10  # times as many pairs of chains that reject, as these come apart
_LONG = 50  # steps from which on compiling a dear gradient pays
_KEPT = 150  # points of time at which moments are taken
_OWN, _LEVEL = 0, 1  # seeds of a pair of chains, and of the many on the Gaussian alone


def scheme_named(name: str) -> Integrator:
    """A scheme by its name here: "obabo-2" is OBABO with two gradients a step."""
    return OBABO(stages=2) if name == "obabo-2" else integrator_named(name)


def scheme_names() -> list[str]:
    """Schemes that sample from a potential: those of the registry, the user's own too, and the one that is named
    here."""
    classes = (Langevin, UnderdampedLangevin)
    own = {name: scheme for name, scheme in registered().items() if "additive" in scheme.noise_types}
    served = [name for name, scheme in own.items() if any(issubclass(kind, scheme.serves) for kind in classes)]
    return sorted([*served, "obabo-2"])


def has_momentum(scheme: Integrator) -> bool:
    return UnderdampedLangevin in scheme.serves


def sde_of(scheme: Integrator, potential: Potential, friction: float) -> Langevin | UnderdampedLangevin:
    """The diffusion that the scheme is for."""
    if has_momentum(scheme):
        return UnderdampedLangevin(potential, friction=friction)
    return Langevin(potential)


@dataclass(frozen=True)
class Trace:
    """Means and second moments about the true mean, in standard deviations and variances, at points of time.

    Attributes:
        steps: made before each point, (points,).
        estimates: (points, batches, 2, groups), independent over batches; with one batch they are exact.
        others: of the same shape but for batches, estimates of a part that was added: their noise counts too.
    """

    steps: Tensor
    estimates: Tensor
    others: Tensor | None = None

    def tail(self) -> Trace:
        """Averages over the last third."""
        first = 2 * len(self.steps) // 3
        others = None if self.others is None else self.others[first:].mean(0, keepdim=True)
        return Trace(self.steps[-1:], self.estimates[first:].mean(0, keepdim=True), others)

    def values(self) -> tuple[Tensor, Tensor]:
        """The estimates and their standard errors, (points, 2, groups)."""
        square = _squared_error(self.estimates)
        if self.others is not None:
            square = square + _squared_error(self.others)
        return self.estimates.mean(1), square.sqrt()


def _squared_error(estimates: Tensor) -> Tensor:
    batches = estimates.shape[1]
    return estimates.var(1) / batches if batches > 1 else torch.zeros_like(estimates[:, 0])


@dataclass(frozen=True)
class Chains:
    """How chains of one scheme on one target are run."""

    case: Case
    target: Target
    scheme: Integrator
    friction: float
    context: Context

    def linear(self, h: float) -> LinearScheme | None:
        """The scheme on the Gaussian of the target's moments."""
        sde = sde_of(self.scheme, self.case.modes(), self.friction)
        return probe(sde, self.scheme, step_size=h, modes=len(self.case.mean))

    def trace(self, h: float, steps: int, law: LinearScheme | None) -> Trace | None:
        """Moments over so many steps, or a few more; None if the chain exploded. ``law`` is the scheme's on the
        Gaussian, and None if it is not linear."""
        every = math.ceil(steps / _KEPT)
        steps = every * math.ceil(steps / every)
        times = torch.arange(every, steps + 1, every)
        is_helped = self.case.is_dear if law is None else law.growth() < 1.0
        if self.case.companion is None or not is_helped:
            # Few are enough to see that a step is too long for a Gaussian, and for this.
            is_known = self.case.companion is not None and law is not None
            count = self.target.particles if is_known else self.target.many
            own = self._run(self.case.potential, h, steps, every, count, _OWN)
            return None if own is None else Trace(times, own)
        count = self.target.particles * (1 if law is not None else _MORE)
        pair = [
            self._run(potential, h, steps, every, count, _OWN)
            for potential in (self.case.potential, self.case.companion)
        ]
        if pair[0] is None or pair[1] is None:
            return None
        difference = pair[0] - pair[1]
        if law is not None:
            exact = self.exact(law, steps)[every - 1 :: every]
            return Trace(times, difference + exact.unsqueeze(1))
        level = self._run(self.case.companion, h, steps, every, self.target.many, _LEVEL)
        return None if level is None else Trace(times, difference + level.mean(1, keepdim=True), level)

    def exact(self, law: LinearScheme, steps: int) -> Tensor:
        """Of the linear scheme after every step, (steps, 2, groups)."""
        deviation = self.case.curvatures.rsqrt()
        mean, second = law.trace(self.target.start * deviation, steps)
        return torch.stack((mean / deviation, second / deviation.square()), 1) @ self.case.groups

    def _run(self, potential: Potential, h: float, steps: int, every: int, particles: int, seed: int) -> Tensor | None:
        """(points, batches, 2, groups)."""
        kept: list[Tensor] = []

        def keep(step: int, x: Tensor) -> None:
            if step % every == 0:
                scaled = self.case.standardized(x).view(BATCHES, -1, x.shape[-1])
                both = torch.stack((scaled.mean(1), scaled.square().mean(1)), 1)
                kept.append(both.double().cpu() @ self.case.groups)

        size = BATCHES * math.ceil(particles / BATCHES)
        start = self.case.start(self.target.start).to(self.context.device, self.context.dtype).repeat(size, 1)
        try:
            run_quietly(self, potential, start, h, steps, seed, keep)
        except NonFiniteStateError:
            return None
        moments = torch.stack(kept)
        return moments if bool(moments.isfinite().all()) else None


def run_quietly(
    chains: Chains, potential: Potential, start: Tensor, h: float, steps: int, seed: int, *callbacks: object
) -> Run:
    """Compiled if that pays, and if it can be: an eager run gives the same numbers, to rounding."""
    # "auto" goes by the size of the state, and does not see that a gradient reads a thousand observations.
    is_long = chains.case.is_dear and potential is chains.case.potential and steps > _LONG
    compile: bool | Literal["auto"] = chains.context.compile and (is_long or "auto")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return sample(
            sde_of(chains.scheme, potential, chains.friction),
            start,
            integrator=chains.scheme,
            step_size=h,
            num_steps=steps,
            seed=derive_seed(chains.context.seed, seed),
            callbacks=callbacks,  # type: ignore[arg-type]
            compile=compile,
        )
