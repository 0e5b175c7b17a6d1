"""Numbers that a step takes out of its data: a trace holds them, and other data are a reason for another one."""

import warnings

import pytest
import torch
from torch.nn import functional as F

from tests.compiled.traces import count_traces
from torchsrk import Langevin, sample
from torchsrk.compiled import programs
from torchsrk.potentials import FunctionPotential

OPTIONS = {"integrator": "em", "step_size": 0.01, "num_steps": 3, "seed": 5}
EAGER = "compile=True: this run is eager, as"


def quadratic(x):
    return 0.5 * x.square().sum(-1)


def numbers():
    return torch.tensor([1.0, 0.5, 2.0, 0.25], dtype=torch.float64)


def number():
    return torch.tensor(0.2, dtype=torch.float64)


def place():
    return torch.tensor(2)


def flags():
    return torch.tensor([1, 0, 1, 1])


def reverse(data):
    data.copy_(data.flip(0))


def written(x, data):
    y = torch.zeros_like(x)
    y[..., data] = 3.0
    return y


# By name: the data, what is done to them between two runs, and an energy.
READ_BY_TORCH = {
    "torch.tensor": (numbers, torch.Tensor.neg_, lambda x, y: quadratic(x - torch.tensor([y[0], y[1], y[2], y[3]]))),
    "as_tensor": (numbers, torch.Tensor.neg_, lambda x, y: quadratic(x - torch.as_tensor(list(y)))),
    "asarray": (numbers, torch.Tensor.neg_, lambda x, y: quadratic(x - torch.asarray([[*y]]))),
    "new_tensor": (numbers, torch.Tensor.neg_, lambda x, y: quadratic(x - x.new_tensor([y[0], 1.0, y[2], 0.0]))),
    "sum in a tensor": (numbers, torch.Tensor.neg_, lambda x, y: quadratic(x - torch.tensor([y.sum()]))),
    "full": (number, torch.Tensor.neg_, lambda x, y: quadratic(x - torch.full((4,), y))),
    "full of an entry": (numbers, torch.Tensor.neg_, lambda x, y: quadratic(x - torch.full((4,), y[2]))),
    "scalar_tensor": (numbers, torch.Tensor.neg_, lambda x, y: quadratic(x - torch.scalar_tensor(y[2]))),
    "full_like": (number, torch.Tensor.neg_, lambda x, y: quadratic(x - torch.full_like(x, y))),
    "arange": (number, torch.Tensor.neg_, lambda x, y: quadratic(x - torch.arange(0.0, y * 3.5, y))),
    "alpha": (number, torch.Tensor.neg_, lambda x, y: quadratic(torch.add(x, torch.ones_like(x), alpha=y))),
    "beta": (number, lambda y: y.mul_(3.0), lambda x, y: quadratic(x) + F.softplus(x, beta=y).sum(-1)),
    "delta": (number, lambda y: y.mul_(3.0), lambda x, y: F.huber_loss(x, 0.0 * x, "none", delta=y).sum(-1)),
    "value of padding": (number, torch.Tensor.neg_, lambda x, y: F.pad(x, (0, 1), value=y).prod(-1) + quadratic(x)),
    "place": (place, lambda k: k.sub_(1), lambda x, k: quadratic(x) + x[..., k].square()),
    "place in a list": (place, lambda k: k.sub_(1), lambda x, k: quadratic(x) + x[..., [0, k]].square().sum(-1)),
    "place written to": (place, lambda k: k.sub_(1), lambda x, k: quadratic(x - written(x, k))),
    "slice": (place, lambda k: k.sub_(1), lambda x, k: quadratic(x) + x[..., :k].square().sum(-1)),
    "narrow": (place, lambda k: k.sub_(1), lambda x, k: quadratic(x) + x.narrow(-1, k, 1).square().sum(-1)),
    "topk": (place, lambda k: k.sub_(1), lambda x, k: quadratic(x) + x.topk(k, -1).values.sum(-1)),
    "tensor_split": (place, lambda k: k.sub_(1), lambda x, k: quadratic(x) + x.tensor_split(k, -1)[0].sum(-1)),
    "nonzero": (flags, reverse, lambda x, k: quadratic(x) + x[..., k.nonzero().squeeze(-1)].square().sum(-1)),
    "unique": (flags, lambda k: k.mul_(2), lambda x, k: quadratic(x) * torch.unique(k).sum()),
}
READ_BY_PYTHON = {
    "if": (flags, reverse, lambda x, k: quadratic(x) + sum(x[..., i].square() for i in range(4) if k[i])),
    "if of a number": (numbers, reverse, lambda x, y: quadratic(x) * (2.0 if y[0] > 0.5 else 1.0)),
    "mask made of data": (flags, reverse, lambda x, k: quadratic(x) + x[..., k > 0].square().sum(-1)),
    "other half of a mask": (flags, reverse, lambda x, k: quadratic(x) + x[..., ~(k > 0)].square().sum(-1)),
    "float": (numbers, reverse, lambda x, y: quadratic(x) * float(y[0] * 2.0)),
    "int": (numbers, reverse, lambda x, y: quadratic(x) * (1 + int(4 * y[0]))),
    "tolist": (numbers, reverse, lambda x, y: quadratic(x - y[:1].tolist()[0])),
    "max": (numbers, lambda y: y.mul_(2.0), lambda x, y: quadratic(x) * max(y)),
    "equal": (flags, reverse, lambda x, k: quadratic(x) * (1 + torch.equal(k, flags()))),
    "data written in place": (numbers, reverse, lambda x, y: quadratic(x) * float(torch.zeros(4).add_(y)[0])),
}
CASES = {**READ_BY_TORCH, **READ_BY_PYTHON}


def run(sde, **more):
    return sample(sde, torch.linspace(-2.0, 2.0, 20, dtype=torch.float64).view(5, 4), **OPTIONS, **more).final


@pytest.mark.parametrize("name", CASES)
def test_a_number_taken_out_of_data_is_the_one_that_is_there(name, recwarn):
    make, change, energy = CASES[name]
    data = make()
    sde = Langevin(FunctionPotential(lambda x: energy(x, data)))
    before = run(sde)
    torch.testing.assert_close(run(sde, compile=True), before, rtol=1e-11, atol=1e-11)
    change(data)
    after = run(sde)
    assert not torch.allclose(before, after), "the change makes no difference"
    torch.testing.assert_close(run(sde, compile=True), after, rtol=1e-11, atol=1e-11)
    assert not [warning for warning in recwarn if str(warning.message).startswith(EAGER)]


@pytest.mark.parametrize("name", CASES)
def test_and_where_torch_traces(name, monkeypatch):
    monkeypatch.setattr(programs, "_MOST_WRITTEN", 0)
    make, change, energy = CASES[name]
    data = make()
    sde = Langevin(FunctionPotential(lambda x: energy(x, data)))
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", EAGER, RuntimeWarning)
            torch.testing.assert_close(run(sde, compile=True), run(sde), rtol=1e-11, atol=1e-11)
        change(data)


def by_what_is_written(x):
    y = torch.zeros(4, dtype=x.dtype)
    y[0] = x.flatten()[0].detach()
    return quadratic(x) * (2.0 if y[0] > 0.0 else 1.0)


def by_a_view_of_what_is_written(x):
    y = torch.zeros(4, dtype=x.dtype)
    part = y[1:]
    y += x.detach().flatten()[:4]
    return quadratic(x) * (2.0 if part[0] > 0.0 else 1.0)


def by_a_result_put_there(x):
    y = torch.zeros((), dtype=x.dtype)
    torch.add(x.detach().flatten()[0], 1.0, out=y)
    return quadratic(x) * (1.0 + float(y) ** 2)


def by_chance(x):
    return quadratic(x) * (2.0 if torch.rand(()) < 0.5 else 1.0)


def by_what_was_never_written(x):
    return quadratic(x) * (2.0 if torch.empty(()).fill_(x.flatten()[0].item()) > 0.0 else 1.0)


@pytest.mark.parametrize(
    "energy",
    [
        by_what_is_written,
        by_a_view_of_what_is_written,
        by_a_result_put_there,
        by_chance,
        by_what_was_never_written,
    ],
    ids=lambda energy: energy.__name__,
)
def test_what_is_not_made_of_data_alone_decides_nothing(energy):
    torch.manual_seed(0)
    with pytest.warns(RuntimeWarning, match=EAGER):
        run(Langevin(FunctionPotential(energy)), compile=True)


def test_a_loop_over_data_that_asks_is_one_loop_and_soon_traced(monkeypatch):
    series, missing = torch.linspace(-1.0, 1.0, 60, dtype=torch.float64), torch.arange(60) % 7 == 3

    def energy(x):
        total, level = torch.zeros_like(x[..., 0]), x[..., 0]
        for step, value in enumerate(series):
            if missing[step]:
                continue
            total = total + (value - level).square()
            level = 0.9 * level + 0.1 * value * x[..., 1]
        return total + quadratic(x)

    traces = count_traces(monkeypatch)
    sde = Langevin(FunctionPotential(energy))
    torch.testing.assert_close(run(sde, compile=True), run(sde), rtol=1e-11, atol=1e-11)
    assert len(traces) == 2
    missing.logical_not_()
    torch.testing.assert_close(run(sde, compile=True), run(sde), rtol=1e-11, atol=1e-11)
    assert len(traces) == 4
