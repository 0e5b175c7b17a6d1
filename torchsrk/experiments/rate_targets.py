"""Targets that are made of blocks of one or two dimensions, on which laws of schemes are known to many digits.

In d dimensions blocks are independent, and a scheme that moves each by itself keeps them so: squared W2
distances add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial

import torch
from torch import Tensor

from ..integrators import Integrator, integrator_named
from ..potentials import GaussianMixture, LogisticRegression, Potential
from ..sde import Langevin, UnderdampedLangevin
from ..theory import non_convex_constants, underdamped
from .rate_radial import radial_traces
from .scheme_moments import has_momentum
from .scheme_targets import Quadratic
from .spectral import Block, Chain, Fineness, Transport, chain
from .targets import SEPARATION
from .transfer import LineNonConvex, invariant_w2, line_w2

# The paper's exponents, of gradients in 1/ε and in d, up to logarithms: of its Table 1 and of the Examples before it,
# which have none in d for the midpoint.
TABLE = {
    "em": (1.0, 1.0),
    "ozaki": (1.0, 1.0),
    "tamed": (2.0 / 3.0, 4.0 / 3.0),
    "srk-ld": (2.0 / 3.0, 1.0),
    "cheng": (1.0, 0.5),
    "randomized-midpoint": (2.0 / 3.0, math.nan),
}
# Of Euler-Maruyama and SRK-ID on uniformly dissipative diffusions.
TABLE_ITO = {"em": (2.0, 1.0), "srk-id": (1.0, math.nan)}
SCHEMES = (*TABLE, "sra1", "shark", "lm", "baoab", "ubu", "srk-id")
# Those whose steps tie coordinates together that the target does not.
_TIES = {
    "tamed": "its taming looks at all coordinates",
    "randomized-midpoint": "one random time serves all coordinates, so that its law is no product",
}
_FEW_DIMENSIONS = "at β = 0.33 it is uniformly dissipative in up to 5 dimensions, too few for an exponent"
_TOO_SMALL = "in four coordinates its error is below what polynomials of degree 6 resolve"
_UNRESOLVED = dict.fromkeys(("randomized-midpoint", "baoab", "ubu"), _TOO_SMALL)
_REACH = 9.0  # of the grid for means and deviations, in deviations
_SETTLED = 1e-3  # of what is left of the start at the end, over the law's own error
_LONGEST = 10**6  # steps
_LATE = 30.0  # a time after which e^-15 and less is left of the start on N(0, I), with momentum e^-8
_NOT_LEFT = 0.05  # of the start on the non-convex target, over the law's own error


class CoupledQuartic(Potential):
    """f(x, y) = ½(x² + y²) + (c/4)(x⁴ + 4x²y² + y⁴): convex, and in no coordinates a sum, nor radial."""

    dim = 2

    def __init__(self, coupling: float) -> None:
        super().__init__()
        self.coupling = coupling

    def forward(self, x: Tensor) -> Tensor:
        a, b = x.square().unbind(-1)
        return 0.5 * (a + b) + 0.25 * self.coupling * (a.square() + 4.0 * a * b + b.square())

    def grad(self, x: Tensor) -> Tensor:
        squares = x.square()
        return x * (1.0 + self.coupling * (squares + 2.0 * squares.flip(-1)))


@dataclass(frozen=True)
class RateTarget:
    """A target in any number of dimensions.

    Attributes:
        potentials: of its blocks.
        squared: W2² in d dimensions from that of every block.
        smallest_dim: that the exponents in ε are measured in.
        curvature: what step sizes are given over.
        largest: step size, times the curvature, and of schemes with momentum, in their own time.
    """

    title: str
    potentials: Mapping[str, Callable[[], Potential]]
    squared: Callable[[Mapping[str, Tensor], int], Tensor]
    smallest_dim: int
    curvature: float
    largest: tuple[float, float] = (0.5, 0.5)
    fineness: Mapping[bool, Fineness] = field(default_factory=dict)  # with momentum, and without
    # W2 below which a law's error is not told from that of its polynomials: ten times what the last two degrees add.
    resolved: Mapping[bool, float] = field(default_factory=lambda: {False: 1e-6, True: 1e-6})


_NORMALS = (("W", 20), ("H", 10), ("Z", 4), ("u", 4))
_FEW = (("W", 8), ("H", 6), ("Z", 4), ("u", 4))
LINES = {False: Fineness(24, 12, 16, _NORMALS), True: Fineness(12, 10, 10, _FEW)}
PAIRS = {False: Fineness(12, 10, 8, (("W", 8), ("H", 4))), True: Fineness(6, 6, 3, (("W", 3), ("H", 3)))}


@lru_cache
def target_named(name: str) -> RateTarget:
    """The mixture and the regression of the other experiments, and a target that does not reduce to a line."""
    if name == "mixture":
        return RateTarget(
            f"mixture, ‖a‖² = {SEPARATION**2:g}",
            {
                "along": lambda: GaussianMixture(torch.tensor([SEPARATION], dtype=torch.float64)),
                "across": lambda: Quadratic(torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)),
            },
            lambda blocks, dim: blocks["along"] + (dim - 1) * blocks["across"],
            smallest_dim=1,
            curvature=1.0,
            fineness=LINES,
        )
    if name == "regression":
        data = LogisticRegression.synthetic(_OBSERVATIONS, 1, seed=0, dtype=torch.float64)
        assert data.smoothness is not None
        return RateTarget(
            f"logistic regression, {_OBSERVATIONS} observations a coordinate",
            {"line": lambda: data},
            lambda blocks, dim: dim * blocks["line"],
            smallest_dim=1,
            curvature=data.smoothness,
            fineness=LINES,
        )
    if name == "gaussian":
        return RateTarget(
            "N(0, I), from its mode",
            {},
            lambda wholes, dim: wholes[f"d{dim}"],
            smallest_dim=2,
            curvature=1.0,
            resolved={False: 1e-7, True: 1e-7},
        )
    if name == "non-convex":
        return RateTarget(
            f"non-convex, β = {_BETA}, γ = {_GAMMA}, d = 1",
            {},
            lambda wholes, dim: wholes["line"],
            smallest_dim=1,
            curvature=1.0,
            largest=(0.8, 0.8),
        )
    return RateTarget(
        "coupled quartic, in pairs of coordinates",
        {"pair": partial(CoupledQuartic, _COUPLING)},
        lambda blocks, dim: dim / 2 * blocks["pair"],
        smallest_dim=2,
        curvature=1.0,
        largest=(0.2, 0.3),
        fineness=PAIRS,
        resolved={False: 2e-4, True: 3e-3},
    )


_OBSERVATIONS, _COUPLING = 50, 0.1
_BETA, _GAMMA = 0.33, 0.5
TARGETS = ("mixture", "regression", "quartic")
WHOLES = ("gaussian", "non-convex")  # which are not made of blocks


def applies(target: str, scheme: str) -> bool:
    """Whether a scheme is measured on a target: on the isotropic Gaussian those that tie coordinates together, on the
    non-convex target those for Itô diffusions."""
    own = {"gaussian": tuple(_TIES), "non-convex": tuple(TABLE_ITO)}.get(target)
    return scheme in own if own else scheme != "srk-id"


def table_of(target: str, scheme: str) -> tuple[float, float]:
    """The paper's exponents in 1/ε and in d, nan where it has none."""
    return (TABLE_ITO if target == "non-convex" else TABLE).get(scheme, (math.nan, math.nan))


def refusal(target: str, scheme: str) -> str:
    """Why no law of a scheme is known on a target; empty where one is."""
    return _UNRESOLVED.get(scheme, "") if target == "quartic" else ""


def refusal_in_dimensions(target: str, scheme: str) -> str:
    """Why there is no law in many dimensions, or it is not that of the blocks; empty where it is, and where blocks are
    not needed."""
    if target == "non-convex":
        return _FEW_DIMENSIONS
    return _TIES.get(scheme, "") if target in TARGETS else ""


@lru_cache
def block_of(target: str, block: str) -> Block:
    return block_from(target_named(target).potentials[block]())


def block_from(potential: Potential) -> Block:
    """With means and deviations by sums on a grid, which are as exact as the floats."""
    dim = potential.dim or 1
    mean, deviation = torch.zeros(dim, dtype=torch.float64), torch.ones(dim, dtype=torch.float64)
    for _ in range(12):  # a grid about the last mean, as wide as the last deviations say
        line = torch.linspace(-_REACH, _REACH, 241, dtype=torch.float64)
        points = mean + deviation * (line.unsqueeze(-1) if dim == 1 else torch.cartesian_prod(*[line] * dim))
        energy = potential(points)
        masses = (energy.min() - energy).exp()
        masses = masses / masses.sum()
        mean = masses @ points
        deviation = (masses @ (points - mean).square()).sqrt()
    return Block(potential, mean=mean.tolist(), deviation=deviation.tolist())


def law_on(target: str, block: str, name: str, h: float, shift: float) -> tuple[Chain, Transport]:
    """The moments of a scheme's chain on a block, so many deviations off in every direction, and what measures W2."""
    scheme, found, whole = integrator_named(name), block_of(target, block), target_named(target)
    fineness = whole.fineness[has_momentum(scheme)]
    start = (found.mean + shift * found.deviation, found.deviation)
    return law_from(found, scheme, h, start=start, curvature=whole.curvature, fineness=fineness)


def law_from(
    block: Block, scheme: Integrator, h: float, *, start: tuple[Tensor, Tensor], curvature: float, fineness: Fineness
) -> tuple[Chain, Transport]:
    """The same from normals of any mean and deviations."""
    transport, sde = Transport(block, fineness), sde_on(scheme, block.potential, curvature)
    return chain(block, sde, scheme, step_size=h, start=start, fineness=fineness, transport=transport), transport


def sde_on(scheme: Integrator, potential: Potential, curvature: float) -> Langevin | UnderdampedLangevin:
    """With the friction and the mass that bounds are stated for."""
    if has_momentum(scheme):
        return UnderdampedLangevin(potential, friction=underdamped.FRICTION, u=1.0 / curvature)
    return Langevin(potential)


Traces = tuple[dict[str, Tensor], dict[str, float]]


def traces(target: str, name: str, h: float, shift: float, dims: Sequence[int] = ()) -> Traces:
    """W2² after every step, until what is left of the start does not count, and of the law kept: of every block, or of
    the whole in every dimension."""
    if target == "gaussian":
        return _radial(name, h, (target_named(target).smallest_dim, *dims))
    if target == "non-convex":
        return _on_the_line(name, h, shift)
    laws = {block: law_on(target, block, name, h, shift) for block in target_named(target).potentials}
    kept = {block: float(transport.squared(own.stationary())) for block, (own, transport) in laws.items()}
    least = math.sqrt(sum(kept.values()))
    factor = max(own.contraction() for own, _ in laws.values())
    if factor >= 1.0:
        raise ArithmeticError(f"{name} keeps no law on {target} at step size {h:g}: take a smaller one")
    steps = math.ceil(math.log(shift / (_SETTLED * least)) / -math.log(factor))
    if steps > _LONGEST:
        raise ArithmeticError(f"{name} on {target} at step size {h:g} would take {steps} steps: take a larger one")
    return {block: transport.squared(own.moments(steps)) for block, (own, transport) in laws.items()}, kept


def _radial(name: str, h: float, dims: Sequence[int]) -> Traces:
    steps = math.ceil(_LATE / h)
    after, kept = radial_traces(name, h, tuple(dict.fromkeys(dims)), steps)
    return {f"d{dim}": trace for dim, trace in after.items()}, {f"d{dim}": w for dim, w in kept.items()}


def _on_the_line(name: str, h: float, shift: float) -> Traces:
    """From a point so many deviations off."""
    line, scheme = LineNonConvex(_BETA, _GAMMA), integrator_named(name)
    start = shift * math.sqrt(line.potential.second_moment())
    kept = invariant_w2(line, scheme, step_size=h, fineness=0.5)
    rate = non_convex_constants(line.potential).contraction
    steps = math.ceil(math.log(shift / (_NOT_LEFT * kept)) / (rate * h))
    after = line_w2(line, scheme, step_size=h, start=start, steps=steps, fineness=0.5)
    return {"line": after.square()}, {"line": kept**2}
