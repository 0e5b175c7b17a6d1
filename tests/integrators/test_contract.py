"""What every scheme keeps to, and that its declared facts are facts."""

import itertools

import pytest
import torch

from tests.problems import CountingPotential, matrix_columns, matrix_field, sdes
from torchsrk import SDE, SRKID, SRKLD, EulerMaruyama, Langevin, integrators, sample
from torchsrk.brownian import BrownianPath, Increment, Needs
from torchsrk.integrators import Integrator, integrator_named

SCHEMES = [EulerMaruyama(), SRKLD(), SRKID()]
PAIRS = [
    (scheme, name)
    for scheme, (name, (sde, _)) in itertools.product(SCHEMES, sorted(sdes().items()))
    if sde.noise.name in scheme.noise_types
]


def increment(shape, needs, dt=0.1, seed=2):
    return BrownianPath(shape, num_steps=4, seed=seed, t1=dt).increment(0, 0.0, dt, needs)


def test_every_exported_scheme_is_under_contract():
    exported = [getattr(integrators, name) for name in integrators.__all__]
    schemes = {cls for cls in exported if isinstance(cls, type) and issubclass(cls, Integrator)} - {Integrator}
    assert schemes == {type(scheme) for scheme in SCHEMES}


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_facts_are_declared(scheme):
    assert integrator_named(scheme.name).__class__ is type(scheme)
    assert 0.0 < scheme.strong_order <= scheme.strong_order_additive
    assert set(scheme.noise_types) <= {"additive", "diagonal", "scalar", "isotropic", "general"}
    assert isinstance(scheme.needs, Needs)
    assert not vars(scheme), "a scheme has no state"
    assert "X'" in type(scheme).__doc__


@pytest.mark.parametrize(("scheme", "name"), PAIRS, ids=str)
def test_a_step_is_a_pure_function_of_its_increment(scheme, name):
    sde, dim = sdes()[name]
    x = torch.linspace(-1.0, 1.0, 5 * dim).reshape(5, dim)
    given = increment((5, sde.brownian_dim(x)), scheme.required(sde))
    before = x.clone(), given.W.clone()
    first, second = scheme.step(sde, 0.2, x, given), scheme.step(sde, 0.2, x, given)
    assert torch.equal(first, second)
    assert first.shape == x.shape
    assert torch.equal(x, before[0])
    assert torch.equal(given.W, before[1])
    assert first.data_ptr() != x.data_ptr()


@pytest.mark.parametrize(("scheme", "name"), PAIRS, ids=str)
def test_any_leading_shape_and_each_particle_on_its_own(scheme, name):
    sde, dim = sdes()[name]
    x = torch.linspace(-1.0, 1.0, 6 * dim).reshape(2, 3, dim)
    m = sde.brownian_dim(x)
    given = increment((2, 3, m), scheme.required(sde))
    stepped = scheme.step(sde, 0.2, x, given)
    for i, j in itertools.product(range(2), range(3)):
        parts = [None if part is None else part[i, j] for part in (given.W, given.H, given.A)]
        torch.testing.assert_close(scheme.step(sde, 0.2, x[i, j], Increment(given.dt, *parts)), stepped[i, j])


@pytest.mark.parametrize("scheme", [EulerMaruyama(), SRKLD(), SRKID()], ids=str)
def test_gradients_per_step_are_counted(scheme):
    potential = CountingPotential()
    steps = 10
    sample(Langevin(potential), torch.zeros(4, 3), integrator=scheme, step_size=0.1, num_steps=steps, seed=0)
    assert potential.gradients == steps * scheme.gradients_per_step
    assert scheme.gradients_per_step == {"em": 1, "srk-ld": 3, "srk-id": 1}[scheme.name]


@pytest.mark.parametrize("noise_type", ["diagonal", "scalar", "isotropic", "general", "columns"])
def test_srk_id_evaluates_what_it_needs(noise_type):
    """One drift; σ once at X; then one batch: 2 points a particle for commutative noise, 2m for the rest."""
    drifts, shapes, column_shapes = [], [], []

    def drift(x):
        drifts.append(x.shape)
        return -x

    functions = {
        "diagonal": lambda x: 1.0 + 0.1 * x,
        "scalar": lambda x: (1.0 + 0.1 * x).unsqueeze(-1),
        "isotropic": lambda x: 1.0 + x.square().sum(-1),
        "general": matrix_field,
        "columns": matrix_field,
    }

    def diffusion(x):
        shapes.append(tuple(x.shape))
        return functions[noise_type](x)

    def columns(points):
        column_shapes.append(tuple(points.shape))
        return matrix_columns(points)

    extra = {"columns": columns} if noise_type == "columns" else {}
    kind = "general" if noise_type == "columns" else noise_type
    sde, m = SDE(drift, diffusion, kind, **extra), {"scalar": 1, "general": 4, "columns": 4}.get(noise_type, 3)
    SRKID().step(sde, 0.0, torch.ones(5, 3), increment((5, m), SRKID().required(sde)))
    assert len(drifts) == 1
    stages = {"diagonal": (2, 5, 3), "scalar": (2, 5, 3), "isotropic": (2, 5, 3, 3)}.get(noise_type, (2, 5, 4, 3))
    if noise_type == "columns":
        assert (shapes, column_shapes) == ([(5, 3)], [stages])
    else:
        assert shapes == [(5, 3), stages]


def test_commutative_noise_asks_for_no_levy_area():
    for name, (sde, _) in sdes().items():
        expected = Needs.LEVY_AREA if sde.noise.name in ("isotropic", "general") else Needs.INCREMENT
        assert SRKID().required(sde) is expected, name


def test_srk_ld_is_the_papers_formula():
    """Eq. srk literally, in ξ and η."""
    potential = sdes()["langevin"][0].potential
    x = torch.linspace(-1.0, 1.0, 12).reshape(4, 3)
    h, given = 0.3, increment((4, 3), Needs.SPACE_TIME_AREA, dt=0.3)
    xi, eta = given.W / h**0.5, 12**0.5 * given.H / h**0.5
    root = (2 * h) ** 0.5
    h1 = x + root * ((0.5 + 6**-0.5) * xi + 12**-0.5 * eta)
    h2 = x - h * potential.grad(x) + root * ((0.5 - 6**-0.5) * xi + 12**-0.5 * eta)
    expected = x - h / 2 * (potential.grad(h1) + potential.grad(h2)) + root * xi
    torch.testing.assert_close(SRKLD().step(Langevin(potential), 0.0, x, given), expected)


def test_srk_id_in_one_dimension_is_a_derivative_free_milstein():
    """At m = 1 the iterated integral is (W² - h)/2, and the scheme is Milstein's up to O(h^1.5)."""
    sde = SDE(lambda x: -x, lambda x: (1.0 + 0.5 * x.sin()).unsqueeze(-1), "scalar")
    x = torch.linspace(-2.0, 2.0, 9).unsqueeze(-1)
    gaps = []
    for h in (1e-2, 1e-4):
        given = Increment(h, torch.full((9, 1), 0.7 * h**0.5))
        milstein = x - h * x + (1 + 0.5 * x.sin()) * given.W
        milstein = milstein + 0.5 * (1 + 0.5 * x.sin()) * 0.5 * x.cos() * (given.W**2 - h)
        gaps.append((SRKID().step(sde, 0.0, x, given) - milstein).abs().max().item())
    assert gaps[0] / gaps[1] > 10**2.9


def test_a_scheme_of_ones_own_is_known_by_its_name():
    class Ito(Integrator):
        """X' = X + W."""

        name, strong_order, strong_order_additive = "only-noise", 0.5, 0.5
        noise_types, needs, gradients_per_step = ("additive",), Needs.INCREMENT, 0

        def step(self, sde, t, x, increment):
            return sde.plus_noise(x, t, x, increment.W)

    run = sample(
        Langevin(CountingPotential()), torch.zeros(4, 2), integrator="only-noise", step_size=1.0, num_steps=1, seed=0
    )
    assert run.final.abs().min() > 0
