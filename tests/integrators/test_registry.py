"""Names of schemes: nobody's is taken by another."""

import pytest

from torchsrk import EulerMaruyama, Integrator
from torchsrk.integrators import base, integrator_named


@pytest.fixture(autouse=True)
def _registry_of_its_own(monkeypatch):
    monkeypatch.setattr(base, "_REGISTRY", dict(base._REGISTRY))


def scheme(name_of_scheme, class_name="Mine"):
    return type(class_name, (Integrator,), {"name": name_of_scheme, "__module__": __name__, "step": lambda *_: None})


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
