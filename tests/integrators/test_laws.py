"""The law each scheme has at stationarity, on Gaussian targets: where it can be said in closed form.

On a quadratic energy a step is linear, and its stationary variance follows from three numbers that were worked out by
hand from the scheme's formula. The second moment of 10⁶ positions or more is held to it within four of its standard
errors, for every curvature of the target: with the fixed seed a right scheme has failed one of these some thirty
comparisons with a probability of 2 in 1000.

Away from Gaussians the orders that schemes claim for their law are measured on the circle, where a step's transition
operator is a matrix to all digits: no draws, and no noise.
"""

import dataclasses
import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch

from tests.integrators.test_underdamped import SCHEMES as UNDERDAMPED
from torchsrk import (
    MALA,
    SRA1,
    SRKID,
    SRKLD,
    EulerMaruyama,
    Langevin,
    LeimkuhlerMatthews,
    Ozaki,
    ShARK,
    Tamed,
    integrators,
)
from torchsrk.brownian import FreshNoise, Increment, Stream, fill_normal, start_normals
from torchsrk.integrators import Integrator
from torchsrk.potentials import FunctionPotential, Potential
from torchsrk.sde import BaseSDE

CURVATURES = (1.0, 2.0, 3.0)


class Quadratic(Potential):
    """f(x) = ½ Σ λᵢxᵢ²."""

    def __init__(self, curvatures):
        super().__init__()
        self.curvatures = torch.tensor(curvatures, dtype=torch.float32)

    def forward(self, x):
        return 0.5 * (self.curvatures * x.square()).sum(-1)

    def grad(self, x):
        return self.curvatures * x


def of_recursion(a, w, k, h):
    """The variance that x' = a x + √2(w W + k H) comes to rest at."""
    return 2.0 * h * (w**2 + k**2 / 12.0) / (1.0 - a**2)


def exact(curvature, h):
    return 1.0 / curvature


def euler(curvature, h):
    return exact(curvature, h) / (1.0 - 0.5 * h * curvature)


def second_order(curvature, h):
    """SRK-LD, SRA1 and the Itô-Taylor scheme make the same step of a linear drift."""
    u = h * curvature
    return of_recursion(1.0 - u + 0.5 * u**2, 1.0 - 0.5 * u, -u, h)


def shark(curvature, h):
    u = h * curvature
    return of_recursion(1.0 - u + 0.5 * u**2, 1.0 - 0.5 * u, -u * (1.0 - 0.5 * u), h)


@dataclasses.dataclass(frozen=True)
class Law:
    """A scheme's variance at rest and how to measure it: some steps from the target's own law, then ``reads`` positions
    of every particle, ``apart`` steps from one another."""

    scheme: Integrator
    variance: Callable[[float, float], float]
    step_size: float = 0.4
    particles: int = 1_000_000
    settle: int = 12
    reads: int = 1
    apart: int = 0
    sde: Callable[[Potential], BaseSDE] = Langevin

    def __str__(self):
        return self.scheme.name


LAWS = [
    Law(EulerMaruyama(), euler),
    Law(SRKID(), euler),
    Law(SRKLD(), second_order),
    Law(SRA1(), second_order),
    Law(ShARK(), shark),
    Law(LeimkuhlerMatthews(), exact),
    Law(MALA(), exact, settle=8),
    # A step at which taming moves the variances by half a standard error at most.
    Law(Tamed(), second_order, step_size=0.15, particles=250_000, settle=16, reads=4, apart=8),
    # An eigendecomposition costs; after a step of 3 a particle is nearly a new one.
    Law(Ozaki(), exact, step_size=3.0, particles=100_000, settle=1, reads=10, apart=1),
]


def test_every_exported_scheme_has_its_law():
    exported = [getattr(integrators, name) for name in integrators.__all__]
    schemes = {cls for cls in exported if isinstance(cls, type) and issubclass(cls, Integrator)} - {Integrator}
    underdamped = {type(scheme) for scheme in UNDERDAMPED}
    assert schemes == {type(law.scheme) for law in LAWS} | underdamped


def positions(scheme, sde, x, h, settle, reads=1, apart=1, seed=7):
    """Positions (reads, particles, dim) of a chain from x."""
    noise = FreshNoise(seed, (*x.shape[:-1], sde.brownian_dim(x)), dtype=x.dtype, device=x.device)
    needs, read = scheme.required(sde) | scheme.position_needs, []
    with torch.no_grad():
        state = scheme.init(sde, 0.0, x, h, start_normals(seed))
        for number in range(settle + (reads - 1) * apart + 1):
            increment = noise.increment(number, 0.0, h, needs)
            if number >= settle and (number == settle or (number - settle) % apart == 0):
                read.append(scheme.position(sde, 0.0, state, increment))
            state = scheme.step(sde, 0.0, state, increment)
    return torch.stack(read)


@cache
def measured(law):
    """Mean squares of positions, one a curvature, and their standard errors."""
    start = fill_normal(torch.empty(law.particles, len(CURVATURES), dtype=torch.float32), seed=8, stream=Stream.START)
    start /= torch.tensor(CURVATURES).float().sqrt()
    sde = law.sde(Quadratic(CURVATURES))
    read = positions(law.scheme, sde, start, law.step_size, law.settle, law.reads, law.apart)
    # A particle's reads are averaged first: particles are independent, and they need not be.
    squares = read.double().square().mean(0)
    return squares.mean(0).tolist(), (squares.std(0) / math.sqrt(law.particles)).tolist()


def deviations(law, variance):
    """By how many standard errors each curvature's mean square is off."""
    means, errors = measured(law)
    expected = [variance(curvature, law.step_size) for curvature in CURVATURES]
    return [(mean - value) / error for mean, value, error in zip(means, expected, errors, strict=True)]


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_variance_at_rest_is_that_of_the_schemes_own_recursion(law):
    assert max(map(abs, deviations(law, law.variance))) < 4.0, measured(law)


@pytest.mark.parametrize("law", [law for law in LAWS if law.scheme.name in ("em", "sra1", "shark")], ids=str)
def test_the_comparison_tells_schemes_apart(law):
    """What differs in one coefficient is far outside."""
    for other in {euler, second_order, shark, exact} - {law.variance}:
        assert max(map(abs, deviations(law, other))) > 8.0, other


def test_mala_has_no_bias_where_its_proposals_do():
    """f = ¼x⁴: E x⁴ = 1, and E x² = 2Γ(¾)/Γ(¼). Far out all proposals are rejected, so the start is the middle."""
    sde = Langevin(FunctionPotential(lambda x: 0.25 * x.pow(4).sum(-1)))
    read = positions(MALA(), sde, torch.zeros(150_000, 1), 0.3, settle=40, reads=4, apart=8)
    for power, expected in {2: 2.0 * math.gamma(0.75) / math.gamma(0.25), 4: 1.0}.items():
        values = read.pow(power).mean(0)
        assert abs(float(values.mean()) - expected) < 4.0 * float(values.std()) / math.sqrt(len(values))


def rugged(x):
    """An energy on the circle that is symmetric about nothing."""
    return (0.8 * x.sin() + 0.4 * torch.cos(2.0 * x + 0.5)).sum(-1)


def interpolated(points, nodes):
    """(points, nodes): from values of a trigonometric polynomial at an odd number of equal nodes to those at points."""
    half = 0.5 * (points.unsqueeze(-1) - nodes)
    kernel = torch.sin(len(nodes) * half) / (len(nodes) * half.sin())
    return torch.where(half.sin().abs() < 1e-12, 1.0, kernel)


def normals(count):
    """Nodes and weights for means over a standard normal."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    return torch.from_numpy(nodes), torch.from_numpy(weights / weights.sum())


def error_of_law(scheme, h, size=41, count=16):
    """How far the first three Fourier coefficients of the law at rest are off, by quadrature over W and H."""
    sde, angles = Langevin(FunctionPotential(rugged)), torch.arange(size) * (2.0 * math.pi / size)
    node, weight = normals(count)
    w, eta = (grid.flatten() for grid in torch.meshgrid(node, node, indexing="ij"))
    probability = (weight.unsqueeze(-1) * weight).flatten()
    x = angles.view(-1, 1, 1).expand(size, count**2, 1)
    W, H = (v.view(1, -1, 1).expand_as(x) for v in (math.sqrt(h) * w, math.sqrt(h / 12.0) * eta))
    increment = Increment(h, W, H)

    def operator(points):
        return torch.einsum("xnj,n->xj", interpolated(points.squeeze(-1), angles), probability)

    with torch.no_grad():
        moves = operator(scheme.step(sde, 0.0, x, increment))
        reported = operator(scheme.position(sde, 0.0, x, increment))
    rest = torch.cat((moves.T - torch.eye(size), torch.ones(1, size)))
    law = torch.linalg.lstsq(rest, torch.cat((torch.zeros(size), torch.ones(1))).unsqueeze(-1)).solution.squeeze(-1)
    density = torch.softmax(-rugged(angles.unsqueeze(-1)), 0)
    waves = torch.exp(1j * torch.arange(1, 4).unsqueeze(-1) * angles)
    return float((waves @ (law @ reported - density).to(waves.dtype)).norm())


@pytest.mark.parametrize("law", [law for law in LAWS if math.isfinite(law.scheme.law_order)], ids=str)
def test_the_law_at_rest_has_the_order_claimed(law):
    errors = [error_of_law(law.scheme, h) for h in (0.04, 0.02)]
    assert math.log2(errors[0] / errors[1]) == pytest.approx(law.scheme.law_order, abs=0.15), errors
