"""What a scheme of the user's own gets wrong in its step is told at the first one, by name."""

import warnings

import pytest
import torch
from torch import nn

from torchsrk import SDE, Chain, EulerMaruyama, Integrator, Langevin, integrate, sample
from torchsrk.brownian import BrownianPath, Needs
from torchsrk.integrators.capped import Capped
from torchsrk.potentials import FunctionPotential
from torchsrk.reference import strong_order

X = torch.randn(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
SDE_ = Langevin(FunctionPotential(energy=lambda x: 0.5 * x.square().sum(-1), dim=2))
OPTIONS = {"step_size": 0.1, "seed": 0}


def scheme(step, **facts):
    return type("Mine", (Integrator,), {"gradients_per_step": 1, "step": step, **facts})()


def moved(sde, t, x, increment):
    return increment.dt * sde.drift_at(t, x) + sde.noise_at(t, x)(increment.W)


def run_through(way, mine, sde=SDE_):
    if way == "sample":
        sample(sde, X, integrator=mine, num_steps=3, **OPTIONS)
    elif way == "compiled":
        sample(sde, X, integrator=mine, num_steps=3, compile=True, **OPTIONS)
    elif way == "chain":
        Chain(sde, X, integrator=mine, **OPTIONS).advance(3)
    elif way == "integrate":
        integrate(sde, X, [0.0, 0.3], integrator=mine, **OPTIONS)
    elif way == "integrate compiled":
        integrate(sde, X, [0.0, 0.3], integrator=mine, compile=True, **OPTIONS)
    else:
        strong_order(mine, sde, X, t1=0.5, num_steps=(2, 4), fine_steps=8, seed=0)


WAYS = ["sample", "compiled", "chain", "integrate", "integrate compiled", "strong_order"]


@pytest.mark.filterwarnings("ignore:compile=True:RuntimeWarning")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("step", "said"),
    [
        (lambda self, *given: moved(*given), r"Mine.step .* returned what is to be added to one.*return x \+ \.\.\."),
        (lambda self, *given: None, "Mine.step .* returned None: does it end without `return`"),
        (lambda self, sde, t, x, increment: 0.0, "Mine.step must return the next state, a tensor; it returned float"),
        (lambda self, sde, t, x, increment: x.mean(0, keepdim=True), r"Mine.step .* it returned shape \(1, 2\)"),
        (lambda self, sde, t, x, increment: x[..., 0], r"Mine.step .* it returned shape \(6,\)|\(2,\)"),
        (lambda self, sde, t, x, increment: (x + moved(sde, t, x, increment)).float(), "Mine.step returned .*float32"),
    ],
    ids=["term", "nothing", "number", "mean", "column", "dtype"],
)
def test_what_is_no_state_is_one_error(way, step, said):
    with pytest.raises((TypeError, ValueError), match=said):
        run_through(way, scheme(step))


@pytest.mark.filterwarnings("ignore:compile=True:RuntimeWarning")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("read", "said"),
    [
        (lambda increment: 0.5 * increment.W + increment.H, r"reads increment.H, .* needs = Needs.SPACE_TIME_AREA in"),
        (lambda increment: increment.u.log(), r"reads increment.u, .* needs = Needs.UNIFORM in"),
        (lambda increment: torch.sqrt(increment.Z), r"reads increment.Z, .* needs = Needs.BETWEEN in"),
    ],
    ids=["sum", "method", "function"],
)
def test_arithmetic_with_a_part_that_was_not_asked_for_says_what_asks_for_it(way, read, said):
    mine = scheme(lambda self, sde, t, x, increment: x + moved(sde, t, x, increment) + read(increment))
    with pytest.raises(TypeError, match=said):
        run_through(way, mine)


def test_other_errors_of_a_step_are_left_as_they_are():
    def fails(self, sde, t, x, increment):
        return x + increment.H + None

    with pytest.raises(TypeError, match=r"^unsupported operand"):
        sample(SDE_, X, integrator=scheme(fails, needs=Needs.SPACE_TIME_AREA), num_steps=2, **OPTIONS)


@pytest.mark.parametrize("way", ["sample", "chain", "integrate"])
def test_a_step_that_draws_by_itself_is_told(way):
    def draws(self, sde, t, x, increment):
        return x + increment.dt * sde.drift_at(t, x) + (2 * increment.dt) ** 0.5 * torch.randn_like(x)

    for wrapped in (False, True):
        mine = scheme(draws)
        with pytest.warns(RuntimeWarning, match=r"Mine.step draws random numbers of its own, by aten.randn_like"):
            run_through(way, Capped(mine, 1.0) if wrapped else mine)


def test_what_the_sde_draws_is_its_own_business():
    network = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.Linear(8, 2)).double()
    mine = scheme(lambda self, sde, t, x, increment: x + moved(sde, t, x, increment))
    with_backward = Langevin(FunctionPotential(energy=lambda x: nn.functional.dropout(x, 0.1).square().sum(-1), dim=2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run_through("sample", mine, SDE(network, torch.eye(2, dtype=torch.float64), "additive"))
        mine = scheme(lambda self, sde, t, x, increment: x + moved(sde, t, x, increment))
        Chain(with_backward, X, integrator=mine, **OPTIONS).advance(1)


def test_steps_are_looked_at_once():
    """The first of a run, as the bits of the others tell: they are not touched by a look."""
    seen = []

    def step(self, sde, t, x, increment):
        seen.append(torch._C._len_torch_dispatch_stack())
        return x + moved(sde, t, x, increment)

    mine = scheme(step)
    run = sample(SDE_, X, integrator=mine, num_steps=40, **OPTIONS)
    assert seen == [1] + [0] * 39
    assert torch.equal(run.final, sample(SDE_, X, integrator=mine, num_steps=40, **OPTIONS).final)
    assert not any(seen[40:])  # a scheme that has drawn nothing is not watched again
    torch.testing.assert_close(run.final, sample(SDE_, X, integrator=EulerMaruyama(), num_steps=40, **OPTIONS).final)


def test_under_vmap():
    mine = scheme(lambda self, sde, t, x, increment: x + moved(sde, t, x, increment))
    solve = lambda x: integrate(SDE_, x, [0.0, 0.3], integrator=mine, **OPTIONS)  # noqa: E731
    assert torch.func.vmap(solve)(torch.stack((X, X))).shape == (2, 2, 6, 2)


def test_along_a_path():
    path = BrownianPath((6, 2), num_steps=3, seed=0, t1=0.3)
    with pytest.raises(TypeError, match="returned None"):
        integrate(SDE_, X, [0.0, 0.3], integrator=scheme(lambda *given: None), step_size=0.1, path=path)


@pytest.mark.parametrize("way", ["sample", "chain", "integrate"])
@pytest.mark.parametrize("made", [None, X[0], X.float()], ids=["nothing", "row", "dtype"])
def test_a_start_that_is_none(way, made):
    mine = scheme(lambda self, *given: moved(*given), init=lambda self, *given: made)
    with pytest.raises((TypeError, ValueError), match=r"Mine\.init (must return|returned)"):
        run_through(way, mine)


@pytest.mark.parametrize("made", [None, X[0], X.float()], ids=["nothing", "row", "dtype"])
def test_positions_that_are_none(made):
    step = lambda self, sde, t, x, increment: x + moved(sde, t, x, increment)  # noqa: E731
    with pytest.raises((TypeError, ValueError), match=r"Mine\.position (must return|returned)"):
        run_through("sample", scheme(step, position=lambda self, *given: made))


def test_a_drift_that_torch_compiled_is_watched_as_any_other():
    network = torch.compile(nn.Linear(2, 2).double(), backend="eager")
    mine = scheme(lambda self, sde, t, x, increment: x + moved(sde, t, x, increment))
    sde = SDE(lambda x: network(x), torch.eye(2, dtype=torch.float64), "additive")
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("error", message="Mine")
        assert sample(sde, X, integrator=mine, num_steps=3, **OPTIONS).final.isfinite().all()
