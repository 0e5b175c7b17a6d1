"""What holds for a run of any scheme: the same bits however it is cut, positions reported, states gone on from."""

import dataclasses
import itertools
import warnings

import pytest
import torch

from tests.problems import mixture
from torchsrk import Langevin, UnderdampedLangevin, integrate, integrators, sample
from torchsrk.brownian import BrownianPath, FreshNoise, Increment, Needs, start_normals
from torchsrk.distributions import DiffusionDistribution
from torchsrk.integrators import OBABO, UBU, Integrator, LeimkuhlerMatthews
from torchsrk.potentials import FunctionPotential

EXPORTED = [getattr(integrators, name) for name in integrators.__all__]
SCHEMES = [cls() for cls in EXPORTED if isinstance(cls, type) and issubclass(cls, Integrator) and cls is not Integrator]
SCHEMES += [OBABO(stages=2), UBU(exact=True), UBU(randomized=True)]
ADJUSTED = [scheme for scheme in SCHEMES if not scheme.differentiable]
DIM, OPTIONS = 3, {"step_size": 0.2, "seed": 7}


def problem(scheme, dtype=torch.float32):
    target = mixture(DIM, dtype)
    overdamped, underdamped = Langevin(target), UnderdampedLangevin(target, friction=1.5, u=0.8)
    return overdamped if scheme.is_for(overdamped) else underdamped


def start(particles=301, dtype=torch.float32):
    return mixture(DIM, dtype).sample((particles,), seed=2)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_same_bits_on_any_number_of_threads_thinned_watched_or_resumed(scheme):
    sde, x0, seen = problem(scheme), start(), {}
    options = {"integrator": scheme, "block_size": 64, **OPTIONS}
    plain = sample(sde, x0, num_steps=9, **options)
    threads = torch.get_num_threads()
    for count in (2, 3, 5):
        torch.set_num_threads(count)
        again = sample(sde, x0, num_steps=9, **options)
        torch.set_num_threads(threads)
        assert torch.equal(again.state, plain.state)
        assert torch.equal(again.final, plain.final)
    kept = sample(sde, x0, num_steps=9, thin=3, callbacks=[seen.__setitem__], **options)
    assert torch.equal(kept.state, plain.state)
    assert torch.equal(kept.trajectory, torch.stack([seen[step] for step in (3, 6, 9)]))
    assert torch.equal(kept.trajectory[-1], plain.final)
    half = sample(sde, x0, num_steps=4, **options)
    assert torch.equal(half.final, seen[4])
    rest = sample(sde, half.final, state=half.state, first_step=half.step, num_steps=5, **options)
    assert torch.equal(rest.state, plain.state)
    assert torch.equal(rest.final, plain.final)
    assert plain.final.shape == x0.shape


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_compiled_is_eager_to_rounding_and_goes_on_alike(scheme):
    sde, x0 = problem(scheme, torch.float64), start(40, torch.float64)
    options = {"integrator": scheme, **OPTIONS}
    plain = sample(sde, x0, num_steps=9, **options)
    compiled = sample(sde, x0, num_steps=9, thin=3, compile=True, **options)
    torch.testing.assert_close(compiled.state, plain.state, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(compiled.final, plain.final, rtol=1e-9, atol=1e-9)
    half = sample(sde, x0, num_steps=4, compile=True, **options)
    going_on = {"state": half.state, "first_step": half.step, "num_steps": 5, "compile": True}
    assert torch.equal(sample(sde, half.final, **going_on, **options).state, compiled.state)
    assert compiled.statistics.keys() == plain.statistics.keys()


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_integrate_makes_the_steps_of_sample(scheme):
    sde, x0 = problem(scheme, torch.float64), start(8, torch.float64)
    run = sample(sde, x0, integrator=scheme, num_steps=4, thin=2, **OPTIONS)
    with torch.no_grad():
        solved = integrate(sde, x0, (0.0, 0.4, 0.8), integrator=scheme, **OPTIONS)
    torch.testing.assert_close(solved, torch.stack((x0, *run.trajectory)))


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_particles_do_not_depend_on_their_batch(scheme):
    sde, x0 = problem(scheme, torch.float64), start(20, torch.float64)
    whole = sample(sde, x0, integrator=scheme, num_steps=5, **OPTIONS).final
    part = sample(sde, x0[11:], integrator=scheme, num_steps=5, first_particle=11, **OPTIONS).final
    torch.testing.assert_close(part, whole[11:])
    shaped = sample(sde, x0.view(4, 5, DIM), integrator=scheme, num_steps=5, **OPTIONS).final
    torch.testing.assert_close(shaped.view(20, DIM), whole)
    single = sample(sde, x0[3], integrator=scheme, num_steps=5, first_particle=3, **OPTIONS).final
    torch.testing.assert_close(single, whole[3])


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_a_step_is_one_graph_for_torch_compile(scheme):
    sde, x0 = problem(scheme, torch.float64), start(5, torch.float64)
    noise = FreshNoise(1, x0.shape, dtype=x0.dtype, device=x0.device)
    increment = noise.increment(0, 0.0, 0.2, scheme.required(sde))
    parts = {field.name: getattr(increment, field.name) for field in dataclasses.fields(increment)[1:]}
    state = scheme.init(sde, 0.0, x0, 0.2, start_normals(2))

    def step(state, **parts):
        return scheme.step(sde, 0.0, state, Increment(0.2, **parts))

    torch._dynamo.reset()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, on what it compiles
        found = torch.compile(step, fullgraph=True, backend="eager")(state, **parts)
    torch.testing.assert_close(found, scheme.step(sde, 0.0, state, increment))


@pytest.mark.parametrize("scheme", ADJUSTED, ids=str)
def test_acceptance_is_reported(scheme):
    sde, x0 = problem(scheme), start()
    shares = [
        sample(sde, x0, integrator=scheme, step_size=h, num_steps=50, seed=1).statistics["acceptance"]
        for h in (0.05, 0.5, 1.5)
    ]
    assert all(more > less for more, less in itertools.pairwise(shares))
    assert shares[0] > 0.95


@pytest.mark.parametrize("scheme", ADJUSTED, ids=str)
def test_gradients_through_accepting_are_refused(scheme):
    x0 = start(4).requires_grad_()
    with pytest.raises(ValueError, match="has no derivative"):
        integrate(problem(scheme), x0, (0.0, 0.4), integrator=scheme, **OPTIONS)
    assert integrate(problem(scheme), x0.detach(), (0.0, 0.4), integrator=scheme, **OPTIONS).shape == (2, 4, DIM)


def test_gradients_reach_through_a_velocity():
    """Those of positions and of velocities by a finite difference."""
    scheme, x0 = UBU(), start(3, torch.float64)
    sde = problem(scheme, torch.float64)

    def end(x, recompute=False):
        return integrate(sde, x, (0.0, 1.0), integrator=scheme, step_size=0.1, seed=1, recompute=recompute)[-1].sum()

    moved = torch.zeros_like(x0)
    moved[1, 2] = 1e-6
    expected = (end(x0 + moved) - end(x0 - moved)) / 2e-6
    for recompute in (False, True):
        (gradient,) = torch.autograd.grad(end(leaf := x0.clone().requires_grad_(), recompute), leaf)
        assert float(gradient[1, 2]) == pytest.approx(float(expected), rel=1e-6)


def test_a_state_that_is_not_this_schemes_is_refused():
    sde, x0 = problem(OBABO()), start(6)
    run = sample(sde, x0, integrator="obabo", num_steps=2, **OPTIONS)
    options = {"first_step": 2, "num_steps": 2, **OPTIONS}
    with pytest.raises(ValueError, match=r"BAOAB\(\) has states of width 6 here; got one of shape \(6, 9\)"):
        sample(sde, run.final, state=run.state, integrator="baoab", **options)
    with pytest.raises(ValueError, match="state is that of an earlier run"):
        sample(sde, run.final[:3], state=run.state, integrator="obabo", **options)
    with pytest.raises(ValueError, match="state is that of an earlier run"):
        sample(sde, run.final, state=run.state.double(), integrator="obabo", **options)
    broken = run.state.clone()
    broken[0, 0] = torch.nan
    with pytest.raises(ValueError, match="state has 1 entries that are infinite or NaN"):
        sample(sde, run.final, state=broken, integrator="obabo", **options)


class OnlyNoise(Integrator):
    """X' = X/2 + W on even calls and W itself, a view of the increment, on odd ones."""

    noise_types, needs, gradients_per_step = ("additive",), Needs.INCREMENT, 0

    def step(self, sde, t, x, increment):
        return increment.W[:] if round(t / increment.dt) % 2 else 0.5 * x + increment.W


def test_a_state_that_is_a_view_of_the_noise_is_not_drawn_over():
    noise = FreshNoise(7, (6, DIM), dtype=torch.float32, device=torch.device("cpu"))
    W = [noise.increment(step, 0.0, 0.2, Needs.INCREMENT).W for step in range(3)]
    run = sample(problem(OnlyNoise()), start(6), integrator=OnlyNoise(), num_steps=3, **OPTIONS)
    assert torch.equal(run.final, 0.5 * W[1] + W[2])


@pytest.mark.parametrize("scheme", ["mala", "baoab", "ghmc"])
def test_a_start_without_an_energy_is_refused(scheme):
    target, x0 = FunctionPotential(lambda x: x.square().sum(-1).exp()), start(5)
    scheme = integrators.integrator_named(scheme)
    sde = Langevin(target) if scheme.is_for(Langevin(target)) else UnderdampedLangevin(target, friction=1.0)
    x0[2] = 30.0
    with pytest.raises(ValueError, match="a gradient of 1 of its particles is infinite or NaN"):
        sample(sde, x0, integrator=scheme, num_steps=2, **OPTIONS)


def test_steps_of_one_length_where_a_state_stands_on_them():
    sde, x0 = problem(integrators.BAOAB()), start(4)
    with pytest.raises(ValueError, match="steps of one length"):
        integrate(sde, x0, (0.0, 0.5), integrator="baoab", step_size=0.2, seed=0, partial_step=True)
    assert integrate(sde, x0, (0.0, 0.5), integrator="ubu", step_size=0.2, seed=0, partial_step=True).shape == (
        2,
        4,
        DIM,
    )


def test_positions_that_take_the_next_step_ask_for_a_path_that_has_it():
    sde, x0 = problem(LeimkuhlerMatthews(), torch.float64), start(4, torch.float64)
    path = BrownianPath((4, DIM), num_steps=5, seed=1, t1=1.0)
    options = {"integrator": "lm", "step_size": 0.2, "path": path}
    assert integrate(sde, x0, (0.0, 0.8), **options).isfinite().all()
    with pytest.raises(ValueError, match="the noise of one more step"):
        integrate(sde, x0, (0.0, 1.0), **options)


@pytest.mark.parametrize("scheme", ["lm", "mala", "baoab", "obabo", "ghmc"])
def test_a_distribution_goes_on_from_states(scheme):
    options = {"integrator": scheme, "step_size": 0.3, "num_steps": 5, "warm_start": True, "seed": 3}
    target = torch.distributions.Gamma(torch.tensor([2.0, 3.0]), torch.tensor([1.0, 2.0]))
    first, second = (DiffusionDistribution(target, **options) for _ in range(2))
    first.sample((20,))
    second.load_state_dict(first.state_dict())
    assert torch.equal(first.sample((30,)), second.sample((30,)))
    draws = torch.stack([first.sample((2000,)) for _ in range(30)][-1:])
    torch.testing.assert_close(draws.mean((0, 1)), target.mean, rtol=0.1, atol=0.0)
    with pytest.raises(ValueError, match="chains of this distribution have shape"):
        first.load_state_dict({"calls": 1, "chains": torch.zeros(4, 2, 9)})
