"""What every exported potential keeps to."""

import copy

import pytest
import torch

from tests.problems import potentials
from torchsrk import potentials as exported

NAMES = sorted(potentials())


def test_every_exported_potential_is_under_contract():
    covered = {type(potential) for potential, _ in potentials().values()}
    covered |= {exported.Potential, exported.MinibatchPotential}  # abstract; stochastic, in a file of its own
    assert covered == {getattr(exported, name) for name in exported.__all__}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("batch", [(), (7,), (2, 3), (2, 1, 4)])
def test_any_leading_shape(name, batch):
    potential, dim = potentials()[name]
    x = torch.linspace(-2.0, 2.0, torch.Size(batch).numel() * dim).reshape(*batch, dim)
    energy, gradient = potential(x), potential.grad(x)
    assert energy.shape == batch
    assert gradient.shape == x.shape
    flat = x.reshape(-1, dim)
    torch.testing.assert_close(potential(flat).reshape(batch), energy)
    torch.testing.assert_close(potential.grad(flat).reshape(x.shape), gradient)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradient_is_autograds(name, dtype):
    potential, dim = potentials(dtype)[name]
    x = torch.linspace(-3.0, 3.0, 11 * dim, dtype=dtype).reshape(11, dim).requires_grad_()
    energy = potential(x)
    assert energy.dtype == dtype
    (expected,) = torch.autograd.grad(energy.sum(), x)
    gradient = potential.grad(x.detach())
    assert gradient.dtype == dtype
    torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "distribution"])
@pytest.mark.parametrize("device", ["meta", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_any_device(name, device):
    """On "meta" a hidden copy to the host, or a tensor made on the wrong device, raises."""
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    potential, dim = potentials()[name]
    x = torch.ones(5, dim, device=device)
    potential.to(device)
    assert potential(x).device.type == device
    assert potential.grad(x).device.type == device


@pytest.mark.parametrize("name", NAMES)
def test_gradient_is_differentiable_when_grad_mode_is_on_and_only_then(name):
    potential, dim = potentials()[name]
    x = torch.linspace(-1.0, 1.0, 3 * dim).reshape(3, dim).requires_grad_()
    assert torch.autograd.gradcheck(potential.grad, (x,))
    with torch.no_grad():
        assert not potential.grad(x).requires_grad


@pytest.mark.parametrize("name", NAMES)
def test_constants_bound_the_hessian(name):
    potential, dim = potentials()[name]
    generator = torch.Generator().manual_seed(0)
    for x in 2.0 * torch.randn(20, dim, generator=generator):
        eigenvalues = torch.linalg.eigvalsh(torch.autograd.functional.hessian(potential, x))
        if potential.strong_convexity is not None:
            assert eigenvalues.min() >= potential.strong_convexity - 1e-12
        if potential.smoothness is not None:
            assert eigenvalues.abs().max() <= potential.smoothness + 1e-12


@pytest.mark.parametrize("name", NAMES)
def test_copies_moves_and_prints(name):
    potential, dim = potentials()[name]
    x = torch.ones(2, dim)
    torch.testing.assert_close(copy.deepcopy(potential)(x), potential(x))
    assert type(potential).__name__ in repr(potential)
    if name != "distribution":  # its parameters are the distribution's own
        assert potential.float()(x.float()).dtype == torch.float32


@pytest.mark.parametrize("name", [name for name in NAMES if name != "function"])
def test_a_wrong_dimension_is_one_clear_error(name):
    potential, dim = potentials()[name]
    for method in (potential, potential.grad):
        with pytest.raises(ValueError, match=rf"dimension {dim}.*got \(2, {dim + 1}\)"):
            method(torch.ones(2, dim + 1))
