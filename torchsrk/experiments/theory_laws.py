"""W2 of the chains that bounds are about after any number of steps, without sampling, and the fewest steps for W2 ≤ ε.

Where an exact law is not known, what is told is no more than W2: moments alone, or those of every block of coordinates.
So steps needed are never too many, and a bound that is below is refuted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice

import torch
from torch import Tensor

from ..integrators import integrator_named
from ..sde import UnderdampedLangevin
from ..theory import non_convex_constants, underdamped
from .laws import LineMixture, gaussian_errors, invariant_error, line_errors, linear_step, steps_below
from .linear import gaussian_w2, probe
from .rate_targets import LINES, PAIRS, block_from, block_of, law_from
from .scheme_targets import Quadratic, even_curvatures
from .spectral import Block, Fineness
from .targets import SEPARATION
from .theory_targets import Settings, hills_of, minimiser_of, potential_of, smoothness_of
from .transfer import LineNonConvex, invariant_w2, line_w2

LONGEST = 40_000  # steps that a search follows a law for
OVERDAMPED = ("em", "srk-ld", "srk-id")
_FOREVER = 10**12  # steps
_EVERY = 300  # steps from the first on that a bound is held against, and then so many in a decade
_PER_DECADE = 24
_WORSE = 2.0  # times the fewest steps, of all ε, at which a search ends
# Of the regression with momentum: degree 6 changes Cheng's W2 by 2 parts in 1,000 at most.
_NEARLY_NORMAL = Fineness(4, 4, 2, (("W", 3), ("H", 3), ("Z", 3), ("u", 4)))
_FLOOR = 4e-4  # what this degree leaves of W2 at any step size, however short


@dataclass(frozen=True)
class Law:
    """W2 after these many steps, rising; that of the law kept in the end; and what is left of the start's after a step,
    by its logarithm with a minus."""

    after: Callable[[Sequence[int]], Tensor]
    kept: Callable[[], float]
    decay: float
    floor: float = 0.0  # W2 that the computation may make up

    def settled(self, settings: Settings) -> int:
        """The steps after which a hundredth of the least ε is left of the start."""
        return math.ceil(math.log(100.0 * settings.shift / min(settings.errors)) / self.decay)


@lru_cache(maxsize=8)
def law_of(settings: Settings, target: str, scheme: str, h: float) -> Law | None:
    """Of a scheme from this start; None where it is too wide for moments of polynomials to tell.

    The midpoint's law on a Gaussian is taken as the Gaussian of its moments.
    """
    if target == "gaussian":
        return _gaussian_law(settings, scheme, h)
    if target == "mixture":
        return (_mixture_law if scheme in OVERDAMPED else _mixture_law_with_momentum)(settings, scheme, h)
    if target == "regression":
        block, start = _regression(settings)
        fineness = PAIRS[False] if scheme in OVERDAMPED else _NEARLY_NORMAL
        return _by_moments(
            smoothness_of(settings, target).smoothness, scheme, h, [(block, start, 1)], fineness, floor=_FLOOR
        )
    line, found = LineNonConvex(settings.beta, settings.gamma), integrator_named(scheme)
    of = partial(line_w2, line, found, step_size=h, start=settings.shift)
    return Law(
        lambda steps: of(steps=steps[-1])[torch.tensor(steps) - 1],
        partial(invariant_w2, line, found, step_size=h, fineness=0.5),
        non_convex_constants(hills_of(settings)).contraction * h,
    )


def _gaussian_law(settings: Settings, scheme: str, h: float) -> Law:
    curvatures = even_curvatures(settings.dim, settings.condition)
    if scheme in OVERDAMPED:

        def exact(steps: Sequence[int]) -> Tensor:
            of = partial(gaussian_errors, scheme, step_size=h, mean=settings.shift, variance=0.0)
            each = [of(curvature=float(curvature), steps=torch.tensor(steps)) for curvature in curvatures]
            return torch.stack(each).sum(0).sqrt()

        return Law(exact, lambda: float(exact([_FOREVER])), h)
    potential = Quadratic(torch.zeros_like(curvatures), curvatures)
    sde = UnderdampedLangevin(potential, friction=underdamped.FRICTION, u=1.0 / settings.condition)
    found = probe(sde, integrator_named(scheme), step_size=h, modes=settings.dim)
    assert found is not None

    def by_moments(steps: Sequence[int]) -> Tensor:
        moments = found.trace(torch.full_like(curvatures, settings.shift), steps[-1])
        return gaussian_w2(*moments, curvatures.rsqrt())[torch.tensor(steps) - 1]

    def kept() -> float:
        return float(gaussian_w2(torch.zeros_like(curvatures), found.stationary(), curvatures.rsqrt()))

    return Law(by_moments, kept, h / (2.0 * settings.condition))


def _mixture_law(settings: Settings, scheme: str, h: float) -> Law:
    def exact(steps: Sequence[int]) -> Tensor:
        line = line_errors(LineMixture(SEPARATION), scheme, step_size=h, mean=settings.shift, deviation=1.0)
        along = torch.tensor(list(islice(line, steps[-1])), dtype=torch.float64)[torch.tensor(steps) - 1]
        factor, noise = linear_step(scheme, step_size=h, curvature=1.0)
        decay = factor ** (2.0 * torch.tensor(steps, dtype=torch.float64))
        spread = (decay + (1.0 - decay) * noise / (1.0 - factor**2)).sqrt()
        return (along + (settings.dim - 1) * (spread - 1.0).square()).sqrt()

    def kept() -> float:
        return math.sqrt(invariant_error(scheme, separation=SEPARATION, dim=settings.dim, step_size=h))

    return Law(exact, kept, (1.0 - SEPARATION**2) * h)


def _mixture_law_with_momentum(settings: Settings, scheme: str, h: float) -> Law | None:
    """Over blocks squared W2 distances add up, of laws that are no products to no more than W2²."""
    one, shift = torch.ones(1, dtype=torch.float64), torch.full((1,), settings.shift, dtype=torch.float64)
    along, across = (block_of("mixture", name) for name in ("along", "across"))
    blocks = [(along, (shift, one), 1), (across, (0.0 * one, one), settings.dim - 1)]
    return _by_moments(1.0, scheme, h, blocks, LINES[True], floor=1e-6)


Start = tuple[Tensor, Tensor]  # mean and deviations of normals


def _by_moments(
    curvature: float,
    scheme: str,
    h: float,
    blocks: Sequence[tuple[Block, Start, int]],
    fineness: Fineness,
    *,
    floor: float,
) -> Law | None:
    """Of independent blocks, each so many times."""
    laws = [
        (*law_from(block, integrator_named(scheme), h, start=start, curvature=curvature, fineness=fineness), times)
        for block, start, times in blocks
    ]

    def after(steps: Sequence[int]) -> Tensor:
        return sum(
            (times * transport.at_least(own.moments_at(steps)) for own, transport, times in laws),
            start=torch.zeros(len(steps), dtype=torch.float64),
        ).sqrt()

    def kept() -> float:
        return math.sqrt(sum(times * float(transport.at_least(own.stationary())) for own, transport, times in laws))

    factor = max(own.contraction() for own, _, _ in laws)
    return Law(after, kept, -math.log(factor), floor) if factor < 1.0 else None


def _regression(settings: Settings) -> tuple[Block, Start]:
    potential = potential_of(settings, "regression")
    centre = minimiser_of(settings)
    return block_from(potential), (centre + settings.shift / math.sqrt(2.0), torch.zeros_like(centre))


def needed_steps(settings: Settings, target: str, scheme: str) -> Tensor:
    """(errors, 2): the fewest steps after which W2 stays at or below each ε, and the step size; 0 where none does."""
    # With u = 1/L time has no unit.
    unit = 1.0 / _drift_lipschitz(settings, target) if scheme in OVERDAMPED else 1.0
    count = math.ceil(settings.per_decade * math.log10(1.0 / settings.smallest)) + 1
    best = torch.zeros(len(settings.errors), 2, dtype=torch.float64)
    for k in range(count):
        h = unit * 10 ** (-k / settings.per_decade)
        law = law_of(settings, target, scheme, h)
        if law is None:
            continue
        errors = law.after(range(1, min(LONGEST, law.settled(settings)) + 1))
        found = [steps_below(errors, epsilon) for epsilon in settings.errors]
        for row, reached in enumerate(found):
            if reached and (best[row, 0] == 0 or reached < best[row, 0]):
                best[row] = torch.tensor([reached, h])
        if all(reached > _WORSE * fewest > 0 for reached, fewest in zip(found, best[:, 0].tolist(), strict=True)):
            break  # shorter steps only cost more
    return best


def _drift_lipschitz(settings: Settings, target: str) -> float:
    if target == "non-convex":
        return non_convex_constants(hills_of(settings)).drift[0]
    return smoothness_of(settings, target).smoothness


def told_steps(settled: int) -> list[int]:
    """Every one of the first, and then fewer and fewer up to where a law has settled."""
    later = (_EVERY * 10 ** (k / _PER_DECADE) for k in range(1, 10 * _PER_DECADE))
    rest = [step for step in map(round, later) if step < settled]
    return sorted({*range(1, min(_EVERY, settled) + 1), *rest, settled})
