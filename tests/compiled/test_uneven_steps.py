"""Steps of lengths of their own, compiled: the numbers of an eager run, by the program that serves equal ones."""

import math

import pytest
import torch

from tests.compiled.test_minibatches import logistic
from tests.compiled.traces import count_traces
from torchsrk import SDE, Langevin, ReverseDiffusion, VarianceExploding, VariancePreserving, sample
from torchsrk.integrators.base import Integrator, integrator_named
from torchsrk.potentials import FunctionPotential

SIZES = [0.3 * 0.9**k for k in range(70)]
OU = SDE(
    lambda t, x: (t - x).sin(), lambda t, x: x.new_full((), 1.0).mul(1.0 + 0.5 * t), "additive", time_dependent=True
)
WAVE = Langevin(FunctionPotential(lambda x: (0.5 * x.square() + x.sin()).sum(-1)))


def both_ways(sde, x0, **options):
    return tuple(sample(sde, x0, compile=way, seed=5, **options) for way in (True, False))


def assert_alike(compiled, eager, dtype):
    options = {"rtol": 1e-11, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 2e-4, "atol": 2e-5}
    torch.testing.assert_close(compiled.state, eager.state, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("particles", [1, 3, 700])  # one by one, and side by side
@pytest.mark.parametrize("scheme", ["em", "srk-ld", "shark", "sra1"])
def test_as_eager(scheme, particles, dtype):
    x0 = torch.linspace(-1.0, 2.0, 3 * particles, dtype=dtype).view(particles, 3)
    options = {"integrator": scheme, "step_sizes": SIZES, "thin": 7}
    compiled, eager = both_ways(OU, x0, **options)
    assert_alike(compiled, eager, dtype)
    assert compiled.trajectory.shape == eager.trajectory.shape


def test_schemes_with_more_than_a_gradient():
    x0 = torch.linspace(-1.0, 2.0, 21, dtype=torch.float64).view(7, 3)
    for scheme in ("tamed", "mala", "lm", "srk-id"):
        if not integrator_named(scheme).equal_steps:
            assert_alike(*both_ways(WAVE, x0, integrator=scheme, step_sizes=SIZES), torch.float64)


class TwoKicks(Integrator):
    """A step that reads the noise of two half as long."""

    gradients_per_step, substeps = 1, 2

    def step(self, sde, t, x, increment):
        first, second = increment.apart(2)
        return x + increment.dt * sde.drift(t, x) + first.W - 0.5 * second.W


@pytest.mark.parametrize("scheme", ["srk-ld", TwoKicks()])
def test_members_and_substeps(scheme):
    x0 = torch.linspace(-1.0, 2.0, 200 * 6, dtype=torch.float64).view(200, 2, 3)
    assert_alike(*both_ways(WAVE, x0, integrator=scheme, step_sizes=SIZES), torch.float64)


def test_minibatches():
    ends = []
    for way in (True, False):
        sde, x0 = Langevin(logistic()), torch.linspace(-1.0, 2.0, 40, dtype=torch.float64).view(20, 2)
        sizes = [0.1 * size for size in SIZES]
        ends.append(sample(sde, x0, integrator="srk-ld", step_sizes=sizes, seed=5, compile=way))
    assert_alike(*ends, torch.float64)


def test_one_program_for_all_lengths(monkeypatch):
    traces = count_traces(monkeypatch)
    sde = Langevin(FunctionPotential(lambda x: (0.5 * x.square() - x.cos()).sum(-1)))
    x0 = torch.linspace(-1.0, 2.0, 21, dtype=torch.float64).view(7, 3)
    sample(sde, x0, integrator="srk-ld", step_size=0.1, num_steps=4, seed=0, compile=True)
    before = len(traces)
    for sizes in (SIZES, SIZES[::-1], [0.05] * 5):
        assert_alike(*both_ways(sde, x0, integrator="srk-ld", step_sizes=sizes), torch.float64)
    assert len(traces) == before


def test_a_cut_run_and_threads_have_the_same_bits():
    x0 = torch.linspace(-1.0, 2.0, 3000, dtype=torch.float64).view(1000, 3)
    options = {"integrator": "shark", "step_sizes": SIZES, "seed": 5, "compile": True}
    whole = sample(OU, x0, **options).final
    half = sample(OU, x0, num_steps=31, **options)
    assert sample(OU, half.final, state=half.state, first_step=half.step, **options).final.equal(whole)
    last = sample(OU, x0, num_steps=69, **options)
    assert sample(OU, last.final, state=last.state, first_step=69, **options).final.equal(whole)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert sample(OU, x0, **options).final.equal(whole)
    finally:
        torch.set_num_threads(threads)


def mixture_score(schedule, dtype):
    means = torch.tensor([[1.5, 0.0], [-1.5, 0.5]], dtype=dtype)

    def score(x, t):
        tau = schedule.variance(t).unsqueeze(-1)
        scale = schedule.scale(tau)
        variance = scale.square() * (0.2 + tau)
        apart = x.unsqueeze(-2) - scale.unsqueeze(-1) * means
        weights = (-apart.square().sum(-1) / (2.0 * variance)).softmax(-1)
        return -(weights.unsqueeze(-1) * apart).sum(-2) / variance

    return score


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("schedule", [VariancePreserving(), VarianceExploding()], ids=["VP", "VE"])
@pytest.mark.parametrize("scheme", ["em", "shark", "srk-ld"])
def test_score_models(scheme, schedule, dtype):
    """The last of the steps are a billionth of the run: in float32 no time could tell them apart."""
    reverse = ReverseDiffusion(mixture_score(schedule, dtype), schedule)
    start = reverse.prior(300, 2, seed=1, dtype=dtype)
    for steps in ({"step_sizes": reverse.step_sizes(40)}, {"step_size": reverse.duration / 40, "num_steps": 40}):
        compiled, eager = both_ways(reverse, start, integrator=scheme, **steps)
        # Errors of rounding grow where two normals part.
        rounding = {"rtol": 1e-9, "atol": 1e-8} if dtype == torch.float64 else {"rtol": 2e-4, "atol": 5e-3}
        torch.testing.assert_close(compiled.final, eager.final, **rounding)
        assert reverse.data(compiled).isfinite().all()


def test_a_step_that_changes_with_its_length_is_eager():
    class ByLength(type(integrator_named("em"))):
        def step(self, sde, t, state, increment):
            factor = 1.0 if float(increment.dt) > 0.1 else 2.0
            return state + factor * increment.dt * sde.drift(t, state) + increment.W

    x0 = torch.linspace(-1.0, 2.0, 21, dtype=torch.float64).view(7, 3)
    with pytest.warns(RuntimeWarning, match="eager, as its steps have lengths of their own, and not all"):
        compiled = sample(WAVE, x0, integrator=ByLength(), step_sizes=SIZES, seed=0, compile=True)
    assert compiled.final.equal(sample(WAVE, x0, integrator=ByLength(), step_sizes=SIZES, seed=0).final)
    assert math.isclose(compiled.time, sum(SIZES))
