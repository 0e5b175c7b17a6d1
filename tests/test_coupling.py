"""Step sizes that share a path."""

import itertools

import pytest
import torch

from tests.problems import mixture
from torchsrk import (
    BAOAB,
    OBABO,
    UBU,
    Capped,
    Cheng,
    EulerMaruyama,
    Langevin,
    LeimkuhlerMatthews,
    UnderdampedLangevin,
    sample,
)
from torchsrk.brownian import BrownianPath, FreshNoise, Needs
from torchsrk.coupling import coupled_positions
from torchsrk.integrators.composed import Composed
from torchsrk.potentials import FunctionPotential

X0 = torch.linspace(-2.0, 2.0, 30, dtype=torch.float64).reshape(10, 3)
FLAT = FunctionPotential(lambda x: 0.0 * x.sum(-1), dim=3)


def test_an_increment_and_the_next_are_the_path_over_both():
    needs = Needs.INCREMENT | Needs.SPACE_TIME_AREA | Needs.SPACE_TIME_TIME_AREA | Needs.LEVY_AREA
    path = BrownianPath((4, 2), num_steps=8, seed=1)
    for start in (0.0, 0.5):
        halves = [path.increment(0, start + k * 0.25, 0.25, needs) for k in range(2)]
        whole, joined = path.increment(0, start, 0.5, needs), halves[0].then(halves[1])
        assert joined.dt == whole.dt
        for part in "WHKA":
            torch.testing.assert_close(getattr(joined, part), getattr(whole, part))


def test_increments_of_other_lengths_and_draws_beside_the_path_are_refused():
    noise = FreshNoise(1, (2, 3), dtype=torch.float64, device=torch.device("cpu"))
    short, long = (noise.increment(0, 0.0, dt, Needs.INCREMENT) for dt in (0.1, 0.2))
    with pytest.raises(ValueError, match="one length"):
        short.then(long)
    beside = noise.increment(0, 0.0, 0.1, Needs.UNIFORM)
    with pytest.raises(ValueError, match="beside the path"):
        beside.then(beside)


@pytest.mark.parametrize("scheme", [EulerMaruyama(), LeimkuhlerMatthews(), BAOAB(), OBABO()], ids=str)
def test_the_finest_level_is_a_run(scheme):
    sde = Langevin(mixture(3)) if scheme.name in ("em", "lm") else UnderdampedLangevin(mixture(3), friction=1.5)
    options = {"integrator": scheme, "step_size": 0.1, "seed": 4}
    kept = coupled_positions(sde, X0, levels=3, periods=3, **options)
    run = sample(sde, X0, num_steps=12, thin=4, **options)
    assert kept.shape == (3, 3, 10, 3)
    assert torch.equal(kept[:, 0], run.trajectory)


@pytest.mark.parametrize("scheme", [EulerMaruyama(), UBU(), Cheng()], ids=str)
def test_without_a_force_levels_are_one_path(scheme):
    sde = Langevin(FLAT) if scheme.name == "em" else UnderdampedLangevin(FLAT, friction=1.5)
    kept = coupled_positions(sde, X0, levels=3, periods=4, integrator=scheme, step_size=0.1, seed=4)
    for level in (1, 2):
        torch.testing.assert_close(kept[:, level], kept[:, 0])


@pytest.mark.parametrize("scheme", [BAOAB(), OBABO()], ids=str)
def test_without_a_force_velocities_of_two_steps_are_those_of_one(scheme):
    sde = UnderdampedLangevin(FLAT, friction=1.5)
    noise = FreshNoise(4, X0.shape, dtype=X0.dtype, device=X0.device)
    short = [noise.increment(k, 0.0, 0.1, scheme.needs) for k in range(2)]
    state = scheme.init(sde, 0.0, X0, 0.1, torch.ones_like)
    twice = scheme.step(sde, 0.0, scheme.step(sde, 0.0, state, short[0]), short[1])
    once = scheme.step(sde, 0.0, state, scheme.compose(sde, *short))
    torch.testing.assert_close(once[:, 3:6], twice[:, 3:6])


@pytest.mark.parametrize("scheme", [BAOAB(), OBABO(), UBU()], ids=str)
def test_composed_noise_has_its_law(scheme):
    """Independent normals of variance h and h/12: 200,000 of them, correlations within five standard errors."""
    sde = UnderdampedLangevin(FLAT, friction=1.5)
    noise = FreshNoise(4, (200_000, 1), dtype=torch.float64, device=torch.device("cpu"))
    first, second = (noise.increment(k, 0.0, 0.3, scheme.needs) for k in range(2))
    whole = scheme.compose(sde, first, second)
    parts = [whole.W / 0.6**0.5] if whole.H is None else [whole.W / 0.6**0.5, whole.H / (0.6 / 12.0) ** 0.5]
    for a, b in itertools.combinations_with_replacement(range(len(parts)), 2):
        error = (2.0 if a == b else 1.0) ** 0.5 / 200_000**0.5
        assert abs(float((parts[a] * parts[b]).mean()) - (a == b)) < 5.0 * error


# Every one takes a second to compile: rows of one particle and of two by turns, overdamped and with momentum.
@pytest.mark.parametrize(
    ("scheme", "batch"),
    [(EulerMaruyama(), ()), (LeimkuhlerMatthews(), (2,)), (BAOAB(), ()), (OBABO(), (2,)), (UBU(), ())],
    ids=str,
)
def test_compiled_levels_are_the_eager_ones(scheme, batch):
    potential = FunctionPotential(lambda x: (0.5 * x.square() + x.sin()).sum(-1), dim=3)
    overdamped = scheme.name in ("em", "lm")
    sde = Langevin(potential) if overdamped else UnderdampedLangevin(potential, friction=1.5)
    x0 = X0.view(-1, *batch, 3).contiguous()
    options = {"levels": 3, "periods": 3, "integrator": scheme, "step_size": 0.1, "seed": 4}
    compiled, eager = (coupled_positions(sde, x0, compile=way, **options) for way in (True, False))
    torch.testing.assert_close(compiled, eager, rtol=1e-11, atol=1e-12)


def test_a_level_that_explodes_leaves_the_others():
    steep = Langevin(FunctionPotential(lambda x: 0.25 * x.pow(4).sum(-1), dim=3))
    kept = coupled_positions(steep, X0, levels=3, periods=10, integrator=EulerMaruyama(), step_size=0.15, seed=0)
    assert kept[:, 0].isfinite().all()
    assert kept[:, 2].isnan().all()


@pytest.mark.parametrize("substeps", [0, 3, -2, True, 2.0])
def test_substeps_are_a_power_of_two(substeps):
    with pytest.raises(ValueError, match="power of two"):
        Composed(BAOAB(), substeps)


def test_a_capped_scheme_reads_as_many_increments_as_the_one_within():
    sde = UnderdampedLangevin(FLAT, friction=1.5)
    options = {"step_size": 0.2, "num_steps": 4, "seed": 3}
    plain = sample(sde, X0, integrator=Composed(BAOAB(), 2), **options)
    capped = sample(sde, X0, integrator=Capped(Composed(BAOAB(), 2), 1e6), **options)
    assert torch.equal(plain.final, capped.final)
    with pytest.raises(ValueError, match="already"):
        Composed(Composed(BAOAB(), 2), 2)
