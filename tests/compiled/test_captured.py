"""Steps captured and replayed: everything but the capture itself on the CPU, and that on a GPU."""

import pytest
import torch

from tests.problems import mixture, sdes
from torchsrk import Langevin, UnderdampedLangevin, sample
from torchsrk.compiled import CannotCompile, captured, captured_steps
from torchsrk.integrators import integrator_named
from torchsrk.potentials import FunctionPotential
from torchsrk.sampling import problem_of
from torchsrk.sampling.dynamics import Dynamics
from torchsrk.sampling.plans import Pace

CASES = [("langevin", "srk-ld"), ("general", "srk-id"), ("timed", "em")]
NUMBERS = {"seed": 3, "first_particle": 4, "first_step": 2}


def chain(sde, scheme, x):
    return Dynamics(
        sde, integrator_named(scheme), Pace(0.1), NUMBERS["seed"], NUMBERS["first_particle"], None, sde.brownian_dim(x)
    )


class Recorder:
    """In the place of a CUDA graph: runs once when it captures, as a graph's warm-up does, and again when replayed."""

    def __init__(self):
        self.captures = 0

    def __call__(self, body):
        self.captures += 1
        body()
        return body


def start(particles, dim):
    return torch.randn(particles, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("name", "scheme"), CASES)
def test_replayed_steps_are_the_eager_ones(name, scheme):
    torch.set_default_dtype(torch.float32)  # in which times far out would be another's
    sde, dim = sdes()[name]
    x, recorder = start(9, dim), Recorder()
    problem = problem_of(sde, x, integrator=scheme, step_size=0.1)
    steps = captured_steps(problem, chain(sde, scheme, x), capture=recorder, **NUMBERS)
    options = {"integrator": scheme, "step_size": 0.1, "seed": 3, "first_particle": 4}
    for first, last in ((2, 7), (7, 12), (2**33, 2**33 + 5)):
        out = torch.empty_like(x)
        steps.advance(x, out, first, last)
        plain = sample(sde, x, num_steps=last - first, first_step=first, **options).final
        torch.testing.assert_close(out, plain, rtol=1e-13, atol=1e-13)
    assert recorder.captures == 2  # one step, for the check, and five


def test_a_scheme_with_a_velocity_and_substeps():
    sde, x = UnderdampedLangevin(mixture(3), friction=1.5), start(7, 3)
    for scheme in ("ubu", "quicsort"):
        problem = problem_of(sde, x, integrator=scheme, step_size=0.1)
        steps = captured_steps(problem, chain(sde, scheme, x), capture=Recorder(), **NUMBERS)
        out = torch.empty_like(problem.state)
        steps.advance(problem.state, out, 2, 5)
        options = {"integrator": scheme, "step_size": 0.1, "seed": 3, "first_particle": 4, "first_step": 2}
        plain = sample(sde, x, state=problem.state, num_steps=3, **options).state
        torch.testing.assert_close(out, plain, rtol=1e-13, atol=1e-13)


def test_few_lengths_are_captured(monkeypatch):
    monkeypatch.setattr(captured, "_MOST_GRAPHS", 2)
    sde, x, recorder = Langevin(mixture(3)), start(5, 3), Recorder()
    problem = problem_of(sde, x, integrator="em", step_size=0.1)
    steps = captured_steps(problem, chain(sde, "em", x), capture=recorder, **NUMBERS)
    for length in (4, 3, 2, 4):
        out = torch.empty_like(x)
        steps.advance(x, out, 2, 2 + length)
        options = {"integrator": "em", "step_size": 0.1, "seed": 3, "first_particle": 4, "first_step": 2}
        torch.testing.assert_close(out, sample(sde, x, num_steps=length, **options).final, rtol=1e-13, atol=1e-13)
    assert recorder.captures == 2


def test_what_fails_or_differs_is_refused():
    x = start(5, 3)
    problem = problem_of(Langevin(mixture(3)), x, integrator="em", step_size=0.1)
    with pytest.raises(CannotCompile, match="CUDA graphs are of CUDA devices, and the state is on cpu"):
        captured_steps(problem, chain(Langevin(mixture(3)), "em", x), **NUMBERS)

    def forgetful(body):  # a graph that kept none of what it was shown
        return lambda: None

    with pytest.raises(CannotCompile, match="the step that was captured differs from the eager one"):
        captured_steps(problem, chain(Langevin(mixture(3)), "em", x), capture=forgetful, **NUMBERS)

    def failing(body):
        raise RuntimeError("operation not permitted when stream is capturing")

    with pytest.raises(CannotCompile, match=r"can't be captured in a CUDA graph: operation not permitted"):
        captured_steps(problem, chain(Langevin(mixture(3)), "em", x), capture=failing, **NUMBERS)


gpu = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.mark.parametrize(("name", "scheme"), [pytest.param(*case, marks=gpu) for case in CASES])
def test_a_gpu_replays_the_eager_steps(name, scheme):
    sde, dim = sdes()[name]
    sde, x = sde.to("cuda"), start(500, dim).cuda()
    problem = problem_of(sde, x, integrator=scheme, step_size=0.1)
    steps = captured_steps(problem, chain(sde, scheme, x), **NUMBERS)
    out = torch.empty_like(x)
    steps.advance(x, out, 2, 18)
    plain = sample(sde, x, integrator=scheme, step_size=0.1, num_steps=16, seed=3, first_particle=4, first_step=2).final
    torch.testing.assert_close(out, plain)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_runs_one_kernel_and_captures_what_is_none():
    x = start(500, 3).cuda()
    options = {"integrator": "em", "step_size": 0.1, "num_steps": 20, "seed": 3}
    sde = Langevin(mixture(3)).to("cuda")
    torch.testing.assert_close(sample(sde, x, compile=True, **options).final, sample(sde, x, **options).final)
    gamma = Langevin(FunctionPotential(lambda x: torch.lgamma(x.exp()).sum(-1) + x.square().sum(-1)))
    with pytest.warns(RuntimeWarning, match="replays captured steps and is no single kernel, as a step uses digamma"):
        found = sample(gamma, x, compile=True, **options).final
    torch.testing.assert_close(found, sample(gamma, x, **options).final)
