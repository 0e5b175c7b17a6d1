"""One program for every step size: numbers that change with it are computed anew, and nothing is traced again."""

import math

import pytest
import torch

from tests.compiled.traces import count_traces
from torchsrk import SDE, Langevin, UnderdampedLangevin, sample
from torchsrk.integrators import Integrator
from torchsrk.integrators.base import integrator_named
from torchsrk.potentials import FunctionPotential

STEP_SIZES = (0.1, 0.25, 0.013)
SCHEMES = (
    "em",
    "srk-ld",
    "srk-id",
    "sra1",
    "shark",
    "lm",
    "mala",
    "tamed",
    "cheng",
    "ubu",
    "baoab",
    "obabo",
    "quicsort",
)


class Scaled(Integrator):
    """X' = X + factor(h)·b(X) + σW."""

    gradients_per_step = 1

    def __init__(self, factor):
        self.factor = factor

    def step(self, sde, t, state, increment):
        return state + self.factor(increment.dt) * sde.drift(t, state) + 0.1 * increment.W


def wave(x):
    return (0.5 * x.square() + x.sin()).sum(-1)


@pytest.fixture
def traces(monkeypatch):
    return count_traces(monkeypatch)


def assert_as_eager(sde, scheme, step_size, dtype=torch.float64):
    x0 = torch.linspace(-1.0, 2.0, 21, dtype=dtype).view(7, 3)
    options = {"integrator": scheme, "step_size": step_size, "num_steps": 4, "seed": 5}
    compiled, eager = (sample(sde, x0, compile=way, **options).state for way in (True, False))
    torch.testing.assert_close(compiled, eager, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", SCHEMES)
def test_a_scheme_is_traced_for_its_first_step_size_alone(name, traces):
    scheme, potential = integrator_named(name), FunctionPotential(wave, dim=3)
    sde = Langevin(potential)
    sde = sde if scheme.is_for(sde) else UnderdampedLangevin(potential, friction=1.3)
    assert_as_eager(sde, scheme, STEP_SIZES[0])
    assert len(traces) == 2
    for step_size in STEP_SIZES[1:]:
        assert_as_eager(sde, scheme, step_size)
    assert len(traces) == 2


def by_branch(h):
    return h if h < 0.2 else 0.5 * h


def by_functions(h):
    return math.tanh(h)


def by_rounding(h):
    return math.ceil(10.0 * h) / 10.0


def by_tensor(h):
    return torch.tensor(h, dtype=torch.float64)


def by_text(h):
    return float(f"{h:.1f}")


def by_arithmetic(h):
    return 0.5 * h**2 - (1.0 - 3.0 / (2.0 + h)) + abs(-h)


@pytest.mark.parametrize("factor", [by_branch, by_functions, by_rounding, by_tensor, by_text, by_arithmetic])
def test_a_scheme_may_do_anything_with_its_step_size(factor, traces):
    sde = SDE(lambda x: -x.sin(), 1.0, "additive")
    for step_size in (*STEP_SIZES, *STEP_SIZES):
        assert_as_eager(sde, Scaled(factor), step_size)
    seen = factor is by_arithmetic
    assert len(traces) < 3 if seen else len(traces) > 3


def test_step_sizes_that_want_other_numbers_of_terms_have_programs_of_their_own(traces):
    sde = SDE(lambda x: -x, lambda x: torch.diag_embed(1.0 + 0.1 * x.flip(-1).cos()), "general")
    for step_size in (0.02, 0.0201, 0.002):
        assert_as_eager(sde, "srk-id", step_size)
    # Two step sizes share one, which is traced twice.
    assert len(traces) == 4


def test_numbers_of_the_step_size_that_torch_computes_before_a_run_are_current():
    shift = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)

    class Shifted(Integrator):
        gradients_per_step = 1

        def step(self, sde, t, state, increment):
            return state + (increment.dt * shift).exp() + 0.1 * increment.W

    sde = SDE(lambda x: -x, 1.0, "additive")
    for step_size in STEP_SIZES:
        assert_as_eager(sde, Shifted(), step_size)
