"""The schemes for underdamped Langevin: their orders on one path, their laws, and what they declare.

Seeds are fixed. A law is measured with 10⁶ draws a curvature and may be off by four standard errors: 30 such
comparisons fail by chance once in five hundred seeds.
"""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch

from tests.integrators import gaussian_laws as laws
from tests.problems import CountingPotential
from torchsrk.brownian import BrownianPath, FreshNoise, Increment, Needs, start_normals
from torchsrk.integrators import (
    BAOAB,
    GHMC,
    OBABO,
    QUICSORT,
    SRKLD,
    UBU,
    Cheng,
    EulerMaruyama,
    RandomizedMidpoint,
    integrator_named,
)
from torchsrk.potentials import FunctionPotential, GaussianMixture, Potential
from torchsrk.reference import fine_solution, fit_order, local_deviation_orders, strong_errors
from torchsrk.sde import Langevin, UnderdampedLangevin

UNADJUSTED = [
    Cheng(),
    BAOAB(),
    OBABO(),
    OBABO(stages=2),
    UBU(),
    UBU(exact=True),
    UBU(randomized=True),
    RandomizedMidpoint(),
    QUICSORT(),
]
SCHEMES = [*UNADJUSTED, GHMC()]
EVERYTHING = Needs.SPACE_TIME_AREA | Needs.SPACE_TIME_TIME_AREA | Needs.BETWEEN | Needs.UNIFORM


class Modes(Potential):
    """Σ λ_i x_i²/2."""

    def __init__(self, curvatures):
        super().__init__()
        self.register_buffer("curvatures", torch.as_tensor(curvatures))

    def forward(self, x):
        return 0.5 * (self.curvatures * x.square()).sum(-1)

    def grad(self, x):
        return self.curvatures * x


def bimodal(friction=1.5, u=0.8):
    return UnderdampedLangevin(GaussianMixture(torch.tensor([2.0, 1.0])), friction=friction, u=u)


def increment(shape, dt=0.3, seed=2):
    return BrownianPath(shape, num_steps=4, seed=seed, t1=dt).increment(0, 0.0, dt, EVERYTHING)


def started(scheme, sde, x, dt=0.3, seed=5):
    return scheme.init(sde, 0.0, x, dt, start_normals(seed))


@torch.no_grad()
def draws(scheme, sde, x, h, *, warm_up, count, spacing, seed=0):
    """Positions of ``count`` draws after a warm-up, (count, particles, dim), and the states at both ends."""
    noise = FreshNoise(seed, x.shape, dtype=x.dtype, device=x.device)
    first = state = started(scheme, sde, x, h, seed=seed + 1)
    kept, needs = [], scheme.required(sde)
    for number in range(warm_up + count * spacing):
        state = scheme.step(sde, 0.0, state, noise.increment(number, 0.0, h, needs))
        if number >= warm_up and (number - warm_up) % spacing == spacing - 1:
            kept.append(scheme.position(sde, 0.0, state, None))
    return torch.stack(kept), first, state


def mean_and_error(squares):
    """The mean over draws and particles, and its standard error from particles, which are independent."""
    each = squares.mean(0)
    return each.mean(0).numpy(), (each.std(0) / len(each) ** 0.5).numpy()


# Orders on one path.


@pytest.fixture(scope="module")
def fine():
    """Points, a path over [0, 2] and the fine solution on it."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    sde = bimodal()
    x0 = 0.3 * sde.potential.sample((400,), seed=4)
    path = BrownianPath(x0.shape, num_steps=256, seed=1, t1=2.0)
    solution = fine_solution(sde, x0, path, integrator=QUICSORT())
    torch.set_default_dtype(before)
    return sde, x0, path, solution


def test_the_reference_is_the_solution(fine):
    """A scheme of another family comes to the same point on that path, at its own order."""
    sde, x0, path, solution = fine
    errors = strong_errors(SRKLD(), sde, x0, path, (64, 128, 256), solution)
    order = fit_order([2.0 / 64, 2.0 / 128, 2.0 / 256], errors).order
    assert order == pytest.approx(2.0, abs=0.1)  # 1.5 is the bound; the noise only moves velocities
    assert errors[-1].mean().sqrt() < 1e-4
    assert strong_errors(QUICSORT(), sde, x0, path, (128,), solution).mean().sqrt() < 3e-7


@pytest.mark.parametrize("scheme", UNADJUSTED, ids=str)
def test_strong_order(scheme, fine):
    sde, x0, path, solution = fine
    claimed = scheme.strong_order_additive
    assert claimed == scheme.strong_order
    counts = (4, 8, 16, 32) if claimed == 3.0 else (8, 16, 32, 64)
    estimate = fit_order([2.0 / count for count in counts], strong_errors(scheme, sde, x0, path, counts, solution))
    low, high = estimate.interval
    assert claimed - 0.1 <= estimate.order <= claimed + 0.1, estimate
    assert high - low < 0.2, estimate


def test_without_its_area_quicsort_falls_back(fine):
    """K is needed, with its sign: on a path with another one the order is 2."""

    class Blind(QUICSORT):
        def step(self, sde, t, state, increment):
            return super().step(sde, t, state, dataclasses.replace(increment, K=-increment.K))

    sde, x0, path, solution = fine
    estimate = fit_order([0.25, 0.125, 0.0625], strong_errors(Blind(), sde, x0, path, (8, 16, 32), solution))
    assert estimate.order < 2.2


def test_local_deviation_orders_of_cheng():
    """(2, 2) are met, and with them the (1.5, 2) that the paper's theorem takes."""
    sde = UnderdampedLangevin(GaussianMixture(torch.tensor([2.0, 1.0])), friction=1.5, u=0.8)
    starts = torch.tensor([[0.3, 0.1], [-0.2, 0.4], [0.1, -0.3]])
    orders = local_deviation_orders(Cheng(), sde, starts, step_sizes=(0.04, 0.02, 0.01), paths=2000, seed=1)
    assert orders.mean_square.order == pytest.approx(2.0, abs=0.1)
    assert orders.mean.order == pytest.approx(2.0, abs=0.1)
    low, high = orders.mean.interval
    assert high - low < 0.2


# Laws.

FRICTION, U, CURVATURES = 1.5, 0.7, (1.0, 2.0, 4.0)
LAWS = [
    (Cheng(), laws.cheng, 0.3),
    (BAOAB(), laws.baoab, 1.0),
    (OBABO(), laws.obabo, 0.7),
    (OBABO(stages=2), lambda mode: laws.obabo(mode, stages=2), 1.4),
    (UBU(), laws.ubu_of_two_normals, 0.9),
    (UBU(exact=True), laws.ubu, 0.9),
    (UBU(randomized=True), laws.randomized_ubu, 0.7),
    (RandomizedMidpoint(), laws.randomized_midpoint, 0.7),
    (QUICSORT(), laws.quicsort, 0.8),
]


@pytest.mark.parametrize(("scheme", "law", "h"), LAWS, ids=lambda value: str(value) if not callable(value) else "law")
def test_law_on_gaussians(scheme, law, h):
    sde = UnderdampedLangevin(Modes(CURVATURES), friction=FRICTION, u=U)
    expected = np.array([laws.stationary(law(laws.Mode(c, FRICTION, U, h)))[0, 0] for c in CURVATURES])
    x0 = torch.randn(100_000, 3, generator=torch.Generator().manual_seed(1)) * torch.tensor(CURVATURES).rsqrt()
    spacing = math.ceil(3.0 / h)
    found, _, _ = draws(scheme, sde, x0, h, warm_up=3 * spacing, count=10, spacing=spacing)
    mean, error = mean_and_error(found.square())
    assert np.abs((mean - expected) / error).max() < 4.0, (mean, expected, error)
    assert (error / expected).max() < 0.0025
    if isinstance(scheme, BAOAB):
        assert expected * np.array(CURVATURES) == pytest.approx(np.ones(3), rel=1e-12)
    else:  # what is measured can tell the scheme's law from the target's
        assert np.abs((mean - 1.0 / np.array(CURVATURES)) / error).max() > 5.0


@pytest.mark.parametrize(
    ("scheme", "law"),
    [(scheme, law) for scheme, law, _ in LAWS if not isinstance(scheme, BAOAB)],
    ids=lambda value: str(value) if not callable(value) else "law",
)
def test_order_of_the_law_on_gaussians(scheme, law):
    bias = [laws.stationary(law(laws.Mode(1.0, 1.5, 1.0, h)))[0, 0] - 1.0 for h in (0.05, 0.025)]
    assert math.log2(bias[0] / bias[1]) == pytest.approx(scheme.law_order, abs=0.1)


def test_what_ubu_leaves_out():
    """A variance of γuh³/96 at the middle, and of the law a share of (uω²h²)²/192."""
    for h, within in ((0.4, 0.02), (0.1, 0.005)):
        mode = laws.Mode(2.0, 1.5, 0.7, h)
        assert laws.open_in_the_middle(mode) == pytest.approx(1.5 * 0.7 * h**3 / 96, rel=within)
        exact, ours = (laws.stationary(law(mode))[0, 0] for law in (laws.ubu, laws.ubu_of_two_normals))
        assert exact - ours == pytest.approx((0.7 * 2.0 * h**2) ** 2 / 192 / 2.0, rel=within)


def test_laws_of_both_forms_of_ubu_are_told_apart():
    """So that the test of the law above is one of the form as well."""
    modes = [laws.Mode(c, FRICTION, U, 0.9) for c in CURVATURES]
    exact, ours = (
        np.array([laws.stationary(law(mode))[0, 0] for mode in modes]) for law in (laws.ubu, laws.ubu_of_two_normals)
    )
    assert (exact / ours - 1.0).max() > 8.0 * math.sqrt(2.0 / 10**6)


def quartic(x):
    return (0.5 * x.square() + 0.25 * x.pow(4)).sum(-1)


def variance_by_quadrature(energy):
    points = torch.linspace(-8.0, 8.0, 20001)
    weights = torch.exp(-energy(points.unsqueeze(-1)))
    return (points**2 @ weights / weights.sum()).item()


@pytest.mark.parametrize("target", ["gaussian", "quartic"])
def test_ghmc_has_the_targets_law(target):
    if target == "gaussian":
        potential, dim, h, expected = Modes(CURVATURES), 3, 0.9, 1.0 / np.array(CURVATURES)
    else:
        potential, dim, h, expected = FunctionPotential(quartic), 1, 0.7, variance_by_quadrature(quartic)
    sde = UnderdampedLangevin(potential, friction=FRICTION, u=U)
    # Not wider than the target: out in a quartic's tail h = 0.7 is too long, and particles would be stuck there.
    x0 = 0.5 * torch.randn(100_000, dim, generator=torch.Generator().manual_seed(1))
    found, first, last = draws(GHMC(), sde, x0, h, warm_up=30, count=10, spacing=5)
    mean, error = mean_and_error(found.square())
    assert np.abs((mean - expected) / error).max() < 4.0, (mean, expected, error)
    acceptance = float((last - first)[..., -1].double().mean()) / 80
    assert 0.5 < acceptance < 0.97
    # Without its rejections the same steps are seen to be off, or off to infinity.
    unadjusted, _, _ = draws(OBABO(), sde, x0, h, warm_up=30, count=2, spacing=5)
    mean, error = mean_and_error(unadjusted.square())
    assert not np.abs((mean - expected) / error).max() < 8.0


# Formulas.


def test_baoa_makes_the_positions_of_baoab():
    """Half a kick, half a drift, friction, half a drift, half a kick, as the name says."""
    sde, h, steps = bimodal(), 0.3, 5
    x = torch.tensor([[0.3, 0.1], [-0.2, 0.4]])
    noise = FreshNoise(1, x.shape, dtype=x.dtype, device=x.device)
    state = started(BAOAB(), sde, x, h)
    q, v = sde.start(x, start_normals(5)).chunk(2, -1)
    eta = math.exp(-sde.friction * h)
    for number in range(steps):
        given = noise.increment(number, 0.0, h, Needs.INCREMENT)
        state = BAOAB().step(sde, 0.0, state, given)
        v = v - 0.5 * h * sde.u * sde.gradient(q)
        q = q + 0.5 * h * v
        v = eta * v + math.sqrt(sde.u * (1.0 - eta**2)) * given.W / h**0.5
        q = q + 0.5 * h * v
        v = v - 0.5 * h * sde.u * sde.gradient(q)
        torch.testing.assert_close(BAOAB().position(sde, 0.0, state, None), q)
    assert BAOAB.equal_steps


@pytest.mark.parametrize("stages", [1, 2])
def test_obabo_is_its_name(stages):
    sde, h = bimodal(), 0.3
    x = torch.tensor([[0.3, 0.1], [-0.2, 0.4]])
    given = increment(x.shape, h)
    state = started(OBABO(stages=stages), sde, x)
    q, v, force = state.chunk(3, -1)
    assert torch.equal(force, sde.gradient(x))
    eta = math.exp(-sde.friction * h / 2)
    normals = [(given.W + sign * math.sqrt(12.0) * given.H) / math.sqrt(2.0 * h) for sign in (1.0, -1.0)]
    kicks = {1: (0.5, 0.5), 2: (0.1931833275037836, 1.0 - 2 * 0.1931833275037836, 0.1931833275037836)}[stages]
    v = eta * v + math.sqrt(sde.u * (1.0 - eta**2)) * normals[0]
    for number, kick in enumerate(kicks):
        q = q + h / stages * v if number else q
        v = v - kick * h * sde.u * sde.gradient(q)
    v = eta * v + math.sqrt(sde.u * (1.0 - eta**2)) * normals[1]
    expected = torch.cat((q, v, sde.gradient(q)), -1)
    torch.testing.assert_close(OBABO(stages=stages).step(sde, 0.0, state, given), expected)


def test_the_normals_of_obabo_are_those_of_the_paths_halves():
    path = BrownianPath((20_000, 1), num_steps=2, seed=3)
    whole, first = path.increment(0, 0.0, 1.0, EVERYTHING), path.increment(0, 0.0, 0.5, EVERYTHING)
    normal = (whole.W + math.sqrt(12.0) * whole.H) / math.sqrt(2.0)
    assert torch.corrcoef(torch.cat((normal, first.W), -1).T)[0, 1] > 0.9


def test_ghmc_is_obabo_where_it_accepts_and_turns_back_where_it_does_not():
    sde, h = bimodal(), 0.9
    x = 2.0 * torch.linspace(-1.0, 1.0, 80).reshape(40, 2)
    given = increment(x.shape, h)
    state, unadjusted = started(GHMC(), sde, x, h), started(OBABO(), sde, x, h)
    assert state.shape == (40, 8)
    torch.testing.assert_close(state[..., 6], sde.potential(x))
    surely, never = torch.zeros(40, 1), torch.ones(40, 1)
    accepted = GHMC().step(sde, 0.0, state, dataclasses.replace(given, u=surely))
    torch.testing.assert_close(accepted[..., :6], OBABO().step(sde, 0.0, unadjusted, given))
    torch.testing.assert_close(accepted[..., 6], sde.potential(accepted[..., :2]))
    assert torch.equal(accepted[..., 7], torch.ones(40))
    turned = GHMC().step(sde, 0.0, state, dataclasses.replace(given, u=never))
    stayed = turned[..., 7] == 0
    assert stayed.any()
    assert not stayed.all()  # where the energy falls a step is accepted whatever u
    assert torch.equal(turned[stayed][:, [0, 1, 4, 5, 6]], state[stayed][:, [0, 1, 4, 5, 6]])
    still = UnderdampedLangevin(Modes((0.0, 0.0)), friction=sde.friction, u=sde.u)
    # Without a force a step only turns the velocity twice: with a sign between, where it was rejected.
    free = GHMC().step(still, 0.0, torch.cat((state[..., :4], torch.zeros(40, 4)), -1), given)
    eta = math.exp(-0.5 * sde.friction * h)
    between = (free[..., 2:4] - turned[..., 2:4]) / (2.0 * eta)
    wanted = eta * state[..., 2:4] + math.sqrt(sde.u * (1.0 - eta**2)) * (
        given.W + math.sqrt(12.0) * given.H
    ) / math.sqrt(2.0 * h)
    torch.testing.assert_close(between[stayed], wanted[stayed])


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_ghmc_turns_back_where_an_energy_is_not_finite(broken):
    class Walled(Potential):
        def forward(self, x):
            return torch.where(x[..., 0] > 0.5, broken, 0.5 * x.square().sum(-1))

        def grad(self, x):
            return torch.where(x > 0.5, broken, x)

    sde = UnderdampedLangevin(Walled(), friction=1.0)
    found, first, last = draws(GHMC(), sde, torch.zeros(500, 1), 0.5, warm_up=50, count=1, spacing=1)
    assert found.isfinite().all()
    assert last.isfinite().all()
    assert found.max() <= 0.5 < found.abs().max()
    assert 0.3 < float((last - first)[..., -1].double().mean()) / 51 < 0.99


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_the_inverse_mass_is_a_unit_of_time(scheme):
    """(γ, u, h) and (γ/√u, 1, h√u) are one process, with velocities √u times as large and paths u^¼."""
    u, h, x = 2.5, 0.3, torch.tensor([[0.3, 0.1], [-0.2, 0.4]])
    given = increment(x.shape, h)
    parts = {name: u**0.25 * getattr(given, name) for name in ("W", "H", "K")}
    scaled = dataclasses.replace(given, dt=h * u**0.5, **parts)
    here, there = bimodal(friction=1.5, u=u), bimodal(friction=1.5 / u**0.5, u=1.0)
    one = scheme.step(here, 0.0, started(scheme, here, x, h), given)
    other = scheme.step(there, 0.0, started(scheme, there, x, h * u**0.5), scaled)
    torch.testing.assert_close(one[..., :2], other[..., :2])
    torch.testing.assert_close(one[..., 2:4], other[..., 2:4] * u**0.5)


@pytest.mark.parametrize("scheme", UNADJUSTED, ids=str)
def test_the_law_of_positions_is_free_of_the_inverse_mass(scheme):
    """As h goes to 0, by the closed forms: the bias at u = 3 and at u = ⅓ are both of the scheme's order."""
    law = next(law for one, law, _ in LAWS if repr(one) == repr(scheme))
    for u in (3.0, 1.0 / 3.0):
        bias = [abs(laws.stationary(law(laws.Mode(1.0, 1.5, u, h)))[0, 0] - 1.0) for h in (0.1, 0.025)]
        assert bias[1] <= max(bias[0] * 4.0 ** (0.2 - scheme.law_order), 1e-12)


# What every one of them keeps to.


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_facts(scheme):
    assert type(integrator_named(scheme.name)) is type(scheme)
    assert scheme.serves == (UnderdampedLangevin,)
    assert scheme.law_order > 0.0
    assert Needs.INCREMENT in scheme.needs
    assert "'" in type(scheme).__doc__
    assert (scheme.strong_order is None) == isinstance(scheme, GHMC)
    assert integrator_named(scheme) is scheme


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_a_step_reads_no_more_than_it_declares(scheme):
    sde, x = bimodal(), torch.tensor([[0.3, 0.1], [-0.2, 0.4]])
    state, given = started(scheme, sde, x), increment(x.shape)
    fields = {
        Needs.SPACE_TIME_AREA: "H",
        Needs.SPACE_TIME_TIME_AREA: "K",
        Needs.BETWEEN: "Z",
        Needs.UNIFORM: "u",
    }
    bare = dataclasses.replace(given, **{field: None for need, field in fields.items() if need not in scheme.needs})
    expected = scheme.step(sde, 0.0, state, given)
    assert torch.equal(scheme.step(sde, 0.0, state, bare), expected)
    for need, field in fields.items():
        if need in scheme.needs and not isinstance(scheme, GHMC):
            other = dataclasses.replace(given, **{field: 0.9 * getattr(given, field)})
            assert not torch.equal(scheme.step(sde, 0.0, state, other), expected), field


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_gradients_per_step_are_counted(scheme):
    potential = CountingPotential()
    sde, x = UnderdampedLangevin(potential, friction=1.0), torch.ones(4, 3)
    state = started(scheme, sde, x)
    at_start = potential.gradients
    for _ in range(5):
        state = scheme.step(sde, 0.0, state, increment(x.shape))
    assert potential.gradients - at_start == 5 * scheme.gradients_per_step
    assert at_start == (1 if isinstance(scheme, (BAOAB, OBABO, GHMC)) else 0)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_the_first_state_holds_positions_and_velocities(scheme):
    sde, x = bimodal(u=0.8), torch.linspace(-1.0, 1.0, 8000).reshape(4000, 2)
    state = started(scheme, sde, x)
    assert torch.equal(scheme.position(sde, 0.0, state, None), x)
    v = state[..., 2:4] - (0.15 * sde.u * sde.gradient(x) if isinstance(scheme, BAOAB) else 0.0)
    torch.testing.assert_close(v, sde.start(x, start_normals(5))[..., 2:])
    assert v.square().mean().item() == pytest.approx(0.8, abs=4.0 * 0.8 * math.sqrt(2.0 / 8000))


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_any_leading_shape_and_each_particle_on_its_own(scheme):
    sde, x = bimodal(), torch.linspace(-1.0, 1.0, 12).reshape(2, 3, 2)
    given = increment(x.shape)
    state = started(scheme, sde, x)
    before = state.clone()
    stepped = scheme.step(sde, 0.0, state, given)
    assert stepped.shape == state.shape
    assert torch.equal(state, before)
    assert torch.equal(stepped, scheme.step(sde, 0.0, state, given))
    for i, j in itertools.product(range(2), range(3)):
        parts = {name: getattr(given, name)[i, j] for name in ("W", "H", "K", "Z", "u")}
        alone = scheme.step(sde, 0.0, state[i, j], Increment(given.dt, **parts))
        torch.testing.assert_close(alone, stepped[i, j])


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_single_precision_stays_single_and_near(scheme):
    sde, x = bimodal(), torch.linspace(-1.0, 1.0, 12).reshape(6, 2)
    given = increment(x.shape)
    state = started(scheme, sde, x)
    parts = {name: getattr(given, name).float() for name in ("W", "H", "K", "Z", "u")}
    single = UnderdampedLangevin(GaussianMixture(torch.tensor([2.0, 1.0]).float()), friction=1.5, u=0.8)
    stepped = scheme.step(single, 0.0, state.float(), Increment(given.dt, **parts))
    assert stepped.dtype == torch.float32
    torch.testing.assert_close(stepped.double(), scheme.step(sde, 0.0, state, given), atol=3e-6, rtol=3e-6)


@pytest.mark.parametrize("friction", [1e-12, 1e-6, 1e3, 1e6])
@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_friction_that_hardly_acts_and_friction_that_stops(scheme, friction):
    sde, h = UnderdampedLangevin(Modes((1.0, 4.0)), friction=friction, u=0.7), 0.3
    x = torch.tensor([[0.3, 0.1], [-0.2, 0.4]])
    given = increment(x.shape, h)
    state = started(scheme, sde, x, h)
    stepped = scheme.step(sde, 0.0, state, given)
    assert stepped.isfinite().all()
    if friction < 1.0:  # Newton's equation, to the scheme's local order
        root = (0.7 * torch.tensor([1.0, 4.0])).sqrt()
        q, v = sde.start(x, start_normals(5)).chunk(2, -1)
        exact = (root * h).cos() * q + (root * h).sin() / root * v
        torch.testing.assert_close(stepped[..., :2], exact, atol=0.15, rtol=0)
    elif not isinstance(scheme, (QUICSORT, BAOAB, OBABO, GHMC)):  # those hold the velocity while they drift
        # The overdamped diffusion at the time h·u/γ: nothing moves far, and velocities are forgotten.
        noise = math.sqrt(2.0 * 0.7 / friction) * given.W
        torch.testing.assert_close(stepped[..., :2], x + noise, atol=3.0 / friction, rtol=0)
        forgotten = scheme.step(sde, 0.0, torch.cat((x, 0.0 * x), -1), given)
        torch.testing.assert_close(stepped[..., 2:], forgotten[..., 2:], atol=3.0 / friction, rtol=0)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_they_are_for_underdamped_langevin(scheme):
    with pytest.raises(ValueError, match=r"UnderdampedLangevin.*Langevin has additive noise.*'em'.*'srk-ld'"):
        scheme.check(Langevin(CountingPotential()))
    scheme.check(bimodal())
    with pytest.raises(ValueError, match=r"this UnderdampedLangevin has additive.*'baoab'.*'ghmc'.*'ubu'"):
        type("Picky", (EulerMaruyama,), {"noise_types": ("diagonal",)})().check(bimodal())


@pytest.mark.parametrize("stages", [0, 3, "2", None])
def test_obabo_has_one_stage_or_two(stages):
    with pytest.raises(ValueError, match=r"stages is 1 or 2; got"):
        OBABO(stages=stages)


def test_options_are_shown():
    assert repr(OBABO(stages=2)) == "OBABO(stages=2)"
    assert repr(UBU(exact=True)) == "UBU(randomized=False, exact=True)"
    assert (OBABO(stages=2).gradients_per_step, OBABO().gradients_per_step) == (2, 1)
