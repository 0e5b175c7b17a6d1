"""SDEs written for torchsde: taken as they are, by all of the package, and the same solution."""

import pytest
import torch
import torchsde
from torch import nn

from torchsrk import Chain, integrate, sample
from torchsrk.brownian import BrownianPath, Needs
from torchsrk.sde import TorchsdeSDE

DIM = 3


class Neural(nn.Module):
    """As torchsde's examples have them: for any noise type, and picky about its arguments."""

    sde_type = "ito"

    def __init__(self, noise_type):
        super().__init__()
        self.noise_type = noise_type
        self.weights = nn.Parameter(torch.eye(DIM) + 0.1)
        self.spread = nn.Parameter(torch.tensor(0.3))

    def f(self, t, y):
        assert isinstance(t, torch.Tensor)
        assert y.ndim == 2
        return torch.sin(t) - y @ self.weights

    def g(self, t, y):
        assert y.ndim == 2
        if self.noise_type == "diagonal":
            return self.spread * (1.0 + 0.1 * y.sin())
        if self.noise_type == "scalar":
            return self.spread * (1.0 + 0.1 * y.sin()).unsqueeze(-1)
        matrix = self.spread * (1.0 + t) * torch.ones(DIM, 2).tril()
        if self.noise_type == "general":
            return matrix * (1.0 + 0.1 * y.cos()).unsqueeze(-1)
        return matrix.expand(len(y), DIM, 2)


class Together:
    """No module, and both terms at once."""

    sde_type, noise_type = "ito", "diagonal"

    def f_and_g(self, t, y):
        return -y, 0.5 + 0.0 * y


@pytest.mark.parametrize("noise_type", ["additive", "diagonal", "scalar", "general"])
def test_the_solution_is_torchsdes(noise_type):
    """Euler's on one path: to rounding. Gradients of the parameters too."""
    sde = Neural(noise_type)
    x0 = torch.randn(5, DIM, generator=torch.Generator().manual_seed(0))
    brownian = {"additive": 2, "general": 2, "scalar": 1}.get(noise_type, DIM)
    path = BrownianPath(seed=3, shape=(5, brownian), t0=0.0, t1=1.0, num_steps=20)
    ours = integrate(sde, x0, [0.0, 0.5, 1.0], integrator="em", step_size=0.05, path=path)
    theirs = torchsde.sdeint(sde, x0, torch.tensor([0.0, 0.5, 1.0]), bm=Path(path, brownian), method="euler", dt=0.05)
    torch.testing.assert_close(ours, theirs)
    found = [torch.autograd.grad(xs.square().sum(), list(sde.parameters())) for xs in (ours, theirs)]
    torch.testing.assert_close(*found)


class Path:
    """Our path as torchsde asks for one."""

    def __init__(self, path, brownian):
        self.path, self.shape, self.dtype, self.device = path, (5, brownian), torch.float64, torch.device("cpu")
        self.levy_area_approximation = "none"

    def __call__(self, ta, tb=None, return_U=False, return_A=False):
        start, end = round(float(ta) / 0.05), round(float(tb) / 0.05)
        assert end == start + 1
        return self.path.increment(start, start * 0.05, 0.05, Needs.INCREMENT).W


@pytest.mark.parametrize("shape", [(DIM,), (4, DIM), (2, 3, DIM)])
def test_any_shape_of_particles(shape):
    sde, x0 = Neural("general"), torch.ones(shape)
    xs = integrate(sde, x0, [0.0, 0.2], integrator="srk-id", step_size=0.1, seed=0)
    assert xs.shape == (2, *shape)
    assert xs.isfinite().all()


def test_sample_and_chain_take_them():
    x0 = torch.zeros(4000, DIM)
    options = {"integrator": "srk-id", "step_size": 0.05, "seed": 0}
    run = sample(Together(), x0, num_steps=100, **options)
    assert abs(float(run.final.var()) / 0.125 - 1.0) < 0.06
    assert Chain(Together(), x0, **options).advance(100).final.equal(run.final)


def test_recomputed_and_compiled():
    sde, x0 = Neural("diagonal"), torch.ones(8, DIM)
    options = {"integrator": "srk-id", "step_size": 0.1, "seed": 0}
    plain = integrate(sde, x0, [0.0, 1.0], **options)
    plain[-1].sum().backward()
    expected, sde.weights.grad = sde.weights.grad, None
    again = integrate(sde, x0, [0.0, 1.0], recompute=True, **options)
    again[-1].sum().backward()
    torch.testing.assert_close(again, plain)
    torch.testing.assert_close(sde.weights.grad, expected)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"sde_type": "stratonovich"}, ValueError, "solve Itô SDEs"),
        ({"noise_type": "odd"}, ValueError, "noise types additive, diagonal"),
        ({"f": lambda t, y: y[:1]}, ValueError, r"f must return \(batch, dim\)"),
        ({"g": lambda t, y: y.unsqueeze(-1)}, ValueError, r"g must return \(batch, dim\) for diagonal noise"),
    ],
)
def test_refused(changes, error, message):
    sde = Neural("diagonal")
    for name, value in changes.items():
        object.__setattr__(sde, name, value)
    with pytest.raises(error, match=message):
        integrate(sde, torch.ones(4, DIM), [0.0, 0.2], integrator="em", step_size=0.1, seed=0)


def test_what_is_no_sde():
    with pytest.raises(TypeError, match="torchsde's f, g, noise_type and sde_type; got int"):
        integrate(3, torch.ones(4, DIM), [0.0, 0.2], integrator="em", step_size=0.1, seed=0)


def test_ours_is_not_wrapped():
    from torchsrk.sde import as_sde

    sde = TorchsdeSDE(Neural("diagonal"))
    assert as_sde(sde) is sde
