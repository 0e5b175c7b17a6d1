"""Things that an energy may read and that may change between two runs.

``CHANGES`` is a table from a name to a factory. A factory takes pytest's monkeypatch and gives an energy (or an SDE)
and what changes it; a change may return a dict of options for the second run. The factor of the quadratic goes from 1
to 3, or about so.
"""

from __future__ import annotations

import array
import collections
import dataclasses
import enum
import functools
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

Change = Callable[[], Any]
CHANGES: dict[str, Callable[[Any], tuple[Any, Change]]] = {}


def entry(factory: Callable[[Any], tuple[Any, Change]]) -> Callable[[Any], tuple[Any, Change]]:
    CHANGES[factory.__name__.replace("_", " ")] = factory
    return factory


def quadratic(x: Tensor, factor: Any) -> Tensor:
    return (factor * x.square()).sum(-1)


def _reads(holder: Any, read: Callable[[Any], Any], change: Callable[[Any], Any]) -> tuple[Any, Change]:
    """An energy that reads its factor from a holder, and the change of the holder."""
    return lambda x: quadratic(x, read(holder)), lambda: change(holder)


class Box:
    """Anything with attributes."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


@dataclasses.dataclass
class _Record:
    factor: float = 1.0


class _Level(enum.Enum):
    LOW = 1.0
    HIGH = 3.0


_Pair = collections.namedtuple("_Pair", ["factor", "other"])


class Weighted(nn.Module):
    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((2,), factor))
        self.register_buffer("centre", torch.zeros(2))
        self.power = 2

    def forward(self, x: Tensor) -> Tensor:
        return (self.weight * (x - self.centre).abs() ** self.power).sum(-1)


# Attributes and containers: what holds the factor, how it is read, how it is changed.
_HELD: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "instance attribute": (
        lambda: Box(factor=1.0),
        lambda b: b.factor,
        lambda b: setattr(b, "factor", 3.0),
    ),
    "attribute of a nested object": (
        lambda: Box(inner=Box(innermost=Box(factor=1.0))),
        lambda b: b.inner.innermost.factor,
        lambda b: setattr(b.inner.innermost, "factor", 3.0),
    ),
    "nested object replaced": (
        lambda: Box(inner=Box(factor=1.0)),
        lambda b: b.inner.factor,
        lambda b: setattr(b, "inner", Box(factor=3.0)),
    ),
    "dataclass field": (_Record, lambda r: r.factor, lambda r: setattr(r, "factor", 3.0)),
    "simple namespace": (
        lambda: types.SimpleNamespace(factor=1.0),
        lambda n: n.factor,
        lambda n: setattr(n, "factor", 3.0),
    ),
    "list": (lambda: [1.0], lambda v: v[0], lambda v: v.__setitem__(0, 3.0)),
    "list that grows": (lambda: [1.0], sum, lambda v: v.append(2.0)),
    "list in a list": (lambda: [[1.0]], lambda v: v[0][0], lambda v: v[0].__setitem__(0, 3.0)),
    "dict": (lambda: {"factor": 1.0}, lambda d: d["factor"], lambda d: d.update(factor=3.0)),
    "dict of tensors": (
        lambda: {"factor": torch.ones(2)},
        lambda d: d["factor"],
        lambda d: d.update(factor=torch.full((2,), 3.0)),
    ),
    "order of a dict": (
        lambda: {"a": 1.0, "b": 3.0},
        lambda d: next(iter(d.values())),
        lambda d: d.update(a=d.pop("a")),
    ),
    "default dict": (
        lambda: collections.defaultdict(lambda: 1.0),
        lambda d: d["factor"],
        lambda d: d.__setitem__("factor", 3.0),
    ),
    "set": (lambda: {1.0}, sum, lambda s: s.add(2.0)),
    "deque": (lambda: collections.deque([1.0], maxlen=1), lambda d: d[0], lambda d: d.append(3.0)),
    "numpy array in place": (
        lambda: np.ones(2),
        torch.as_tensor,
        lambda a: a.__setitem__(slice(None), 3.0),
    ),
    "numpy array read as a float": (lambda: np.ones(1), lambda a: float(a[0]), lambda a: a.fill(3.0)),
    "numpy array copied to a tensor": (lambda: np.ones(2), torch.tensor, lambda a: a.fill(3.0)),
    "numpy scalar": (lambda: [np.float64(1.0)], lambda v: v[0], lambda v: v.__setitem__(0, np.float64(3.0))),
    "array array": (lambda: array.array("d", [1.0]), lambda a: a[0], lambda a: a.__setitem__(0, 3.0)),
    "bytearray": (lambda: bytearray([1]), lambda b: b[0], lambda b: b.__setitem__(0, 3)),
    "memoryview": (
        lambda: memoryview(bytearray([1])),
        lambda m: m[0],
        lambda m: m.__setitem__(0, 3),
    ),
    "enum replaced": (
        lambda: Box(level=_Level.LOW),
        lambda b: b.level.value,
        lambda b: setattr(b, "level", _Level.HIGH),
    ),
    "named tuple replaced": (
        lambda: Box(pair=_Pair(1.0, 0.0)),
        lambda b: b.pair.factor,
        lambda b: setattr(b, "pair", b.pair._replace(factor=3.0)),
    ),
    "mapping proxy": (
        lambda: (d := {"factor": 1.0}, types.MappingProxyType(d)),
        lambda pair: pair[1]["factor"],
        lambda pair: pair[0].update(factor=3.0),
    ),
    "tensor in place": (lambda: torch.ones(2), lambda t: t, lambda t: t.fill_(3.0)),
    "tensor through numpy": (lambda: torch.ones(2), lambda t: t, lambda t: t.numpy().fill(3.0)),
    "tensor through a view": (lambda: torch.ones(2, 2), lambda t: t[0], lambda t: t[:, :1].fill_(3.0)),
    "tensor data replaced": (
        lambda: torch.ones(2),
        lambda t: t,
        lambda t: setattr(t, "data", torch.full((2,), 3.0)),
    ),
    "attribute of a tensor": (
        lambda: torch.ones(2),
        lambda t: getattr(t, "factor", 1.0),
        lambda t: setattr(t, "factor", 3.0),
    ),
    "value by item": (lambda: torch.ones(()), lambda t: t.item(), lambda t: t.fill_(3.0)),
    "value by float": (lambda: torch.ones(()), float, lambda t: t.fill_(3.0)),
    "value by int": (lambda: torch.ones(()), int, lambda t: t.fill_(3.0)),
    "value by tolist": (lambda: torch.ones(2), lambda t: t.tolist()[1], lambda t: t.fill_(3.0)),
    "value by numpy": (lambda: torch.ones(2), lambda t: float(t.numpy()[0]), lambda t: t.fill_(3.0)),
    "branch on a tensor": (lambda: torch.tensor(False), lambda t: 3.0 if t else 1.0, lambda t: t.fill_(True)),
    "loop over a tensor": (lambda: torch.tensor(1), lambda t: sum(1.0 for _ in range(t)), lambda t: t.fill_(3)),
    "values of an index tensor": (
        lambda: (torch.tensor([1.0, 3.0]), torch.tensor([0, 0])),
        lambda pair: pair[0][pair[1]],
        lambda pair: pair[1].fill_(1),
    ),
    "list used as an index": (
        lambda: (torch.tensor([1.0, 3.0]), [0, 0]),
        lambda pair: pair[0][pair[1]],
        lambda pair: pair[1].__setitem__(1, 1),
    ),
    "mask of booleans": (
        lambda: torch.tensor([True, False]),
        lambda t: torch.where(t, 1.0, 3.0),
        lambda t: t.logical_not_(),
    ),
    "parameter list": (
        lambda: nn.ParameterList([torch.ones(2)]),
        lambda v: v[0],
        lambda v: v.__setitem__(0, nn.Parameter(torch.full((2,), 3.0))),
    ),
    "tensor in a set": (
        lambda: {torch.ones(2)},
        lambda s: next(iter(s)),
        lambda s: (s.clear(), s.add(torch.full((2,), 3.0))),
    ),
}
for _name, (_make, _read, _change) in _HELD.items():
    CHANGES[_name] = lambda monkeypatch, make=_make, read=_read, change=_change: _reads(make(), read, change)


# Modules.


@entry
def parameter_in_place(monkeypatch):
    network = Weighted()
    return network, lambda: network.weight.data.fill_(3.0)


@entry
def parameter_replaced(monkeypatch):
    network = Weighted()
    return network, lambda: setattr(network, "weight", nn.Parameter(torch.full((2,), 3.0)))


@entry
def parameter_by_an_optimizer(monkeypatch):
    network = Weighted()
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0)

    def change():
        network.weight.grad = torch.full((2,), -2.0)
        optimizer.step()

    return network, change


@entry
def buffer(monkeypatch):
    network = Weighted()
    return network, lambda: setattr(network, "centre", torch.ones(2))


@entry
def loaded_state_dict(monkeypatch):
    network = Weighted()
    return network, lambda: network.load_state_dict(Weighted(3.0).state_dict())


@entry
def plain_attribute_of_a_module(monkeypatch):
    network = Weighted()
    return network, lambda: setattr(network, "power", 4)


@entry
def submodule_swapped(monkeypatch):
    network = nn.Sequential(Weighted())
    return network, lambda: network.__setitem__(0, Weighted(3.0))


@entry
def training_flag(monkeypatch):
    network = Weighted()
    return lambda x: network(x) * (1.0 if network.training else 3.0), lambda: network.eval()


@entry
def statistics_of_a_batch_norm(monkeypatch):
    normed = nn.BatchNorm1d(2).eval()
    return nn.Sequential(normed, Weighted()), lambda: normed.running_var.fill_(0.25)


@entry
def dropout_trained(monkeypatch):
    layer = nn.Dropout(1.0).eval()
    return lambda x: quadratic(x, 1.0) + layer(x).square().sum(-1), lambda: layer.train()


@entry
def probability_of_dropout(monkeypatch):
    layer = nn.Dropout(0.0)
    return lambda x: quadratic(x, 1.0) + layer(x).square().sum(-1), lambda: setattr(layer, "p", 1.0)


@entry
def forward_hook_added(monkeypatch):
    network = Weighted()
    return network, lambda: network.register_forward_hook(lambda module, given, result: 3.0 * result)


@entry
def forward_replaced_on_the_instance(monkeypatch):
    network = Weighted()
    return network, lambda: setattr(network, "forward", lambda x: quadratic(x, 3.0))


@entry
def requires_grad_and_detach(monkeypatch):
    network = Weighted()

    def energy(x):
        return network(x) if network.weight.requires_grad else network(x) * 3.0

    return energy, lambda: network.requires_grad_(False)


# Functions and what they read.


@entry
def function_attribute(monkeypatch):
    def energy(x):
        return quadratic(x, energy.factor)

    energy.factor = 1.0
    return energy, lambda: setattr(energy, "factor", 3.0)


@entry
def argument_of_a_partial(monkeypatch):
    energy = functools.partial(lambda factors, x: quadratic(x, factors[0]), [1.0])
    return energy, lambda: energy.args[0].__setitem__(0, 3.0)


@entry
def keyword_of_a_partial(monkeypatch):
    energy = functools.partial(quadratic, factor=1.0)
    return energy, lambda: energy.keywords.update(factor=3.0)


@entry
def default_argument(monkeypatch):
    def energy(x, factor=1.0):
        return quadratic(x, factor)

    return energy, lambda: setattr(energy, "__defaults__", (3.0,))


@entry
def keyword_default(monkeypatch):
    def energy(x, *, factor=1.0):
        return quadratic(x, factor)

    return energy, lambda: setattr(energy, "__kwdefaults__", {"factor": 3.0})


@entry
def code_replaced(monkeypatch):
    def energy(x):
        return quadratic(x, 1.0)

    return energy, lambda: setattr(energy, "__code__", (lambda x: quadratic(x, 3.0)).__code__)


@entry
def closure_rebound(monkeypatch):
    factor = 1.0

    def change():
        nonlocal factor
        factor = 3.0

    return lambda x: quadratic(x, factor), change


@entry
def closure_after_an_unassigned_cell(monkeypatch):
    b_factor = 1.0

    def energy(x):
        return quadratic(x, a_later if b_factor < 0 else b_factor)

    def change():
        nonlocal b_factor
        b_factor = 3.0

    if b_factor < 0:
        a_later = 0.0
    return energy, change


@entry
def lambda_swapped(monkeypatch):
    box = Box(factor=lambda: 1.0)
    return lambda x: quadratic(x, box.factor()), lambda: setattr(box, "factor", lambda: 3.0)


@entry
def cached_function_cleared(monkeypatch):
    factors = [1.0]
    read = functools.cache(lambda: factors[0])

    def change():
        factors[0] = 3.0
        read.cache_clear()

    return lambda x: quadratic(x, read()), change


@entry
def generator_in_a_comprehension(monkeypatch):
    factors = [0.5, 0.5]
    return lambda x: sum(quadratic(x, f) for f in factors), lambda: factors.append(2.0)
