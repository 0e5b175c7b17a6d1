"""Names of schemes: nobody's is taken by another."""

import pytest
import torch

from torchsrk import EulerMaruyama, Integrator, Langevin, sample
from torchsrk.brownian import Needs
from torchsrk.integrators import base, integrator_named, registered
from torchsrk.integrators.capped import Capped
from torchsrk.potentials import FunctionPotential


@pytest.fixture(autouse=True)
def _registry_of_its_own(monkeypatch):
    monkeypatch.setattr(base, "_REGISTRY", dict(base._REGISTRY))


def scheme(name_of_scheme, class_name="Mine", **facts):
    own = {"name": name_of_scheme, "gradients_per_step": 1, "__module__": __name__, "step": lambda *_: None}
    return type(class_name, (Integrator,), own | facts)


def test_a_name_that_is_taken_is_refused():
    with pytest.raises(ValueError, match=r"the name 'em' is that of torchsrk.integrators.euler_maruyama.EulerMaruyama"):
        scheme("em")
    assert isinstance(integrator_named("em"), EulerMaruyama)


def test_a_class_may_be_defined_again():
    scheme("mine-again")
    again = scheme("mine-again")
    assert type(integrator_named("mine-again")) is again
    with pytest.raises(ValueError, match="choose another name"):
        scheme("mine-again", "Another")


def test_a_scheme_without_a_name_is_in_no_list():
    scheme("")
    with pytest.raises(ValueError, match="unknown integrator ''; choose from 'baoab'"):
        integrator_named("")


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"gradients_per_step": None}, "Mine defines a step, and not what it costs: set gradients_per_step"),
        ({"gradients_per_step": 1.5}, "an integer; got 1.5"),
        ({"name": 3}, "Mine: name is a string, as integrator= takes it; got 3"),
        ({"noise_types": "additive"}, "noise_types is a tuple of the noise types served"),
        ({"noise_types": ("aditive",)}, r"'general'; got \('aditive',\)"),
        ({"need": Needs.UNIFORM}, r"Mine: nobody reads need of a scheme \(did you mean needs\?\): .* as _need"),
        ({"strong_oder": 1.5}, r"\(did you mean strong_order\?\)"),
        ({"noise_type": ("additive",)}, r"\(did you mean noise_types\?\)"),
        ({"postion": lambda *_: None}, r"\(did you mean position\?\)"),
        ({"needs": "H"}, "Mine: needs is as Needs.INCREMENT or Needs.LEVY_AREA; got 'H'"),
    ],
)
def test_facts_that_are_missing_or_wrong_are_told_where_the_class_is_defined(facts, said):
    with pytest.raises((TypeError, ValueError), match=said):
        scheme("mine", **facts)
    assert "mine" not in registered()


def test_helpers_may_be_called_like_what_is_read():
    scheme("mine", substep=lambda self, x: x, positions=lambda self: None, inits=lambda self: None)


def test_a_name_alone_can_not_stand_for_arguments():
    def init(self, theta, phi=1.0):
        self.theta, self.phi = theta, phi

    made = scheme("mine", __init__=init)
    with pytest.raises(
        TypeError, match=r"'mine' alone does not say what Mine takes: pass an instance, Mine\(theta=...\)"
    ):
        integrator_named("mine")
    assert integrator_named(made(theta=0.5)).theta == 0.5
    scheme("mine", __init__=lambda self, theta=0.5, **options: init(self, theta))
    assert integrator_named("mine").theta == 0.5


def test_names_of_ones_own_are_nobodys_business():
    own = {"order": 2, "steps": lambda self: 3, "theta": 0.5, "_need": 1, "half_step": 0.5}
    assert scheme("mine", **own)().steps() == 3


def test_a_class_in_place_of_an_instance():
    sde = Langevin(FunctionPotential(energy=lambda x: x.square().sum(-1)))
    options = {"step_size": 0.1, "num_steps": 1, "seed": 0}
    with pytest.raises(ValueError, match=r"pass an instance, EulerMaruyama\(\) instead of EulerMaruyama"):
        sample(sde, torch.zeros(2, 2), integrator=EulerMaruyama, **options)
    with pytest.raises(ValueError, match=r"Capped\(scheme=..., cap=...\) instead of Capped"):
        integrator_named(Capped)
    with pytest.raises(TypeError, match=r"such as EulerMaruyama\(\); got the class EulerMaruyama"):
        Capped(EulerMaruyama, 1.0)
