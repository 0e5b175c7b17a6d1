"""More of the table in ``changes.py``: classes, modules, the surroundings, and the run itself."""

from __future__ import annotations

import functools
import importlib
import operator
import os
import sys
import types
import weakref
from typing import Any

import torch
from torch import Tensor

from tests.compiled.changes import Box, entry, quadratic
from torchsrk import SDE, Integrator
from torchsrk.brownian import FourierLevyArea, Needs
from torchsrk.sde import plus

FACTOR = 1.0


def _module(monkeypatch: Any, source: str) -> types.ModuleType:
    """A module made from text, importable for one test."""
    module = types.ModuleType("torchsrk_test_settings")
    exec(source, vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


# Classes.


@entry
def class_attribute(monkeypatch):
    class Settings:
        factor = 1.0

    return lambda x: quadratic(x, Settings.factor), lambda: setattr(Settings, "factor", 3.0)


@entry
def class_attribute_read_through_an_instance(monkeypatch):
    class Energy:
        factor = 1.0

        def __call__(self, x: Tensor) -> Tensor:
            return quadratic(x, self.factor)

    return Energy(), lambda: setattr(Energy, "factor", 3.0)


@entry
def attribute_of_a_base_class(monkeypatch):
    class Base:
        factor = 1.0

    class Energy(Base):
        def __call__(self, x: Tensor) -> Tensor:
            return quadratic(x, self.factor)

    return Energy(), lambda: setattr(Base, "factor", 3.0)


@entry
def slotted_object(monkeypatch):
    class Slotted:
        __slots__ = ("factor",)

    holder = Slotted()
    holder.factor = 1.0
    return lambda x: quadratic(x, holder.factor), lambda: setattr(holder, "factor", 3.0)


@entry
def property_(monkeypatch):
    class Settings:
        values = (1.0,)

        @property
        def factor(self) -> float:
            return self.values[0]

    holder = Settings()
    return lambda x: quadratic(x, holder.factor), lambda: setattr(holder, "values", [3.0])


@entry
def cached_property(monkeypatch):
    class Settings:
        value = 1.0

        @functools.cached_property
        def factor(self) -> float:
            return self.value

    holder = Settings()

    def change():
        holder.value = 3.0
        del holder.factor

    return lambda x: quadratic(x, holder.factor), change


@entry
def descriptor(monkeypatch):
    values = {"factor": 1.0}

    class Field:
        def __get__(self, instance: Any, owner: Any) -> float:
            return values["factor"]

    class Settings:
        factor = Field()

    return lambda x: quadratic(x, Settings().factor), lambda: values.update(factor=3.0)


@entry
def missing_attribute_computed(monkeypatch):
    values = {"factor": 1.0}

    class Settings:
        def __getattr__(self, name: str) -> float:
            return values[name]

    holder = Settings()
    return lambda x: quadratic(x, holder.factor), lambda: values.update(factor=3.0)


@entry
def static_method_that_reads_a_global(monkeypatch):
    monkeypatch.setitem(globals(), "FACTOR", 1.0)

    class Settings:
        @staticmethod
        def factor() -> float:
            return FACTOR

    return lambda x: quadratic(x, Settings.factor()), lambda: monkeypatch.setitem(globals(), "FACTOR", 3.0)


@entry
def class_method_that_reads_the_class(monkeypatch):
    class Settings:
        value = 1.0

        @classmethod
        def factor(cls) -> float:
            return cls.value

    return lambda x: quadratic(x, Settings.factor()), lambda: setattr(Settings, "value", 3.0)


@entry
def method_replaced(monkeypatch):
    class Energy:
        def factor(self) -> float:
            return 1.0

        def __call__(self, x: Tensor) -> Tensor:
            return quadratic(x, self.factor())

    return Energy(), lambda: setattr(Energy, "factor", lambda self: 3.0)


@entry
def bound_method_of_an_object_that_changes(monkeypatch):
    class Model:
        factor = 1.0

        def energy(self, x: Tensor) -> Tensor:
            return quadratic(x, self.factor)

    model = Model()
    return model.energy, lambda: setattr(model, "factor", 3.0)


@entry
def class_of_an_object(monkeypatch):
    class First:
        def __call__(self, x: Tensor) -> Tensor:
            return quadratic(x, 1.0)

    class Second(First):
        def __call__(self, x: Tensor) -> Tensor:
            return quadratic(x, 3.0)

    energy = First()
    return lambda x: energy(x), lambda: setattr(energy, "__class__", Second)


@entry
def object_at_the_same_address(monkeypatch):
    box = Box(inner=Box(factor=1.0))

    def change():
        before = id(box.inner)
        box.inner = None
        kept = []
        while id(fresh := Box(factor=3.0)) != before and len(kept) < 1000:
            kept.append(fresh)
        box.inner = fresh

    return lambda x: quadratic(x, box.inner.factor), change


@entry
def tensor_at_the_same_address(monkeypatch):
    box = Box(factor=torch.tensor(1.0))

    def change():
        before = id(box.factor)
        box.factor = None
        kept = []
        while id(fresh := torch.tensor(3.0)) != before and len(kept) < 1000:
            kept.append(fresh)
        box.factor = fresh

    return lambda x: quadratic(x, box.factor.item()), change


@entry
def weak_reference(monkeypatch):
    holder = Box(factor=1.0)
    reference = weakref.ref(holder)
    # The default keeps the holder alive.
    return lambda x, holder=holder: quadratic(x, reference().factor), lambda: setattr(holder, "factor", 3.0)


@entry
def attribute_getter(monkeypatch):
    box = Box(factor=1.0)
    read = operator.attrgetter("factor")
    return lambda x: quadratic(x, read(box)), lambda: setattr(box, "factor", 3.0)


# Modules and their globals.


@entry
def global_(monkeypatch):
    monkeypatch.setitem(globals(), "FACTOR", 1.0)
    return lambda x: quadratic(x, FACTOR), lambda: monkeypatch.setitem(globals(), "FACTOR", 3.0)


@entry
def global_by_name(monkeypatch):
    monkeypatch.setitem(globals(), "FACTOR", 1.0)
    return lambda x: quadratic(x, globals()["FACTOR"]), lambda: monkeypatch.setitem(globals(), "FACTOR", 3.0)


@entry
def global_by_eval(monkeypatch):
    monkeypatch.setitem(globals(), "FACTOR", 1.0)
    return lambda x: quadratic(x, eval("FACTOR")), lambda: monkeypatch.setitem(globals(), "FACTOR", 3.0)


@entry
def global_read_in_a_nested_function(monkeypatch):
    monkeypatch.setitem(globals(), "FACTOR", 1.0)

    def energy(x):
        def inner():
            return [FACTOR * part for part in (0.5, 0.5)]

        return quadratic(x, sum(inner()))

    return energy, lambda: monkeypatch.setitem(globals(), "FACTOR", 3.0)


@entry
def global_of_an_imported_function(monkeypatch):
    settings = _module(monkeypatch, "FACTOR = 1.0\ndef factor():\n    return FACTOR\n")
    factor = settings.factor
    return lambda x: quadratic(x, factor()), lambda: setattr(settings, "FACTOR", 3.0)


@entry
def attribute_of_a_module(monkeypatch):
    settings = _module(monkeypatch, "FACTOR = 1.0")
    return lambda x: quadratic(x, settings.FACTOR), lambda: setattr(settings, "FACTOR", 3.0)


@entry
def module_imported_in_the_function(monkeypatch):
    settings = _module(monkeypatch, "FACTOR = 1.0")

    def energy(x):
        import torchsrk_test_settings

        return quadratic(x, torchsrk_test_settings.FACTOR)

    return energy, lambda: setattr(settings, "FACTOR", 3.0)


@entry
def module_by_importlib(monkeypatch):
    settings = _module(monkeypatch, "FACTOR = 1.0")
    name = settings.__name__
    return (
        lambda x: quadratic(x, importlib.import_module(name).FACTOR),
        lambda: setattr(settings, "FACTOR", 3.0),
    )


@entry
def function_of_a_module_replaced(monkeypatch):
    settings = _module(monkeypatch, "def factor():\n    return 1.0\n")
    return lambda x: quadratic(x, settings.factor()), lambda: setattr(settings, "factor", lambda: 3.0)


# The surroundings.


@entry
def environment_variable(monkeypatch):
    monkeypatch.setenv("TORCHSRK_TEST_FACTOR", "1.0")
    return (
        lambda x: quadratic(x, float(os.environ["TORCHSRK_TEST_FACTOR"])),
        lambda: monkeypatch.setenv("TORCHSRK_TEST_FACTOR", "3.0"),
    )


@entry
def environment_variable_by_getenv(monkeypatch):
    monkeypatch.setenv("TORCHSRK_TEST_FACTOR", "1.0")
    return (
        lambda x: quadratic(x, float(os.getenv("TORCHSRK_TEST_FACTOR", "1"))),
        lambda: monkeypatch.setenv("TORCHSRK_TEST_FACTOR", "3.0"),
    )


@entry
def working_folder(monkeypatch):
    monkeypatch.chdir("/")
    return lambda x: quadratic(x, float(len(os.getcwd()))), lambda: monkeypatch.chdir("/tmp")


@entry
def default_dtype(monkeypatch):
    return lambda x: quadratic(x, torch.tensor([1.1])), lambda: torch.set_default_dtype(torch.float32)


@entry
def setting_that_a_function_asks_for(monkeypatch):
    """Any setting that a function asks a library for."""
    settings = _module(monkeypatch, "state = {'on': False}\ndef is_on():\n    return state['on']\n")
    return lambda x: quadratic(x, 3.0 if settings.is_on() else 1.0), lambda: settings.state.update(on=True)


# The run itself.


class Theta(Integrator):
    """x + theta·dt·drift + noise: all have one repr."""

    strong_order, strong_order_additive = 0.5, 1.0
    noise_types = ("additive",)
    needs = Needs.INCREMENT
    gradients_per_step = 1

    def __init__(self, theta: float) -> None:
        self.theta = theta
        self.name = "theta"  # of the instance: what a class is named is registered

    def step(self, sde, t, x, increment):
        return plus(x, sde.noise_at(t, x)(increment.W), self.theta * increment.dt * sde.drift_at(t, x))


@entry
def scheme_of_the_same_name(monkeypatch):
    energy, options = functools.partial(quadratic, factor=1.0), {"integrator": Theta(1.0)}
    return (energy, options), lambda: {"integrator": Theta(0.5)}


@entry
def parameter_of_a_scheme(monkeypatch):
    scheme = Theta(1.0)
    return (functools.partial(quadratic, factor=1.0), {"integrator": scheme}), lambda: setattr(scheme, "theta", 0.5)


@entry
def terms_of_a_levy_area(monkeypatch):
    area = FourierLevyArea(1)
    sde = SDE(lambda x: -x, lambda x: torch.cos(x).sum(-1), "isotropic")

    return (sde, {"integrator": "srk-id", "levy_area": area, "step_size": 0.1}), lambda: setattr(area, "terms", 5)


@entry
def step_size(monkeypatch):
    return lambda x: quadratic(x, 1.0), lambda: {"step_size": 0.03}
