"""Minibatches in compiled steps: those that an eager run draws, however the run is cut."""

import copy
import warnings

import pytest
import torch
from torch.nn import functional as F

from torchsrk import Langevin, NonFiniteStateError, UnderdampedLangevin, sample
from torchsrk.compiled import explain, moving
from torchsrk.potentials import AffinePotential, FunctionPotential, MinibatchPotential, Potential

OPTIONS = {"step_size": 0.01, "num_steps": 12, "seed": 5}


def logistic(dtype=torch.float64, rows=40, batch_size=7, seed=2):
    """Logistic regression in two dimensions."""
    features = torch.arange(2.0 * rows, dtype=dtype).sin().reshape(rows, 2)
    targets = (features.sum(-1) > 0).to(dtype)

    def loss(x, batch_features, batch_targets):
        logits = x @ batch_features.T
        return F.softplus(logits) - batch_targets * logits

    prior = FunctionPotential(lambda x: 0.5 * x.square().sum(-1))
    return MinibatchPotential(loss, (features, targets), batch_size=batch_size, seed=seed, prior=prior)


def classes(dtype=torch.float64):
    """Whole numbers as data, by which entries are picked."""
    labels = torch.arange(30) % 3

    def loss(x, batch):
        scores = torch.log_softmax(x, -1)
        return -scores[..., batch]

    return MinibatchPotential(loss, labels, batch_size=4, seed=1)


def squared_features(dtype=torch.float64):
    """Data that are computed with before they meet a state, by what rounds otherwise for more of them at once."""

    def loss(x, batch):
        inner = batch.exp() @ batch.exp().T
        return (x.sum(-1, keepdim=True) - inner.mean(0)).square()

    return MinibatchPotential(loss, torch.linspace(-1, 1, 60, dtype=dtype).reshape(30, 2), batch_size=5, seed=1)


POTENTIALS = {
    "logistic": lambda dtype: (logistic(dtype), 2),
    "all rows": lambda dtype: (logistic(dtype, rows=9, batch_size=9), 2),
    "more than all rows": lambda dtype: (logistic(dtype, rows=5, batch_size=12), 2),
    "many weights": lambda dtype: (logistic(dtype, rows=200, batch_size=64), 2),
    "classes": lambda dtype: (classes(dtype), 3),
    "squared features": lambda dtype: (squared_features(dtype), 2),
    "affine": lambda dtype: (AffinePotential(logistic(dtype), torch.ones(2, dtype=dtype), 0.5), 2),
}


def both_ways(make, x0, **options):
    """An eager run and a compiled one, each of a potential of its own."""
    runs = []
    for compile in (False, True):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            runs.append(sample(make(), x0, compile=compile, **{**OPTIONS, **options}))
    return runs


def assert_close(eager, compiled):
    tolerance = 2e-5 if eager.dtype == torch.float32 else 1e-12
    torch.testing.assert_close(compiled, eager, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", POTENTIALS)
def test_same_numbers(name):
    dtype, scheme = ((torch.float32, "srk-ld"), (torch.float64, "em"))[list(POTENTIALS).index(name) % 2]
    dim = POTENTIALS[name](dtype)[1]
    x0 = torch.linspace(-1, 1, 9 * dim, dtype=dtype).reshape(9, dim)
    eager, compiled = both_ways(lambda: Langevin(POTENTIALS[name](dtype)[0]), x0, integrator=scheme, thin=5)
    assert_close(eager.trajectory, compiled.trajectory)
    assert_close(eager.final, compiled.final)


@pytest.mark.parametrize("shape", [(2,), (3, 2), (2, 3, 2)], ids=str)
def test_states_of_any_shape(shape):
    x0 = torch.linspace(-1, 1, torch.Size(shape).numel(), dtype=torch.float64).reshape(shape)
    assert_close(*(run.final for run in both_ways(lambda: Langevin(logistic()), x0, integrator="em")))


def test_a_scheme_that_starts_by_a_gradient():
    x0 = torch.zeros(6, 2, dtype=torch.float64)
    runs = both_ways(lambda: UnderdampedLangevin(logistic(), friction=1.0), x0, integrator="ubu")
    assert_close(*(run.state for run in runs))


@pytest.mark.parametrize("name", ["logistic", "squared features"])
def test_the_same_bits_however_a_run_is_cut(monkeypatch, name):
    x0 = torch.zeros(70, 2, dtype=torch.float32)
    options = {**OPTIONS, "integrator": "em", "num_steps": 30, "compile": True}

    def run(**more):
        return sample(Langevin(POTENTIALS[name](torch.float32)[0]), x0, **{**options, **more}).final

    whole = run()
    assert torch.equal(run(thin=7), whole)
    assert torch.equal(run(check_every=1), whole)
    monkeypatch.setattr(moving, "_BYTES", 3000)  # some steps at a time
    assert torch.equal(run(), whole)
    monkeypatch.setattr(moving, "_BYTES", 1)
    assert torch.equal(run(), whole)


def test_the_same_bits_on_any_number_of_threads():
    x0, before = torch.zeros(3000, 2, dtype=torch.float32), torch.get_num_threads()
    finals = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            options = {**OPTIONS, "num_steps": 100, "compile": True}
            finals.append(sample(Langevin(logistic(torch.float32)), x0, integrator="em", **options).final)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*finals)


def test_draws_are_counted_and_a_run_goes_on_from_a_state_dict():
    x0, first = torch.zeros(5, 2, dtype=torch.float64), logistic()
    options = {"integrator": "srk-ld", "step_size": 0.01, "seed": 5, "compile": True}
    whole = sample(Langevin(logistic()), x0, num_steps=20, **options)
    half = sample(Langevin(first), x0, num_steps=8, **options)
    assert first.draws == 3 * 8
    second = logistic()
    second.load_state_dict(first.state_dict())
    rest = sample(Langevin(second), half.final, num_steps=12, first_step=half.step, state=half.state, **options)
    assert second.draws == 3 * 20
    assert torch.equal(rest.final, whole.final)


def test_other_data_and_another_seed_between_calls():
    potential, x0 = logistic(), torch.zeros(5, 2, dtype=torch.float64)
    sde, other = Langevin(potential), logistic(seed=9)
    sample(sde, x0, integrator="em", compile=True, **OPTIONS)
    other.set_extra_state(potential.get_extra_state())
    for part in (potential, other):
        part.data_0.mul_(2.0).add_(0.3)
    potential.seed = 9
    compiled = sample(sde, x0, integrator="em", compile=True, **OPTIONS).final
    assert_close(sample(Langevin(other), x0, integrator="em", **OPTIONS).final, compiled)


def test_two_potentials():
    class Both(Potential):
        """Not stateful itself."""

        def __init__(self):
            super().__init__()
            self.first, self.second = logistic(), logistic(rows=20, batch_size=3, seed=8)

        def forward(self, x):
            return self.first(x) + self.second(x)

        def grad(self, x):
            return self.first.grad(x) + self.second.grad(x) + self.second.grad(x + 1.0)

    x0 = torch.ones(6, 2, dtype=torch.float64)
    assert_close(*(run.final for run in both_ways(lambda: Langevin(Both()), x0, integrator="em")))


def test_a_callback_that_draws():
    finals = []
    for compile in (False, True):
        potential, x0 = logistic(), torch.ones(6, 2, dtype=torch.float64)
        drawn = [lambda step, x, potential=potential: potential.grad(x) if step % 3 == 0 else None]
        run = sample(Langevin(potential), x0, integrator="em", compile=compile, callbacks=drawn, **OPTIONS)
        finals.append(run.final)
        assert potential.draws == 12 + 4
    assert_close(*finals)


def test_an_explanation_draws_nothing():
    potential, x0 = logistic(), torch.ones(6, 2, dtype=torch.float64)
    explained = explain(UnderdampedLangevin(potential, friction=1.0), "ubu", x0)
    assert explained.reason is None
    assert "index" in explained.graph
    assert potential.draws == 0


def test_a_failure_is_found_at_its_step():
    def make():
        return Langevin(MinibatchPotential(lambda x, b: x.pow(4) * b, torch.arange(8.0), batch_size=1, seed=4))

    failures, options = [], {**OPTIONS, "step_size": 0.5, "num_steps": 40, "integrator": "em"}
    for compile in (False, True):
        with pytest.raises(NonFiniteStateError) as raised:
            sample(make(), torch.ones(5, 1), compile=compile, check_every=1 + 15 * compile, **options)
        failures.append(raised.value.step)
    assert failures[0] == failures[1] > 1


def test_what_draws_otherwise_runs_eagerly():
    class Counted(Potential):
        stateful = True

        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return 0.5 * self.calls * x.square().sum(-1)

    class Changing(MinibatchPotential):
        def grad(self, x):
            return super().grad(x) * (1.0 + self.draws)

    given = logistic()
    changing = Changing(given.loss, (given.data_0, given.data_1), batch_size=3, seed=1)
    for potential in (Counted(), changing):
        plain, x0 = copy.deepcopy(potential), torch.ones(5, 2, dtype=torch.float64)
        with pytest.warns(RuntimeWarning, match="this run is eager, as the potential changes with every gradient"):
            compiled = sample(Langevin(potential), x0, integrator="em", compile=True, **OPTIONS).final
        assert torch.equal(compiled, sample(Langevin(plain), x0, integrator="em", **OPTIONS).final)


def test_a_loss_that_looks_at_its_data_runs_eagerly():
    def loss(x, batch):
        return (x.sum(-1, keepdim=True) - batch).square() * (2.0 if batch.mean() > 0 else 1.0)

    def make():
        return MinibatchPotential(loss, torch.linspace(-1, 1, 30, dtype=torch.float64), batch_size=3, seed=1)

    x0 = torch.ones(5, 2, dtype=torch.float64)
    with pytest.warns(RuntimeWarning, match="what it does depends on values of tensors"):
        compiled = sample(Langevin(make()), x0, integrator="em", compile=True, **OPTIONS).final
    assert torch.equal(compiled, sample(Langevin(make()), x0, integrator="em", **OPTIONS).final)


def test_a_label_out_of_bounds_is_an_error_in_the_step_that_draws_it():
    potential = classes()
    potential.data_0[17] = 5
    options = {**OPTIONS, "integrator": "em", "num_steps": 100}
    with pytest.raises(IndexError, match="out of bounds"):
        sample(Langevin(copy.deepcopy(potential)), torch.ones(5, 3), **options)
    with pytest.raises(IndexError, match="out of the bounds of a dimension of size 3"):
        sample(Langevin(potential), torch.ones(5, 3), compile=True, **options)


def test_a_wrong_program_is_noticed(monkeypatch):
    made = moving.Moving.made
    monkeypatch.setattr(moving.Moving, "made", lambda self, a, b: {n: 1.01 * v for n, v in made(self, a, b).items()})
    x0 = torch.ones(5, 2, dtype=torch.float64)
    with pytest.warns(RuntimeWarning, match="the compiled step differs from the eager one"):
        compiled = sample(Langevin(logistic()), x0, integrator="em", compile=True, **OPTIONS).final
    assert torch.equal(compiled, sample(Langevin(logistic()), x0, integrator="em", **OPTIONS).final)
