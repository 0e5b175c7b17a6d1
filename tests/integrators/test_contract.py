"""What every scheme keeps to, and that its declared facts are facts."""

import dataclasses
import itertools

import pytest
import torch

from tests.problems import CountingPotential, matrix_columns, matrix_field, minibatch, sdes
from torchsrk import SDE, SRKID, SRKLD, Langevin, UnderdampedLangevin, integrators, sample
from torchsrk.brownian import BrownianPath, Increment, Needs, start_normals
from torchsrk.integrators import Integrator, integrator_named
from torchsrk.potentials import NonConvex

EXPORTED = [getattr(integrators, name) for name in integrators.__all__]
SCHEMES = [cls() for cls in EXPORTED if isinstance(cls, type) and issubclass(cls, Integrator) and cls is not Integrator]


def zoo():
    """One SDE of every class and noise type, with its dimension."""
    return {**sdes(), "underdamped": (UnderdampedLangevin(NonConvex(2.0, 0.5, dim=3), friction=1.5), 3)}


PAIRS = [
    (scheme, name)
    for scheme, (name, (sde, _)) in itertools.product(SCHEMES, sorted(zoo().items()))
    if scheme.is_for(sde)
]


def increment(shape, needs, dt=0.1, seed=2):
    return BrownianPath(shape, num_steps=4, seed=seed, t1=dt).increment(0, 0.0, dt, needs)


def particle_of(given, index):
    parts = {field.name: getattr(given, field.name) for field in dataclasses.fields(given)[1:]}
    return Increment(given.dt, **{name: None if part is None else part[index] for name, part in parts.items()})


def start(scheme, sde, x, dt=0.1):
    """The first state of particles at x, and the increments of the steps from it, as a run would make them."""
    return scheme.init(sde, 0.2, x, dt, start_normals(5)), increment(
        (*x.shape[:-1], sde.brownian_dim(x)), scheme.required(sde) | scheme.position_needs, dt
    )


def test_there_are_schemes_for_every_sde():
    assert {name for _, name in PAIRS} == set(zoo())


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_facts_are_declared(scheme):
    assert integrator_named(scheme.name).__class__ is type(scheme)
    if scheme.strong_order is None:
        assert scheme.strong_order_additive is None
    else:
        assert 0.0 < scheme.strong_order <= scheme.strong_order_additive
    assert scheme.law_order is None or scheme.law_order > 0.0
    assert set(scheme.noise_types) <= {"additive", "diagonal", "scalar", "isotropic", "general"}
    assert isinstance(scheme.needs, Needs)
    assert all(isinstance(option, (bool, int, float)) for option in vars(scheme).values()), "options, and no state"
    assert "X'" in type(scheme).__doc__


@pytest.mark.parametrize(("scheme", "name"), PAIRS, ids=str)
def test_a_step_is_a_pure_function_of_its_increment(scheme, name):
    sde, dim = zoo()[name]
    x = torch.linspace(-1.0, 1.0, 5 * dim).reshape(5, dim)
    state, given = start(scheme, sde, x)
    assert torch.equal(scheme.init(sde, 0.2, x, 0.1, start_normals(5)), state)
    assert state.shape[:-1] == x.shape[:-1]
    before = x.clone(), state.clone(), given.W.clone()
    first, second = scheme.step(sde, 0.2, state, given), scheme.step(sde, 0.2, state, given)
    position = scheme.position(sde, 0.2, state, given)
    assert torch.equal(first, second)
    assert not torch.equal(first, state)
    assert first.shape == state.shape
    assert first.dtype == x.dtype
    assert position.shape == x.shape
    if not scheme.position_needs:
        assert torch.equal(scheme.position(sde, 0.2, state, None), x)
    for now, then in zip((x, state, given.W), before, strict=True):
        assert torch.equal(now, then)
    assert first.data_ptr() != state.data_ptr()


@pytest.mark.parametrize(("scheme", "name"), PAIRS, ids=str)
def test_any_leading_shape_and_each_particle_on_its_own(scheme, name):
    sde, dim = zoo()[name]
    x = torch.linspace(-1.0, 1.0, 6 * dim).reshape(2, 3, dim)
    state, given = start(scheme, sde, x)
    stepped, position = scheme.step(sde, 0.2, state, given), scheme.position(sde, 0.2, state, given)
    for i, j in itertools.product(range(2), range(3)):
        alone = particle_of(given, (i, j))
        torch.testing.assert_close(scheme.step(sde, 0.2, state[i, j], alone), stepped[i, j])
        torch.testing.assert_close(scheme.position(sde, 0.2, state[i, j], alone), position[i, j])


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_gradients_per_step_are_counted(scheme):
    """Of those that a potential is asked for; second derivatives are taken of its energy."""
    potential = CountingPotential()
    sde = next(sde for sde in (Langevin(potential), UnderdampedLangevin(potential, friction=1.0)) if scheme.is_for(sde))
    state, given = start(scheme, sde, torch.ones(4, 3))
    potential.gradients = 0
    for _ in range(10):
        state = scheme.step(sde, 0.0, state, given)
    assert potential.gradients == 10 * scheme.gradients_per_step


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_a_state_keeps_its_dtype(scheme, dtype):
    potential = CountingPotential()
    sde = next(sde for sde in (Langevin(potential), UnderdampedLangevin(potential, friction=1.0)) if scheme.is_for(sde))
    x = torch.ones(4, 3, dtype=dtype)
    state = scheme.init(sde, 0.0, x, 0.1, start_normals(5))
    given = increment((4, 3), scheme.required(sde) | scheme.position_needs)
    parts = {field.name: getattr(given, field.name) for field in dataclasses.fields(given)[1:]}
    given = Increment(0.1, **{name: None if part is None else part.to(dtype) for name, part in parts.items()})
    assert state.dtype == scheme.step(sde, 0.0, state, given).dtype == dtype
    assert scheme.position(sde, 0.0, state, given).dtype == dtype


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_an_sde_that_is_not_served_is_refused_with_those_schemes_that_serve_it(scheme):
    for sde, _ in zoo().values():
        if scheme.is_for(sde):
            scheme.check(sde)
            continue
        with pytest.raises(ValueError, match=f"{type(scheme).__name__} serves .*Schemes that serve it: ") as refusal:
            scheme.check(sde)
        named = set(str(refusal.value).split("Schemes that serve it: ")[1].rstrip(".").split(", "))
        assert {repr(other.name) for other in SCHEMES if other.is_for(sde)} <= named
        assert repr(scheme.name) not in named


@pytest.mark.parametrize("name", ["mala", "ozaki", "tamed"])
def test_estimated_gradients_are_refused_where_they_would_bias(name):
    scheme, sde, x = integrator_named(name), Langevin(minibatch()), torch.zeros(4, 2)
    with pytest.raises(ValueError, match=r"MinibatchPotential estimates its gradient.*such as 'em'"):
        scheme.step(sde, 0.0, *start(scheme, sde, x))


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
        assert (Needs.LEVY_AREA in SRKID().required(sde)) == (sde.noise.name in ("isotropic", "general")), name


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
            return x + sde.noise_at(t, x)(increment.W)

    run = sample(
        Langevin(CountingPotential()), torch.zeros(4, 2), integrator="only-noise", step_size=1.0, num_steps=1, seed=0
    )
    assert run.final.abs().min() > 0
