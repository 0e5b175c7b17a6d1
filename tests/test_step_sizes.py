"""Steps of given lengths, and times that can't be solved at."""

import math

import pytest
import torch

from torchsrk import SDE, Langevin, UnderdampedLangevin, integrate, sample
from torchsrk.brownian import BrownianPath
from torchsrk.potentials import FunctionPotential

OU = SDE(lambda t, x: t - x, lambda t, x: x.new_full((), 1.0 + t), "additive", time_dependent=True)
X0 = torch.ones(6, 2, dtype=torch.float64)
SIZES = [0.4, 0.3, 0.2, 0.1]


def test_equal_ones_are_a_step_size():
    """0.25 is a binary fraction, so that sums of it are its multiples."""
    options = {"integrator": "srk-ld", "seed": 0}
    for function, arguments in ((sample, {"num_steps": 8}), (integrate, {"ts": [0.0, 1.0, 2.0]})):
        x0 = X0.clone()
        plain = function(OU, x0, step_size=0.25, **arguments, **options)
        given = function(OU, x0, step_sizes=[0.25] * 8, **arguments, **options)
        same = plain.final.equal(given.final) if function is sample else plain.equal(given)
        assert same


def test_sample_is_integrate():
    xs = integrate(OU, X0, [0.0, 0.7, 1.0], step_sizes=SIZES, integrator="shark", seed=0)
    run = sample(OU, X0, step_sizes=torch.tensor(SIZES, dtype=torch.float64), integrator="shark", seed=0, thin=2)
    torch.testing.assert_close(run.trajectory, xs[1:])
    assert run.step == 4


def test_they_follow_a_path():
    """dX = dB has no error: the states are the path's own, where the steps end."""
    still = SDE(torch.zeros_like, 1.0, "additive")
    path = BrownianPath((6, 2), num_steps=10, seed=1)
    xs = integrate(still, torch.zeros_like(X0), [0.0, 0.4, 1.0], step_sizes=SIZES, integrator="em", path=path)
    whole = integrate(still, torch.zeros_like(X0), [0.0, 0.4, 1.0], step_size=0.1, integrator="em", path=path)
    torch.testing.assert_close(xs, whole)


def test_a_run_goes_on():
    options = {"step_sizes": SIZES, "integrator": "srk-ld", "seed": 0}
    whole = sample(OU, X0, **options)
    half = sample(OU, X0, num_steps=2, **options)
    assert sample(OU, half.final, first_step=half.step, **options).final.equal(whole.final)


def test_order_with_lengths_that_differ():
    """SRK-LD on a drift that bends and a σ that depends on time, steps that shrink by half: the order is 1.5 still."""
    sde = SDE(
        lambda t, x: (x + t).sin(), lambda t, x: x.new_full((), math.exp(-float(t))), "additive", time_dependent=True
    )
    x0, errors = torch.zeros(200, 1, dtype=torch.float64), []
    path = BrownianPath((200, 1), num_steps=3 * 128, seed=0, t1=3.0)
    fine = integrate(sde, x0, [0.0, 3.0], step_size=1 / 128, integrator="srk-ld", path=path)[-1]
    for count in (4, 16):
        sizes = [2.0 / count] * count + [1.0 / count] * count
        rough = integrate(sde, x0, [0.0, 3.0], step_sizes=sizes, integrator="srk-ld", path=path)[-1]
        errors.append(float((rough - fine).square().mean().sqrt()))
    slope = math.log2(errors[0] / errors[-1]) / 2
    assert slope > 1.35, errors


def test_torchs_compiler_is_not_for_them():
    with pytest.warns(RuntimeWarning, match="eager, as its steps have lengths of their own"):
        compiled = sample(OU, X0, step_sizes=SIZES, integrator="em", seed=0, compile="torch")
    plain = sample(OU, X0, step_sizes=SIZES, integrator="em", seed=0, compile="auto")
    assert compiled.final.equal(plain.final)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step_sizes": None}, "exactly one of step_size="),
        ({"step_size": 0.1}, "exactly one of step_size="),
        ({"step_sizes": []}, "one positive number for every step"),
        ({"step_sizes": [0.1, -0.1]}, "one positive number for every step"),
        ({"step_sizes": [0.1] * 20 + [math.nan, 0.1]}, "where entry 20 of 22 is nan"),
        ({"step_sizes": torch.ones(2, 2)}, "one positive number for every step"),
        ({"num_steps": 5}, "has the lengths of 4 steps, and this run goes to step 5"),
        ({"first_step": 4}, "has the lengths of 4 steps, from step number 0 on, and first_step=4"),
    ],
)
def test_refused(changes, message):
    sde = Langevin(FunctionPotential(lambda x: x.square().sum(-1)))
    with pytest.raises(ValueError, match=message):
        sample(sde, X0, **{"step_sizes": SIZES, "integrator": "em", "seed": 0, **changes})


def test_a_scheme_of_equal_steps():
    sde = UnderdampedLangevin(FunctionPotential(lambda x: x.square().sum(-1)), friction=1.0)
    options = {"integrator": "baoab", "seed": 0}
    with pytest.raises(ValueError, match="makes steps of one length"):
        sample(sde, X0, step_sizes=SIZES, **options)
    plain = sample(sde, X0, step_size=0.25, num_steps=4, **options)
    assert sample(sde, X0, step_sizes=[0.25] * 4, **options).final.equal(plain.final)


@pytest.mark.parametrize(
    ("ts", "options", "message"),
    [
        ([1.0, 0.5, 0.0], {"step_size": 0.1}, "these decrease.*ReverseDiffusion"),
        ([0.0, 0.5, 0.5], {"step_size": 0.1}, "two or more increasing times"),
        (torch.zeros(3, 4), {"step_size": 0.1}, r"one grid of times .* got shape \(3, 4\)"),
        ([0.0, 0.5, 1.0], {"step_sizes": SIZES}, "no step ends at 0.5: the nearest does at 0.4"),
        ([0.0, 0.9], {"step_sizes": SIZES}, "4 step_sizes reach to 1, and ts to 0.9"),
        ([0.0, 1.5], {"step_sizes": SIZES}, "no step ends at 1.5"),
    ],
)
def test_times_that_are_refused(ts, options, message):
    with pytest.raises(ValueError, match=message):
        integrate(OU, X0, ts, integrator="em", seed=0, **options)
