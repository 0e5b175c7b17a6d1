"""Second and third derivatives, against torch.func's on single points."""

import pytest
import torch

from tests.problems import CountingPotential, potentials
from torchsrk.potentials import FunctionPotential
from torchsrk.sde.derivatives import energy_and_gradient, gradient_of_laplacian, hessian, hessian_product


@pytest.mark.parametrize("name", sorted(potentials()))
def test_derivatives_are_those_of_the_energy(name):
    potential, dim = potentials()[name]
    x = torch.linspace(-1.0, 1.2, 6 * dim).sin().reshape(2, 3, dim)
    v = torch.linspace(2.0, -1.0, 6 * dim).cos().reshape(2, 3, dim)
    of_one = torch.func.hessian(potential)
    expected = torch.stack([of_one(point) for point in x.view(-1, dim)]).view(2, 3, dim, dim)
    third = torch.func.grad(lambda point: of_one(point).diagonal().sum())
    torch.testing.assert_close(hessian(potential, x), expected)
    torch.testing.assert_close(hessian_product(potential, x, v), (expected @ v.unsqueeze(-1)).squeeze(-1))
    torch.testing.assert_close(
        gradient_of_laplacian(potential, x), torch.stack([third(point) for point in x.view(-1, dim)]).view(2, 3, dim)
    )
    energy, gradient = energy_and_gradient(potential, x)
    torch.testing.assert_close(energy, potential(x))
    torch.testing.assert_close(gradient, potential.grad(x))


@pytest.mark.parametrize("function", [hessian, gradient_of_laplacian, energy_and_gradient])
def test_grad_mode_decides_about_a_graph_and_not_about_values(function):
    potential, x = FunctionPotential(lambda x: x.pow(4).sum(-1) + x.prod(-1)), torch.linspace(-1.0, 1.0, 6).view(2, 3)
    with_graph = function(potential, x.clone().requires_grad_())
    with torch.no_grad():
        without = function(potential, x)
    with torch.inference_mode():
        inferred = function(potential, x.clone())
    for one, two, three in zip(with_graph, without, inferred, strict=True):
        assert one.requires_grad
        assert not two.requires_grad
        torch.testing.assert_close(one.detach(), two)
        torch.testing.assert_close(two, three.clone())


def test_an_energy_and_its_gradient_take_one_forward_pass():
    calls = []

    def energy(x):
        calls.append(x.shape)
        return x.square().sum(-1)

    energy_and_gradient(FunctionPotential(energy), torch.ones(4, 3))
    assert len(calls) == 1
    own = CountingPotential()
    energy_and_gradient(own, torch.ones(4, 3))
    assert own.gradients == 1


def test_a_flat_or_linear_energy_has_no_curvature():
    for energy in (lambda x: x.sum(-1), lambda x: torch.zeros_like(x[..., 0])):
        x = torch.ones(2, 3)
        assert not hessian(FunctionPotential(energy), x).any()
        assert not gradient_of_laplacian(FunctionPotential(energy), x).any()
