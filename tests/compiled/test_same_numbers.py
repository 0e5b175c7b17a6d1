"""A compiled run has the eager run's numbers, to rounding, and its own are the same bits however it is run."""

import pytest
import torch
from torch import nn

from tests.compiled.zoo import DIM, FUNCTIONS, networks
from tests.problems import mixture, potentials, sdes
from torchsrk import SDE, Langevin, NonFiniteStateError, sample
from torchsrk.brownian import FourierLevyArea, MrongowiusRoesslerLevyArea, WiktorssonLevyArea
from torchsrk.compiled import programs
from torchsrk.integrators import integrator_named
from torchsrk.potentials import FunctionPotential, LogisticRegression

ONE_BY_ONE, SIDE_BY_SIDE = 3, 37  # particles: both ways of running, and tiles that are not full
SCHEMES = ("em", "srk-ld", "srk-id")


def both(sde, x0, scheme, **options):
    """The eager and the compiled final state; a fallback would raise, as warnings are errors here."""
    run = {"integrator": scheme, "step_size": 0.01, "num_steps": 20, "seed": 5, "first_step": 3, "first_particle": 7}
    run |= options
    return sample(sde, x0, **run).final, sample(sde, x0, compile=True, **run).final


def assert_same(eager, compiled):
    """A few roundings a step apart, over twenty steps."""
    tolerance = 1e-12 if eager.dtype == torch.float64 else 2e-5
    torch.testing.assert_close(compiled, eager, rtol=tolerance, atol=tolerance)


def start(particles, dim, dtype=torch.float64):
    return torch.randn(particles, dim, dtype=dtype, generator=torch.Generator().manual_seed(1))


def some_at_a_time(energies, number):
    """Names of energies that are to be added up: the C compiler is what takes long, and what is wrong with one of them
    shows in the sum."""
    names = list(energies)
    return pytest.mark.parametrize("names", [names[k::number] for k in range(number)], ids=", ".join)


def added_up(energies, names):
    return lambda x: sum(energies[name](x) for name in names)


@some_at_a_time(FUNCTIONS, 8)
def test_energies_as_users_write_them(names):
    sde = Langevin(FunctionPotential(added_up(FUNCTIONS, names)))
    for particles in (ONE_BY_ONE, SIDE_BY_SIDE):
        assert_same(*both(sde, start(particles, DIM), "em"))


@pytest.mark.parametrize("name", networks())
def test_networks(name):
    sde = Langevin(FunctionPotential(networks()[name].to(torch.float64)))
    for particles in (ONE_BY_ONE, SIDE_BY_SIDE):
        assert_same(*both(sde, start(particles, DIM), "em"))


@pytest.mark.parametrize("name", potentials())
def test_shipped_potentials(name):
    """Every potential with every scheme and in either precision, by turns."""
    turn = list(potentials()).index(name)
    for number, scheme in enumerate(SCHEMES):
        dtype = (torch.float32, torch.float64)[(turn + number) % 2]
        potential, dim = potentials(dtype)[name]
        assert_same(*both(Langevin(potential), start(SIDE_BY_SIDE, dim, dtype), scheme))


@pytest.mark.parametrize("name", sdes())
def test_sdes(name):
    sde, dim = sdes()[name]
    for scheme in map(integrator_named, SCHEMES):
        if sde.noise.name in scheme.noise_types:
            for particles in (ONE_BY_ONE, SIDE_BY_SIDE):
                assert_same(*both(sde, start(particles, dim), scheme))


@pytest.mark.parametrize("method", [FourierLevyArea, WiktorssonLevyArea, MrongowiusRoesslerLevyArea])
def test_levy_areas(method):
    sde, dim = sdes()["general"]
    for terms in (1, 30):
        assert_same(*both(sde, start(SIDE_BY_SIDE, dim), "srk-id", levy_area=method(terms), step_size=0.1))


def test_time_dependent_coefficients():
    def drift(t, x):
        return -x * torch.cos(torch.as_tensor(t, dtype=x.dtype))

    def diffusion(t, x):
        return torch.exp(-torch.as_tensor(t, dtype=x.dtype)) * torch.sigmoid(x)

    sde = SDE(drift, diffusion, "diagonal", time_dependent=True)
    for scheme in ("em", "srk-id"):
        assert_same(*both(sde, start(SIDE_BY_SIDE, 2), scheme, step_size=0.2))


@pytest.mark.parametrize("matrix", [False, True])
def test_additive_noise_that_moves_with_time(matrix):
    tilt = torch.linspace(-1.0, 1.0, 6, dtype=torch.float64).view(2, 3) if matrix else 1.0

    def diffusion(t, x):
        return tilt * (1.0 + torch.sin(torch.as_tensor(3.0 * t, dtype=x.dtype)))

    sde = SDE(lambda t, x: -x * t, diffusion, "additive", time_dependent=True)
    for scheme in SCHEMES:
        assert_same(*both(sde, start(SIDE_BY_SIDE, 2), scheme, step_size=0.2))


def test_one_state_without_a_batch():
    assert_same(*both(Langevin(mixture(4)), torch.ones(4), "srk-ld"))


def test_large_problems():
    """Loops that are not unrolled, sums of many terms, more noise than one draw holds."""
    target = LogisticRegression.synthetic(300, 70, seed=1, dtype=torch.float64)
    for particles in (ONE_BY_ONE, SIDE_BY_SIDE):
        assert_same(*both(Langevin(target), start(particles, 70), "srk-ld", num_steps=70))


REGRESSION = Langevin(LogisticRegression.synthetic(100, 10, seed=1))
OPTIONS = {"integrator": "srk-ld", "step_size": 0.1, "seed": 5, "compile": True}


@pytest.mark.parametrize("particles", [ONE_BY_ONE, 701])
def test_same_bits_for_any_number_of_threads_thinned_or_resumed(particles):
    x0 = start(particles, 10, torch.float32)
    threads, finals = torch.get_num_threads(), []
    for count in (1, 2, 3, 5):
        torch.set_num_threads(count)
        finals.append(sample(REGRESSION, x0, num_steps=400, **OPTIONS).final)
    torch.set_num_threads(threads)
    thinned = sample(REGRESSION, x0, num_steps=400, thin=7, check_every=3, **OPTIONS)
    half = sample(REGRESSION, x0, num_steps=150, **OPTIONS)
    rest = sample(REGRESSION, half.final, num_steps=250, first_step=half.step, **OPTIONS)
    assert all(torch.equal(final, finals[0]) for final in (*finals, thinned.final, rest.final))
    seven = sample(REGRESSION, x0, num_steps=7, **OPTIONS)
    assert torch.equal(thinned.trajectory[0], seven.final)


def test_same_bits_for_any_batch():
    x0 = start(701, 10, torch.float32)
    whole = sample(REGRESSION, x0, num_steps=20, **OPTIONS).final
    for first, last in ((0, 5), (5, 22), (100, 701)):
        part = sample(REGRESSION, x0[first:last], num_steps=20, first_particle=first, **OPTIONS).final
        assert torch.equal(part, whole[first:last])


@pytest.mark.parametrize("particles", [ONE_BY_ONE, SIDE_BY_SIDE])
def test_a_state_that_explodes_is_traced_to_its_step(particles):
    sde = Langevin(FunctionPotential(lambda x: x.pow(4).sum(-1)))
    errors = []
    for compiled in (False, True):
        with pytest.raises(NonFiniteStateError) as caught:
            sample(
                sde, 5 + start(particles, 2), integrator="em", step_size=0.1, num_steps=900, seed=0, compile=compiled
            )
        errors.append(caught.value)
    eager, compiled = errors
    assert (compiled.step, compiled.count, compiled.last_finite_step) == (
        eager.step, eager.count, eager.last_finite_step,
    )  # fmt: skip
    assert compiled.last_finite.isfinite().all()


def test_parameters_are_read_at_every_run():
    network = nn.Sequential(nn.Linear(DIM, 8), nn.Tanh(), nn.Linear(8, 1))
    sde = Langevin(FunctionPotential(lambda x: network(x).squeeze(-1) + x.square().sum(-1)))
    x0 = start(SIDE_BY_SIDE, DIM)
    finals = []

    def check():
        eager, compiled = both(sde, x0, "em")
        assert_same(eager, compiled)
        assert not any(torch.equal(compiled, final) for final in finals)
        finals.append(compiled)

    check()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)  # at 1 it is so steep that rounding grows in the steps
    network(x0).sum().backward()
    optimizer.step()
    check()
    network[0].weight.data = 3.0 * network[0].weight.data
    check()
    network[0].weight = nn.Parameter(torch.randn_like(network[0].weight))
    check()
    network[1] = nn.SiLU()
    check()


STRENGTH = 1.0


def test_what_a_function_reads_around_it_is_noticed():
    global STRENGTH
    box = {"power": 1.0}
    sde = Langevin(FunctionPotential(lambda x: STRENGTH * x.square().sum(-1) * box["power"]))
    x0 = start(SIDE_BY_SIDE, 2)
    finals = [both(sde, x0, "em")]
    STRENGTH = 2.0
    finals.append(both(sde, x0, "em"))
    box["power"] = 3.0
    finals.append(both(sde, x0, "em"))
    sde.potential.energy = lambda x: x.square().sum(-1)
    finals.append(both(sde, x0, "em"))
    for eager, compiled in finals:
        assert_same(eager, compiled)
    STRENGTH = 1.0


def test_few_programs_are_kept(monkeypatch):
    monkeypatch.setattr(programs, "_MOST_KEPT", 2)
    sde, x0 = Langevin(mixture()), start(SIDE_BY_SIDE, mixture().dim)
    for step_size in (0.01, 0.02, 0.03, 0.01):
        assert_same(*both(sde, x0, "em", step_size=step_size))
        assert len(programs._PROGRAMS) <= 2
