"""A seeded portion of the fuzzer, and that it finds what it is there to find."""

import os
import time
from pathlib import Path

import pytest
import torch

from fuzz import compare, workers
from fuzz.functions import idiom_of
from fuzz.programs import draw_program
from fuzz.report import normalised, written
from fuzz.workers import Result, examine, examine_all
from tests import forks
from torchsrk import Langevin
from torchsrk.potentials import FunctionPotential

OPTIONS = {"integrator": "em", "step_size": 0.02, "num_steps": 3, "seed": 5}
# A stride that no number of idioms divides, so that all groups have their turn.
SEEDS = range(0, 28 * 37, 37)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_program(seed):
    dtype = ("float32", "float64")[seed % 2]
    with torch.random.fork_rng():
        result = examine(seed, dtype)
    assert result.kind in ("compiled", "eager", "raises"), f"{result.detail}\n{draw_program(seed, dtype).text}"


def energy(x):
    return 0.5 * x.square().sum(-1) + torch.sin(3.0 * x).prod(-1) + torch.logsumexp(x, -1)


def start(dtype=torch.float64):
    return torch.randn(17, 3, dtype=dtype, generator=torch.Generator().manual_seed(0))


@pytest.fixture(params=[torch.float32, torch.float64])
def runs(request):
    """An eager run, and some with other roundings."""
    sde, x0 = Langevin(FunctionPotential(energy)), start(request.param)
    return compare.run(sde, x0, OPTIONS), compare.rounded_runs(sde, x0, OPTIONS, range(6))


def test_other_roundings_move_a_state_by_little(runs):
    eager, rounded = runs
    eps = torch.finfo(eager.state.dtype).eps
    moves = [(outcome.state - eager.state).abs().max().item() for outcome in rounded]
    assert all(0.0 < move < 100 * eps for move in moves)


def test_a_state_within_rounding_is_right(runs):
    eager, rounded = runs
    assert compare.disagreement(eager, rounded[0], rounded[1:]) == ""


@pytest.mark.parametrize("planted", ["a sign", "one entry", "a precision", "not finite", "shape"])
def test_a_planted_fault_is_noticed(runs, planted):
    eager, rounded = runs
    eps = torch.finfo(eager.state.dtype).eps
    faulty = {
        "a sign": lambda x: 2.0 * start(x.dtype) - x,
        "one entry": lambda x: x.index_put(
            (torch.tensor(3), torch.tensor(1)), x.new_tensor(1e4 * eps), accumulate=True
        ),
        "a precision": lambda x: x.bfloat16().to(x.dtype),
        "not finite": lambda x: x.index_fill(0, torch.tensor(2), torch.nan),
        "shape": lambda x: x[:-1],
    }[planted](eager.state)
    assert compare.disagreement(eager, compare.Outcome(faulty), rounded)


def test_errors_are_compared():
    fine, lost = compare.Outcome(torch.zeros(2, 1)), compare.Outcome(error="NonFiniteStateError")
    refused = compare.Outcome(error="IndexError: index 3 is out of bounds")
    assert compare.disagreement(lost, lost, []) == ""
    assert compare.disagreement(refused, compare.Outcome(error="RuntimeError: other words"), []) == ""
    assert compare.disagreement(refused, fine, [refused]) != ""
    assert compare.disagreement(fine, lost, [fine]) != ""
    assert compare.disagreement(fine, lost, [fine, lost]) == ""  # at the edge


def test_a_discontinuity_excuses_the_particles_near_it_alone():
    """One particle sits on a step of the drift, where any rounding decides."""
    eager, first, second = (
        compare.Outcome(torch.tensor(rows)) for rows in ([[0.0], [0.0]], [[0.1], [0.0]], [[0.0], [0.1]])
    )
    assert compare.disagreement(eager, first, [first]) == ""
    assert compare.disagreement(eager, second, [first]) != ""


def test_compensated_arithmetic_is_not_excused():
    """What is accurate by the order of its operations has a small bound, far below that of a careless order."""
    x = torch.full((5, 1), 1e-9, dtype=torch.float64)

    def careful(x):
        y = 1.0 + x
        return torch.where(y == 1.0, 1.0, torch.log(y) / (y - 1.0)).sum(-1) * x.square().sum(-1)

    sde = Langevin(FunctionPotential(careful))
    rounded = compare.rounded_runs(sde, x, OPTIONS, range(0, 12, 3))
    eager = compare.run(sde, x, OPTIONS)
    assert compare.tolerance(eager.state, rounded).max() < 1e-12


def test_a_program_is_its_seed():
    assert draw_program(11) == draw_program(11)
    assert draw_program(11).text != draw_program(12).text
    assert draw_program(11, "float32").dtype == "float32"


def test_every_idiom_has_its_turn():
    for seed in range(0, 700, 70):
        assert idiom_of(seed) in draw_program(seed).idioms


def test_the_report_counts_reasons_and_shows_programs():
    results = [
        Result(1, "compiled"),
        Result(2, "eager", "a step uses 3 of (4, 5)"),
        Result(3, "eager", "a step uses 7 of (8,)"),
        Result(4, "wrong", "particle 0 is off"),
    ]
    report = written(results, "both", 2.0)
    assert "25.0% compiled and right" in report
    assert "=== wrong: program 4: particle 0 is off" in report
    assert draw_program(4).text in report
    assert normalised("a step uses 3 of (4, 5)") == "a step uses # of (#)"


def _misbehave(seed, dtype, draw):
    os.abort() if seed == 1 else time.sleep(600)


def plant_misbehaviour():
    workers.examine = _misbehave


def test_crashes_and_hangs_cost_one_program_each(tmp_path):
    options = {"dtype": "both", "jobs": 2, "folder": tmp_path, "timeout": 8.0, "setup": plant_misbehaviour}
    results = {result.seed: result.kind for result in examine_all([1, 2], **options)}
    assert results == {1: "crash", 2: "timeout"}


def test_the_script_runs_one_program_again(tmp_path):
    script, report = Path(workers.__file__).parent.parent / "fuzz_compiled.py", tmp_path / "report.txt"
    done = forks.run(script, "--only", "205", "--jobs", "1", "--report", str(report))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(draw_program(205).text)
    assert report.read_text().startswith("1 programs in")
