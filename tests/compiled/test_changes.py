"""What an SDE reads may change between two runs: the second run of a compiled step sees it, however soon it comes."""

import itertools
import random
import time
import warnings

import pytest
import torch

from tests.compiled import changes_around  # noqa: F401, which fills the table
from tests.compiled.changes import CHANGES, quadratic
from torchsrk import Langevin, sample
from torchsrk.compiled import programs, stored
from torchsrk.potentials import FunctionPotential
from torchsrk.sde import BaseSDE

OPTIONS = {"integrator": "em", "step_size": 0.01, "num_steps": 3, "seed": 5}
EAGER = "compile=True: this run is eager, as"


def problem(given):
    """An SDE and its options from what a factory gave: an energy, or an SDE with options."""
    given, options = given if isinstance(given, tuple) else (given, {})
    sde = given if isinstance(given, BaseSDE) else Langevin(FunctionPotential(given))
    return sde, {**OPTIONS, **options}


def start():
    return torch.linspace(-2.0, 2.0, 12, dtype=torch.float64).view(6, 2)


def run(sde, options, **more):
    """The final state. What counts is the numbers: a run may be eager, if it says so."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", EAGER, RuntimeWarning)
        return sample(sde, start(), **options, **more).final


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen(name, monkeypatch, cache):
    """In memory, and by the name on disk: not by the check alone, which would find it out as well."""
    given, change = CHANGES[name](monkeypatch)
    sde, options = problem(given)
    before, compiled_before = run(sde, options), run(sde, options, compile=True)
    changed = change()
    options |= changed if isinstance(changed, dict) else {}
    compiled_after, after = run(sde, options, compile=True), run(sde, options)
    assert not torch.allclose(before, after, rtol=1e-10, atol=0.0), "the change makes no difference"
    torch.testing.assert_close(compiled_before, before, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(compiled_after, after, rtol=1e-11, atol=1e-11)
    programs._PROGRAMS.clear()
    torch.testing.assert_close(run(sde, options, compile=True), after, rtol=1e-11, atol=1e-11)
    assert not stored._REJECTED


COUNTER = itertools.count()
ENDLESS = iter(lambda: next(COUNTER) % 7, None)
DRAWS = {
    "counter": lambda x: quadratic(x, 1.0 + next(COUNTER)),
    "iterator": lambda x: quadratic(x, 1.0 + next(ENDLESS)),
    "random": lambda x: quadratic(x, random.random()),
    "clock": lambda x: quadratic(x, 1.0 + time.perf_counter() % 1.0),
    "random tensor": lambda x: quadratic(x, torch.rand(()).item()),
}


@pytest.mark.parametrize("name", DRAWS)
def test_what_changes_with_every_call_is_not_frozen(name):
    sde = Langevin(FunctionPotential(DRAWS[name]))
    assert not torch.equal(run(sde, OPTIONS, compile=True), run(sde, OPTIONS, compile=True))
