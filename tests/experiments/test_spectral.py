"""Laws by moments, against closed forms, quadrature and exact moments of linear chains."""

import math
from itertools import islice

import pytest
import torch

from torchsrk.experiments.laws import LineMixture, invariant_error, line_errors
from torchsrk.experiments.linear import probe
from torchsrk.experiments.rate_targets import CoupledQuartic, block_of
from torchsrk.experiments.scheme_targets import Quadratic
from torchsrk.experiments.spectral import Block, Fineness, Transport, chain, gauss_hermite, hermite
from torchsrk.experiments.targets import SEPARATION
from torchsrk.integrators import integrator_named
from torchsrk.potentials import GaussianMixture
from torchsrk.sde import Langevin, UnderdampedLangevin

FINE = Fineness(24, 12, 16, (("W", 20), ("H", 10)))
PLANE = Fineness(8, 6, 6, (("W", 8), ("H", 6), ("Z", 4), ("u", 6)))
NORMAL = Block(Quadratic(torch.zeros(1).double(), torch.ones(1).double()), mean=[0.0], deviation=[1.0])
TWO_OFF = (2.0 * torch.ones(1).double(), torch.ones(1).double())


def test_polynomials_are_orthonormal():
    x, weights = gauss_hermite(12, 1)
    values = hermite(x[:, 0], 10)
    assert torch.allclose(values.mT @ (weights[:, None] * values), torch.eye(11).double(), atol=1e-9)
    basis = Transport(block_of("quartic", "pair"), PLANE).basis
    size = len(basis.powers)
    assert torch.allclose(basis.project(basis.values), torch.eye(size).double(), atol=1e-9)
    assert torch.allclose(basis.values[:, 0], torch.ones(1).double())


@pytest.mark.parametrize(("shift", "spread"), [(0.1, 1.0), (0.0, 1.1), (0.05, 0.95)])
def test_w2_between_normals(shift, spread):
    """Off by W2³/8 or so, as the docstring says."""
    transport = Transport(NORMAL, FINE)
    x, weights = gauss_hermite(40, 1)
    moments = (weights @ transport.basis.raw(shift + spread * x)) @ transport.basis.inverse
    exact = math.hypot(shift, spread - 1.0)
    assert float(transport.squared(moments[None]).sqrt()) == pytest.approx(exact, rel=0.25 * exact**2 + 1e-6)


def test_moments_of_no_law_are_refused():
    """A law that is extrapolated has a norm, and no W2."""
    transport = Transport(NORMAL, FINE)
    moments = torch.zeros(1, len(transport.basis.powers), dtype=torch.float64)
    moments[0, 0], moments[0, -1] = 1.0, 0.9
    assert float(transport.linearized(moments)) == pytest.approx(0.9**2 / FINE.map_degree)
    with pytest.raises(ArithmeticError, match="those of no law"):
        transport.squared(moments)


@pytest.mark.parametrize("scheme", ["em", "srk-ld"])
@pytest.mark.parametrize("h", [0.1, 0.4])
def test_mixture_as_by_quadrature(scheme, h):
    potential = GaussianMixture(torch.tensor([SEPARATION], dtype=torch.float64))
    block = block_of("mixture", "along")
    assert block.deviation.item() == pytest.approx(math.sqrt(1.0 + SEPARATION**2), rel=1e-9)
    transport = Transport(block, FINE)
    own = chain(
        block,
        Langevin(potential),
        integrator_named(scheme),
        step_size=h,
        start=(block.mean + 2.0 * block.deviation, block.deviation),
        fineness=FINE,
        transport=transport,
    )
    kept = invariant_error(scheme, separation=SEPARATION, dim=1, step_size=h)
    assert float(transport.squared(own.stationary())) == pytest.approx(kept, rel=4e-3)
    deviation = float(block.deviation)
    line = line_errors(LineMixture(SEPARATION), scheme, step_size=h, mean=2.0 * deviation, deviation=deviation)
    exact = torch.tensor(list(islice(line, 60)), dtype=torch.float64)
    near = exact < 0.1**2
    assert near.sum() > 10
    assert torch.allclose(transport.squared(own.moments(60))[near], exact[near], rtol=6e-3)


@pytest.mark.parametrize("name", ["cheng", "baoab", "ubu", "randomized-midpoint", "lm", "sra1"])
def test_second_moments_on_a_normal_are_those_of_the_linear_chain(name):
    scheme = integrator_named(name)
    underdamped = UnderdampedLangevin in scheme.serves
    potential = NORMAL.potential
    sde = UnderdampedLangevin(potential, friction=2.0) if underdamped else Langevin(potential)
    transport = Transport(NORMAL, PLANE)
    own = chain(NORMAL, sde, scheme, step_size=0.4, start=TWO_OFF, fineness=PLANE, transport=transport)
    found = probe(sde, scheme, step_size=0.4, modes=1)
    assert found is not None
    second = float(found.stationary())
    assert float(own.stationary()[0, 2]) == pytest.approx((second - 1.0) / math.sqrt(2.0), abs=1e-9)
    assert own.contraction() < 1.0


def test_a_law_in_the_plane_as_particles_show_it():
    """Second moments of Euler-Maruyama on the coupled quartic, within four standard errors."""
    block, h = block_of("quartic", "pair"), 0.2
    fineness = Fineness(12, 8, 8, (("W", 8),))
    transport = Transport(block, fineness)
    sde, scheme = Langevin(block.potential), integrator_named("em")
    own = chain(
        block,
        sde,
        scheme,
        step_size=h,
        start=(block.mean, block.deviation),
        fineness=fineness,
        transport=transport,
    )
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40_000, 2, dtype=torch.float64, generator=generator) * block.deviation
    for _ in range(50):
        noise = torch.randn(x.shape, dtype=torch.float64, generator=generator)
        x = x - h * block.potential.grad(x) + math.sqrt(2.0 * h) * noise
    seen = transport.basis.raw(x) @ transport.basis.inverse
    error = seen.std(0) / math.sqrt(len(x))
    low = transport.basis.powers.sum(-1) <= 4
    gaps = ((seen.mean(0) - own.stationary()[0]).abs() / error)[low][1:]
    assert float(gaps.max()) < 4.0
    assert float((own.stationary()[0][low][1:].abs() / error[low][1:]).max()) > 10.0  # it is not the target's


def test_quartic_gradient_is_its_slope():
    potential = CoupledQuartic(0.1)
    x = torch.randn(20, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    plain = super(CoupledQuartic, potential).grad(x)
    assert torch.allclose(potential.grad(x), plain)
