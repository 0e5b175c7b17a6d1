"""Steps traced by running them: what that can't follow is left to torch's own tracer, or to the eager run."""

import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn

from tests.compiled.test_same_numbers import SIDE_BY_SIDE, assert_same, both, start
from torchsrk import SDE, Langevin, sample
from torchsrk.compiled import programs, recorded
from torchsrk.potentials import FunctionPotential

OPTIONS = {"integrator": "em", "step_size": 0.05, "num_steps": 3, "seed": 5}


@pytest.fixture
def ways(monkeypatch):
    """Whether each program was made from a trace by running the step."""
    programs._PROGRAMS.clear()
    made, compiled = [], programs._compiled

    def noted(problem, key, is_run, most):
        steps = compiled(problem, key, is_run, most)
        made.append(is_run)
        return steps

    monkeypatch.setattr(programs, "_compiled", noted)
    return made


def shares_memory(x):
    return (nn.Parameter(x.detach()) * x).sum(-1)


def writes_to_parts(x):
    y = x.clone()
    y[..., 0] = 2.0 * x[..., 1]
    y[..., 1:] += 1.0
    return y.square().sum(-1)


def as_wide_as_particles_are_many(x):
    return (x[..., :1] * torch.arange(recorded.MARKERS[0], dtype=x.dtype)).cos().mean(-1) + x.square().sum(-1)


def writes_much(x):
    wide = torch.linspace(-1.0, 1.0, 1 << 13, dtype=x.dtype)
    return (x[..., :1] * wide).cos().mean(-1) + x.square().sum(-1)


def sums_up(x):
    loss = torch.zeros_like(x[..., 0])
    for place, value in enumerate(x.unbind(-1)):
        loss += (value - place).square().tanh()
    return loss


def in_vmap(x):
    return torch.func.vmap(lambda v: (v.outer(v) @ v).sigmoid().sum() + v.dot(v))(x)


def writes_to_what_a_view_shows(x):
    doubled = 2.0 * x
    with torch.no_grad():
        same = doubled.view(doubled.shape).expand(doubled.shape).detach()
        same += x.sin()
    return doubled.square().sum(-1)


RUN = (sums_up, in_vmap, writes_to_what_a_view_shows)
NOT_RUN = (shares_memory, writes_to_parts, as_wide_as_particles_are_many, writes_much)


@pytest.mark.parametrize("energy", [*RUN, *NOT_RUN], ids=lambda energy: energy.__name__)
@pytest.mark.filterwarnings("ignore:the energy's gradient is not its slope")  # as one that detaches x is meant to be
def test_whichever_way_is_taken_the_numbers_are_the_eager_ones(energy, ways, monkeypatch):
    monkeypatch.setattr(programs, "_MOST_WRITTEN", 1 << 20)  # a part of it, so that much is less
    assert_same(*both(Langevin(FunctionPotential(energy)), start(SIDE_BY_SIDE, 3), "em", step_size=0.01, num_steps=3))
    assert ways == [energy in RUN]


def test_a_tensor_that_a_step_would_write_to_is_left_alone():
    buffer = torch.zeros(3, dtype=torch.float64)
    sde = SDE(lambda x: -x + buffer.add_(1.0), 0.1, "additive")
    with pytest.warns(RuntimeWarning, match="writes to a tensor that it did not make"):
        sample(sde, start(SIDE_BY_SIDE, 3), compile=True, **OPTIONS)
    assert not vars(buffer)


def test_a_long_step_checks_the_matrices_that_it_factors_before_a_run(monkeypatch):
    """One that ceases to be positive definite between two runs is torch's own error, and not a broken factor."""
    monkeypatch.setattr(programs, "_FEW_OPERATIONS", 100)
    matrix = torch.eye(3, dtype=torch.float64)

    def energy(x):
        loss = (torch.linalg.cholesky(matrix) @ x.unsqueeze(-1)).square().sum((-2, -1))
        for _ in range(2 * programs._FEW_OPERATIONS):
            loss = loss + 1e-4 * x[..., 0].square()
        return loss

    sde, x0 = Langevin(FunctionPotential(energy)), start(SIDE_BY_SIDE, 3)
    sample(sde, x0, compile=True, **OPTIONS)
    matrix[0, 0] = -1.0
    with pytest.raises(torch.linalg.LinAlgError):
        sample(sde, x0, compile=True, **OPTIONS)


def test_a_usual_step_imports_nothing_of_torchs_compiler():
    """That takes three times as long as all the rest."""
    program = """
        import sys, torch
        from torch import nn
        from torchsrk import Langevin, sample
        from torchsrk.potentials import FunctionPotential, GaussianMixture, LogisticRegression

        layers = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 8), nn.GELU(),
            nn.Softplus(), nn.Mish(), nn.LeakyReLU(), nn.LogSigmoid(), nn.Hardtanh(), nn.Linear(8, 2))
        network = FunctionPotential(lambda x: layers(x).logsumexp(-1) + x.square().sum(-1))
        targets = (GaussianMixture(torch.ones(2)), LogisticRegression.synthetic(10, 2, seed=0), network)
        options = {"integrator": "em", "step_size": 0.1, "num_steps": 2, "seed": 0, "compile": True}
        for target in targets:
            sample(Langevin(target), torch.zeros(5, 2), **options)
        print(*sys.modules)
    """
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {"sympy", "torch._dynamo", "torch._inductor"}.isdisjoint(done.stdout.split())
