"""A chain goes on as one run would, and can't repeat its noise."""

import copy

import pytest
import torch

from torchsrk import SDE, Chain, Langevin, NonFiniteStateError, UnderdampedLangevin, sample
from torchsrk.checkpoints import load_checkpoint, save_checkpoint
from torchsrk.integrators import UBU
from torchsrk.integrators.capped import Capped
from torchsrk.potentials import FunctionPotential, GaussianMixture, MinibatchPotential

X0 = torch.randn(20, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
MIXTURE = GaussianMixture(shift=torch.full((3,), 0.5, dtype=torch.float64))
OPTIONS = {"integrator": "srk-ld", "step_size": 0.1, "seed": 5}
CASES = [
    ("em", Langevin(MIXTURE), False),
    ("srk-ld", Langevin(MIXTURE), True),
    ("mala", Langevin(MIXTURE), False),
    ("lm", Langevin(MIXTURE), False),
    ("baoab", UnderdampedLangevin(MIXTURE, friction=1.0), False),
]


@pytest.mark.parametrize(("scheme", "sde", "compile"), CASES, ids=[case[0] for case in CASES])
def test_pieces_are_one_run(scheme, sde, compile):
    options = {**OPTIONS, "integrator": scheme, "compile": compile}
    whole = sample(sde, X0, num_steps=30, thin=10, **options)
    chain = Chain(sde, X0, **options)
    assert (chain.step, chain.seed) == (0, 5)
    assert chain.x.equal(X0)
    for steps, kept in zip((10, 10, 10), whole.trajectory, strict=True):
        run = chain.advance(steps)
        assert run.final.equal(kept)
        assert chain.x.equal(kept)
    assert run.state.equal(whole.state)
    assert chain.step == run.step == 30


def test_burn_in_and_thin():
    whole = sample(Langevin(MIXTURE), X0, burn_in=4, num_steps=9, thin=3, **OPTIONS)
    assert Chain(Langevin(MIXTURE), X0, **OPTIONS).advance(9, burn_in=4, thin=3).trajectory.equal(whole.trajectory)


def test_a_loop_has_the_right_law():
    """Of N(0, 1), by 200 calls of 5 steps: the variance of 4,000 particles within 4.5 standard errors. ``sample`` with
    one seed, called so, repeats its noise, and has another."""
    sde = Langevin(FunctionPotential(lambda x: 0.5 * x.square().sum(-1)))
    options = {"integrator": "srk-ld", "step_size": 0.1, "seed": 0}
    chain, x = Chain(sde, torch.zeros(4000, 1), **options), torch.zeros(4000, 1)
    for _ in range(200):
        chain.advance(5)
        x = sample(sde, x, num_steps=5, **options).final
    error = 4.5 * (2 / 4000) ** 0.5
    assert abs(float(chain.x.var()) - 1.0) < error
    assert float(x.var()) > 2.0


def test_nothing_done_to_what_it_gives_reaches_the_chain():
    mine, other = (Chain(Langevin(MIXTURE), X0, **OPTIONS) for _ in range(2))
    mine.x.zero_()
    run, _ = mine.advance(3), other.advance(3)
    run.final.zero_(), run.state.zero_(), mine.state_dict()["x"].zero_(), mine.state_dict()["state"].zero_()
    assert mine.advance(3).final.equal(other.advance(3).final)


@pytest.mark.parametrize("steps", [0, 4])
@pytest.mark.parametrize(("scheme", "sde"), [case[:2] for case in CASES[2:]], ids=[case[0] for case in CASES[2:]])
def test_saved_and_loaded(scheme, sde, steps, tmp_path):
    options = {**OPTIONS, "integrator": scheme}
    chain = Chain(sde, X0, **options)
    if steps:
        chain.advance(steps)
    save_checkpoint(tmp_path / "chain.safetensors", chain.state_dict())
    expected = chain.advance(6).final
    other = Chain(sde, torch.ones_like(X0), **{**options, "seed": 99})
    other.load_state_dict(load_checkpoint(tmp_path / "chain.safetensors"))
    assert other.seed == 5
    assert other.advance(6).final.equal(expected)
    assert other.step == chain.step == steps + 6


def test_a_copy_goes_on_alike():
    chain = Chain(Langevin(MIXTURE), X0, **OPTIONS)
    chain.advance(3)
    other = copy.deepcopy(chain)
    assert other.advance(3).final.equal(chain.advance(3).final)


def test_parameters_may_change_between_calls():
    mean = torch.nn.Parameter(torch.zeros(3))
    sde = Langevin(FunctionPotential(lambda x: 0.5 * (x - mean).square().sum(-1)))
    chain = Chain(sde, torch.zeros(2000, 3), **OPTIONS)
    assert chain.advance(60).final.mean().abs() < 0.1
    with torch.no_grad():
        mean += 3.0
    final = chain.advance(60).final
    assert not final.requires_grad
    assert abs(float(final.mean()) - 3.0) < 0.1


def test_minibatches_go_on():
    data = torch.randn(50, 3, generator=torch.Generator().manual_seed(1))

    def potential():
        return MinibatchPotential(
            lambda x, rows: 0.5 * (x.unsqueeze(-2) - rows).square().sum(-1), data, batch_size=5, seed=2
        )

    options = {**OPTIONS, "step_size": 0.001}
    whole = sample(Langevin(potential()), X0, num_steps=12, **options)
    chain = Chain(Langevin(potential()), X0, **options)
    chain.advance(5)
    assert chain.advance(7).final.equal(whole.final)


def test_after_a_failure_it_is_where_it_was():
    steep = [1.0]
    sde = Langevin(FunctionPotential(lambda x: steep[0] * x.square().sum(-1)))
    chain, other = (Chain(sde, X0, **OPTIONS) for _ in range(2))
    chain.advance(2), other.advance(2)
    steep[0] = 1e3
    with pytest.raises(NonFiniteStateError):
        chain.advance(500)
    assert chain.step == 2
    steep[0] = 1.0
    assert chain.advance(2).final.equal(other.advance(2).final)


def test_refused():
    sde = Langevin(MIXTURE)
    with pytest.raises(ValueError, match="seed"):
        Chain(sde, X0, integrator="em", step_size=0.1, seed=-1)
    with pytest.raises(ValueError, match="dimension 3"):
        Chain(sde, torch.zeros(5, 4), **OPTIONS)
    with pytest.raises(ValueError, match="num_steps is an integer, at least 1"):
        Chain(sde, X0, **OPTIONS).advance(0)
    chain = Chain(sde, X0, **{**OPTIONS, "integrator": "mala"})
    chain.advance(1)
    good = chain.state_dict()
    for changes, message in (
        ({"x": torch.zeros(3, 3)}, r"this chain has positions torch.float64 \(20, 3\); got torch.float64 \(3, 3\)"),
        ({"x": X0.float()}, "got torch.float32"),
        ({"state": torch.zeros(20, 3)}, "states of width"),
        ({"state": torch.full_like(good["state"], torch.nan)}, "infinite or NaN"),
        ({"state": "mine"}, "got str"),
        ({"step": -1}, "step is an integer"),
        ({"seed": 1.5}, "seed"),
        ({"more": 1}, "expected the first_particle, scheme, seed, state, step, step_size, x"),
        ({"x": X0}, "the state's particles are elsewhere than at x"),
        ({"x": torch.full_like(X0, torch.nan)}, "x has 60 entries that are infinite or NaN"),
        ({"scheme": "BAOAB"}, "this chain's scheme is MALA, and the state is one of BAOAB: make the chain with that"),
        ({"step_size": "long"}, "step_size is a positive number"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            chain.load_state_dict({**good, **changes})
    for nothing in (None, 3, []):
        with pytest.raises(ValueError, match=r"that state_dict gives; got (NoneType|int|list)"):
            chain.load_state_dict(nothing)
    assert chain.step == 1
    assert chain.x.equal(good["x"])
    assert "20 particles after 1 steps" in repr(chain)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"state": "x"}, "state is that of an earlier run.*got str"),
        ({"state": torch.zeros(20, 5, dtype=torch.float64)}, "states of width 6 here"),
        ({"state": torch.zeros(3, 6, dtype=torch.float64)}, r"got torch.float64 \(3, 6\)"),
        ({"state": torch.zeros(20, 6, dtype=torch.float64)}, "elsewhere than at x"),
        ({"compile": "yes"}, "compile is True, False"),
        ({"block_size": 0}, "block_size is an integer, at least 1; got 0"),
        ({"check_every": 0}, "check_every is an integer, at least 1; got 0"),
    ],
)
def test_refused_when_it_is_made(changes, message):
    with pytest.raises(ValueError, match=message):
        Chain(UnderdampedLangevin(MIXTURE, friction=1.0), X0, **{**OPTIONS, "integrator": "baoab"}, **changes)


@pytest.mark.parametrize(("scheme", "sde"), [CASES[3][:2], CASES[4][:2]], ids=["lm", "baoab"])
def test_a_state_that_lacks_more_than_positions(scheme, sde):
    chain = Chain(sde, X0, **{**OPTIONS, "integrator": scheme})
    chain.load_state_dict(chain.state_dict())  # before the first step there is no state
    chain.advance(3)
    with pytest.raises(ValueError, match="state is None after 3 steps"):
        chain.load_state_dict({**chain.state_dict(), "state": None})
    simple = Chain(Langevin(MIXTURE), X0, **OPTIONS)
    simple.advance(3)
    other = Chain(Langevin(MIXTURE), X0, **OPTIONS)
    other.load_state_dict({**simple.state_dict(), "state": None})
    assert other.advance(2).final.equal(simple.advance(2).final)


def test_the_state_of_another_scheme_or_step_size():
    sde = UnderdampedLangevin(MIXTURE, friction=1.0)
    plain, capped = (Chain(sde, X0, **{**OPTIONS, "integrator": scheme}) for scheme in ("ubu", Capped(UBU(), 10.0)))
    plain.advance(2), capped.advance(2)
    assert (plain.state_dict()["scheme"], capped.state_dict()["scheme"]) == ("UBU", "Capped(UBU)")
    with pytest.raises(ValueError, match=r"this chain's scheme is Capped\(UBU\), and the state is one of UBU"):
        capped.load_state_dict(plain.state_dict())
    finer = Chain(sde, X0, **{**OPTIONS, "integrator": "ubu", "step_size": 0.05})
    finer.load_state_dict(plain.state_dict())
    assert (plain.state_dict()["step_size"], finer.state_dict()["step_size"]) == (0.1, 0.05)
    going_on = sample(
        sde,
        plain.x,
        state=plain.state_dict()["state"],
        first_step=2,
        num_steps=3,
        **{**OPTIONS, "integrator": "ubu", "step_size": 0.05},
    )
    assert finer.advance(3).final.equal(going_on.final)


ALL = [*CASES, ("obabo", CASES[4][1], False), ("ghmc", CASES[4][1], False), ("ubu", CASES[4][1], True)]


@pytest.mark.parametrize("elsewhere", ["moved", "another cloud", "one particle"])
@pytest.mark.parametrize(("scheme", "sde", "compile"), ALL, ids=[case[0] for case in ALL])
def test_a_state_belongs_to_its_positions(scheme, sde, compile, elsewhere):
    options = {**OPTIONS, "integrator": scheme, "compile": compile}
    chain = Chain(sde, X0, **options)
    run = chain.advance(4, thin=2)
    other = {"moved": run.final + 50.0, "another cloud": 3.0 * X0.flip(0) + 1.0, "one particle": run.final.clone()}
    other["one particle"][3] += 20.0
    x, on = other[elsewhere], {"state": run.state, "num_steps": 2}
    with pytest.raises(ValueError, match=r"elsewhere than at x0.*x0=run\.final.*another seed"):
        sample(sde, x, first_step=run.step, **on, **options)
    with pytest.raises(ValueError, match=r"elsewhere than at x:.*another seed"):
        Chain(sde, x, state=run.state, **options)
    with pytest.raises(ValueError, match=r"elsewhere than at x:.*another seed"):
        chain.load_state_dict({**chain.state_dict(), "x": x})
    assert sample(sde, run.final, first_step=4, **on, **options).final.equal(chain.advance(2).final)
    # Another seed, another length of steps and steps numbered anew are no other positions.
    for changes in ({"seed": 77}, {"step_size": 0.03}, {"first_step": 9}):
        sample(sde, run.final, **on, **(options | changes))
    going_on = Chain(sde, run.final, state=run.state, **(options | {"seed": 3}))
    copy.copy(going_on).load_state_dict(going_on.state_dict())


def test_positions_far_from_0_are_told_apart():
    sde = Langevin(FunctionPotential(lambda x: 0.5 * (x - 1e4).square().sum(-1), dim=2))
    x0 = 1e4 + torch.linspace(-1.0, 1.0, 20, dtype=torch.float32).reshape(10, 2)
    options = {"integrator": "em", "step_size": 0.1, "seed": 0, "num_steps": 2}
    run = sample(sde, x0, **options)
    with pytest.raises(ValueError, match="elsewhere than at x0"):
        sample(sde, run.final + 0.5, state=run.state, first_step=2, **options)
    sample(sde, run.final.double().float(), state=run.state, first_step=2, **options)


def test_positions_that_noise_reports_are_known_to_rounding():
    """Of "lm", by a state that names its seed and step: a cloud that is as near as noise reaches is another one."""
    options = {**OPTIONS, "integrator": "lm"}
    chain = Chain(Langevin(MIXTURE), X0, **options)
    chain.advance(5)
    state = chain.state_dict()
    with pytest.raises(ValueError, match="elsewhere than at x"):
        chain.load_state_dict({**state, "x": state["state"]})
    finer = Chain(Langevin(MIXTURE), X0, **{**options, "step_size": 0.02})
    finer.load_state_dict(state)
    finer.load_state_dict(finer.state_dict())
    assert finer.x.equal(Chain(Langevin(MIXTURE), finer.x, **options).x)
    one = Chain(Langevin(MIXTURE), X0[0], **options)
    run = one.advance(3)
    for seed in range(200):  # by other noise
        Chain(Langevin(MIXTURE), run.final, state=run.state, **{**options, "seed": seed})


@pytest.mark.parametrize("name", ["integrator", "compile", "sde", "stepsize", "x", "seed"])
def test_what_is_not_used_can_not_be_assigned(name):
    chain = Chain(Langevin(MIXTURE), X0, **OPTIONS)
    with pytest.raises(AttributeError, match=f"a chain's {name} can't be assigned to.*step_size can.*another seed"):
        setattr(chain, name, 1)


@pytest.mark.parametrize(("scheme", "compile"), [("srk-ld", True), ("mala", False), ("lm", False)])
def test_another_step_size_is_that_of_the_next_steps(scheme, compile):
    sde, options = Langevin(MIXTURE), {**OPTIONS, "integrator": scheme, "compile": compile}
    chain = Chain(sde, X0, **options)
    first = chain.advance(3)
    chain.step_size = 0.02
    assert chain.step_size == chain.state_dict()["step_size"] == 0.02
    rest = {"state": first.state, "first_step": 3, "num_steps": 4}
    expected = sample(sde, first.final, **rest, **{**options, "step_size": 0.02})
    assert chain.advance(4).final.equal(expected.final)
    loaded = Chain(sde, X0, **options)
    loaded.step_size = chain.state_dict()["step_size"]
    loaded.load_state_dict(chain.state_dict())
    assert loaded.advance(2).final.equal(chain.advance(2).final)
    with pytest.raises(ValueError, match="step_size is a positive number"):
        chain.step_size = -1.0


def test_steps_that_have_one_length():
    sde = UnderdampedLangevin(MIXTURE, friction=1.0)
    chain, other = (Chain(sde, X0, **{**OPTIONS, "integrator": "baoab"}) for _ in range(2))
    other.step_size = 0.05  # before the first step
    chain.advance(2)
    with pytest.raises(ValueError, match=r"BAOAB makes steps of one length.*0\.05.*0\.1.*another seed.*'ubu'"):
        chain.step_size = 0.05
    with pytest.raises(ValueError, match="BAOAB makes steps of one length"):
        other.load_state_dict(chain.state_dict())
    late = Chain(SDE(lambda t, x: -t * x, 1.0, "additive", time_dependent=True), X0, **OPTIONS)
    late.advance(2)
    with pytest.raises(ValueError, match=r"time .* would jump.*step_sizes="):
        late.step_size = 0.05
    late.step_size = 0.1


@pytest.mark.parametrize(("scheme", "sde", "compile"), ALL, ids=[case[0] for case in ALL])
def test_some_begin_anew_and_the_others_go_on(scheme, sde, compile):
    options = {**OPTIONS, "integrator": scheme, "compile": compile}
    chain, other = (Chain(sde, X0, **options) for _ in range(2))
    chain.advance(3), other.advance(3)
    rows, new = torch.tensor([7, 2]), torch.full((2, 3), 4.0, dtype=torch.float64)
    chain.restart(rows, new)
    stay = torch.ones(20, dtype=torch.bool).index_fill(0, rows, False)
    assert torch.equal(chain.x[stay], other.x[stay])
    assert torch.allclose(chain.x[rows], new, atol=1.0 if scheme == "lm" else 0.0)
    chain.load_state_dict(chain.state_dict())
    final = chain.advance(2).final
    assert torch.equal(final[stay], other.advance(2).final[stay])
    # As in a batch that begins there at this step.
    whole = sample(sde, X0.index_copy(0, rows, new), first_step=3, num_steps=2, **options)
    assert torch.equal(final[rows], whole.final[rows])


def test_rows_are_named_in_several_ways():
    mask = torch.arange(20) < 5
    ways = (slice(5), range(5), [0, 1, 2, 3, 4], mask, torch.arange(5))
    chains = [Chain(Langevin(MIXTURE), X0, **OPTIONS) for _ in ways]
    for rows, chain in zip(ways, chains, strict=True):
        chain.restart(rows, torch.zeros(5, 3, dtype=torch.float64))
        assert chain.x[:5].eq(0.0).all()
        chain.advance(2)
    chains[0].restart([], X0[:0])
    assert all(chain.x.equal(chains[0].x) for chain in chains)
    given = X0[:1].clone()
    for rows, x, message in (
        ([20], given, "rows are numbers below 20"),
        ([1, 1], X0[:2], "each once"),
        (torch.ones(3, dtype=torch.bool), X0[:3], "a mask of 20 bools"),
        ("all", X0, "a slice or a mask"),
        ([1], X0[:2], r"these rows have positions torch.float64 \(1, 3\); got torch.float64 \(2, 3\)"),
        ([1], given.float(), "got torch.float32"),
        ([1], given / 0.0, "x has 3 entries that are infinite or NaN"),
    ):
        with pytest.raises(ValueError, match=message):
            chains[0].restart(rows, x)
    with pytest.raises(ValueError, match="a single particle, without rows"):
        Chain(Langevin(MIXTURE), X0[0], **OPTIONS).restart([0], X0[:1])
    assert chains[0].x.equal(chains[1].x)


def test_those_that_stay_keep_their_minibatches():
    data = torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def chain():
        target = MinibatchPotential(
            lambda x, rows: (x.unsqueeze(-2) - rows).square().sum(-1), data, batch_size=5, seed=2
        )
        options = {**OPTIONS, "integrator": "baoab", "step_size": 0.01}
        return Chain(UnderdampedLangevin(target, friction=1.0), X0, **options)

    mine, other = chain(), chain()
    mine.advance(3), other.advance(3)
    mine.restart([4], X0[:1])
    assert torch.equal(mine.advance(3).final[5:], other.advance(3).final[5:])
