"""SDEs that differ in the values of their tensors alone share a program; what else they differ in is seen."""

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.distributions import MultivariateNormal

from tests.compiled.traces import count_traces
from torchsrk import Langevin, sample
from torchsrk.compiled import checked, programs
from torchsrk.potentials import FunctionPotential, Potential

OPTIONS = {"integrator": "em", "step_size": 0.1, "num_steps": 4, "seed": 5}
X0 = torch.linspace(-1.0, 2.0, 21, dtype=torch.float64).view(7, 3)


@pytest.fixture
def traces(monkeypatch):
    programs._PROGRAMS.clear()
    return count_traces(monkeypatch)


def assert_as_eager(sde):
    compiled, eager = (sample(sde, X0, compile=way, **OPTIONS).final for way in (True, False))
    torch.testing.assert_close(compiled, eager, rtol=1e-11, atol=1e-12)


def double(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


class Ellipse(Potential):
    dim = 3

    def __init__(self, weights, centre, power=2):
        super().__init__()
        self.weights, self.centre, self.power = nn.Parameter(weights), centre, power

    def forward(self, x):
        return (self.weights * (x - self.centre).abs().pow(self.power)).sum(-1)


def test_a_new_sde_of_the_same_form_is_not_traced(traces):
    for number in range(1, 4):
        assert_as_eager(Langevin(Ellipse(double(1, 2, 3) * number, double(0, 1, 0))))
    assert len(traces) == 2


def test_energies_that_close_over_other_tensors_share(traces):
    def energy(weights):
        return FunctionPotential(lambda x: (weights * x.square()).sum(-1), dim=3)

    for weights in (double(1, 2, 3), double(3, 1, 2)):
        assert_as_eager(Langevin(energy(weights)))
    assert len(traces) == 2


def test_tensors_that_are_replaced_are_read_where_they_are_now(traces):
    target = Ellipse(double(1, 2, 3), double(0, 1, 0))
    sde = Langevin(target)
    assert_as_eager(sde)
    target.centre = double(1, 0, 2)
    assert_as_eager(sde)
    target.weights = nn.Parameter(double(2, 2, 1))
    assert_as_eager(sde)
    assert len(traces) == 2


def test_forms_that_differ_do_not(traces):
    one = double(1, 2, 3)
    targets = [
        Ellipse(one, double(0, 1, 0)),
        Ellipse(one, double(0, 1, 0), power=4),
        Ellipse(one, double(0.5)),
        Ellipse(one, double(0, 1, 0, 1, 0, 1)[::2]),
    ]
    targets.append(Ellipse(one, one))
    targets[-1].centre = targets[-1].weights  # one tensor in two places
    for number, target in enumerate(targets, 1):
        assert_as_eager(Langevin(target))
        assert len(traces) == 2 * number


def test_a_shared_program_is_checked_for_every_sde(monkeypatch):
    made = []
    for name in ("check_rows", "check_about"):
        check = getattr(checked, name)
        monkeypatch.setattr(checked, name, lambda *args, check=check: [made.append(1), check(*args)][1])
    for number in range(1, 4):
        assert_as_eager(Langevin(Ellipse(double(1, 2, 3) * number, double(0, 1, 0))))
        assert len(made) == number


def test_numbers_read_out_of_a_tensor_belong_to_it(traces):
    def energy(scale):
        return FunctionPotential(lambda x: float(scale) * x.square().sum(-1), dim=3)

    for scale, made in ((1.0, 2), (2.0, 4), (2.0, 4)):
        assert_as_eager(Langevin(energy(double(scale))))
        assert len(traces) == made


def test_a_tensor_that_no_fingerprint_sees_keeps_a_program_to_its_sde():
    hidden = {}

    def energy(name):
        return FunctionPotential(
            lambda x: (eval("hidden[name]", {"hidden": hidden, "name": name}) * x).square().sum(-1)
        )

    for name, weights in (("first", double(1, 2, 3)), ("second", double(3, 1, 2))):
        hidden[name] = weights
        assert_as_eager(Langevin(energy(name)))


def test_a_step_that_fails_for_its_values_costs_no_other_sde_its_program():
    def target(scale):
        return Langevin(FunctionPotential(lambda x: -MultivariateNormal(scale.new_zeros(3), scale).log_prob(x)))

    with pytest.raises(ValueError, match="PositiveDefinite"), pytest.warns(RuntimeWarning, match="fails"):
        sample(target(-torch.eye(3, dtype=torch.float64)), X0, compile=True, **OPTIONS)
    assert_as_eager(target(torch.eye(3, dtype=torch.float64)))


def test_attributes_of_a_tensor_are_seen(traces):
    for power in (2, 4):
        weights = double(1, 2, 3)
        weights.power = power
        assert_as_eager(Langevin(FunctionPotential(lambda x, w=weights: (w * x.pow(w.power)).sum(-1), dim=3)))
    assert len(traces) == 4


def test_a_program_keeps_no_tensor_alive():
    weights = double(1, 2, 3)
    gone = weakref.ref(weights)
    assert_as_eager(Langevin(Ellipse(weights, double(0, 1, 0))))
    data = double(1, 2, 3)
    also = weakref.ref(data)
    assert_as_eager(Langevin(FunctionPotential(lambda x, data=data: (data * x.square()).sum(-1), dim=3)))
    del weights, data
    gc.collect()
    assert gone() is None
    assert also() is None
