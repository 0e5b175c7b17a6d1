"""Recomputed pieces have the gradients of plain ones, wherever a tensor comes from, and make every step twice."""

import pytest
import torch
from torch import nn

from tests.problems import Scaled, minibatch, networks
from torchsrk import SDE, ItoDiffusion, Langevin, integrate
from torchsrk.potentials import FunctionPotential, NonConvex
from torchsrk.recompute import recomputed
from torchsrk.sampling import checks

OPTIONS = {"step_size": 0.05, "seed": 0}
TIMES = (0.0, 0.2, 0.5)  # ten steps, in pieces of four


def parameter_in_a_closure(w):
    return Langevin(FunctionPotential(lambda x: (w * x.square() + (x * w).sin()).sum(-1)))


def made_from_a_parameter(w):
    made = w.exp()
    return Langevin(FunctionPotential(lambda x: (made * x.square()).sum(-1)))


def a_network(w):
    network = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 1))
    with torch.no_grad():
        network[2].weight.mul_(float(w[0]))
    sde = Langevin(FunctionPotential(lambda x: network(x).squeeze(-1) + x.square().sum(-1)))
    sde.extra = list(network.parameters())
    return sde


def read_late(w):
    """Only after the first piece."""
    return SDE(lambda t, x: -x if t < 0.3 else -w * x, lambda t, x: 0.1 + 0.0 * x, "diagonal", time_dependent=True)


def by_transforms(w):
    gradient = torch.func.vmap(torch.func.grad(lambda x: (w * x.square()).sum()))
    return SDE(lambda x: -gradient(x), lambda x: 0.5 + 0.1 * w * x.sin(), "diagonal")


def by_a_function(w):
    return SDE(lambda x: -Scaled.apply(x, w), 0.3, "additive")


def by_a_divergence(w):
    target = NonConvex(beta=2.0, gamma=0.5, dim=2)
    matrix = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    return ItoDiffusion(target, target.scale, lambda x: w[0] * x[..., :1, None].cos() * matrix, noise_type="isotropic")


CASES = {
    case.__name__: case
    for case in (
        parameter_in_a_closure,
        made_from_a_parameter,
        a_network,
        read_late,
        by_transforms,
        by_a_function,
        by_a_divergence,
    )
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_plain_backpropagation(name):
    found = []
    for recompute in (False, True):
        torch.manual_seed(0)
        w = torch.tensor([0.7, 1.2], requires_grad=True)
        x0 = torch.linspace(-1.0, 1.0, 8).view(4, 2).requires_grad_()
        sde = CASES[name](w)
        scheme = "srk-ld" if name in ("parameter_in_a_closure", "a_network") else "em"
        xs = integrate(sde, x0, TIMES, integrator=scheme, recompute=recompute, **OPTIONS)
        loss = xs[1:].pow(3).sum() + w.exp().sum()  # w by a way of its own, too
        inputs = (x0, w, *getattr(sde, "extra", ()))
        found.append((loss.detach(), *torch.autograd.grad(loss, inputs, allow_unused=True)))
    for plain, again in zip(*found, strict=True):
        if plain is None:  # a bias that moves an energy as a whole
            assert again is None or not again.any()
        else:
            torch.testing.assert_close(again, plain)


def test_what_was_made_from_a_parameter_may_be_used_elsewhere():
    w = torch.tensor([0.7, 1.2], requires_grad=True)
    made = w.exp().square()
    sde = Langevin(FunctionPotential(lambda x: (made * x.square()).sum(-1)))
    gradients = []
    for recompute in (False, True):
        xs = integrate(sde, torch.ones(4, 2), TIMES, integrator="em", recompute=recompute, **OPTIONS)
        loss = made.log().sum() + xs[-1].square().sum()
        gradients.append(torch.autograd.grad(loss, w, retain_graph=True)[0])
    torch.testing.assert_close(*gradients)


def test_every_step_is_made_twice_and_no_more(monkeypatch):
    monkeypatch.setattr(checks, "check_gradient", lambda *args: None)  # which is before the first step
    calls = []

    def energy(x):
        calls.append(len(x))
        return x.square().sum(-1)

    x0 = torch.ones(4, 2, requires_grad=True)
    xs = integrate(Langevin(FunctionPotential(energy)), x0, (0.0, 5.0), integrator="srk-ld", recompute=True, **OPTIONS)
    assert len(calls) == 300
    xs[-1].sum().backward()
    assert len(calls) == 600


def test_gradients_add_up_in_the_parameters_of_modules():
    sde = networks(2)
    x0 = torch.ones(3, 2)
    gradients = []
    for recompute in (False, True):
        sde.zero_grad()
        integrate(sde, x0, TIMES, integrator="srk-id", recompute=recompute, **OPTIONS)[-1].sum().backward()
        gradients.append([parameter.grad.clone() for parameter in sde.parameters()])
    for plain, again in zip(*gradients, strict=True):
        torch.testing.assert_close(again, plain)


def test_a_backward_pass_under_autocast():
    torch.manual_seed(0)
    sde = SDE(nn.Linear(2, 2), 0.3, "additive").float()
    x0 = torch.ones(3, 2, dtype=torch.float32)
    gradients = []
    for enabled in (False, True):
        xs = integrate(sde, x0, TIMES, integrator="em", recompute=True, **OPTIONS)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            gradients.append(torch.autograd.grad(xs[-1].sum(), sde.drift_function.weight)[0])
    assert torch.equal(*gradients)


def test_without_a_graph_nothing_is_kept():
    sde = networks(2)
    with torch.no_grad():
        xs = integrate(sde, torch.ones(3, 2), TIMES, integrator="em", recompute=True, **OPTIONS)
    assert not xs.requires_grad
    assert torch.equal(xs, integrate(sde, torch.ones(3, 2), TIMES, integrator="em", **OPTIONS))


def test_nothing_to_differentiate():
    sde = Langevin(FunctionPotential(lambda x: x.square().sum(-1)))
    xs = integrate(sde, torch.ones(3, 2), TIMES, integrator="em", recompute=True, **OPTIONS)
    assert not xs.requires_grad


def test_minibatches_are_refused():
    with pytest.raises(ValueError, match="would draw other minibatches the second time"):
        integrate(Langevin(minibatch()), torch.ones(3, 2), TIMES, integrator="em", recompute=True, **OPTIONS)


def test_a_second_derivative_is_refused():
    x = torch.ones(2, requires_grad=True)
    (y,) = recomputed(lambda x: (x.pow(3),), x)
    with pytest.raises(RuntimeError, match="differentiated once: with create_graph=True"):
        torch.autograd.grad(y.sum(), x, create_graph=True)


# --------------------------------------------------------------------------------- what is read out of sight


@torch.jit.script
def scripted(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.sin(x * w)


def hidden_parameter(w):
    return SDE(lambda x: scripted(x, w) - x, 0.3, "additive")


def hidden_and_made(w):
    made = w.exp()
    return SDE(lambda x: scripted(x, made) - x, 0.3, "additive")


def hidden_late(w):
    return SDE(lambda t, x: -x if t < 0.3 else scripted(x, w), 0.3, "additive", time_dependent=True)


def hidden_module(w):
    network = torch.jit.script(nn.Linear(2, 2))  # not a part of the SDE
    return SDE(lambda x: network(x), 0.3, "additive")


def hidden_and_dependent(w):
    made = w.exp()
    return SDE(lambda x: Scaled.apply(x, w) + Scaled.apply(x, made), 0.3, "additive")


def hidden_with_a_hook(w):
    w.register_hook(lambda gradient: 2 * gradient)
    return SDE(lambda x: Scaled.apply(x, w), 0.3, "additive")


HIDDEN = (hidden_parameter, hidden_and_made, hidden_late, hidden_module, hidden_and_dependent, hidden_with_a_hook)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("case", HIDDEN)
def test_what_is_read_out_of_sight_is_never_without_its_gradient(case, known):
    """Whether or not there is anything else that needs a gradient."""
    sde = case(torch.tensor([0.7, -0.4], requires_grad=True))
    x0 = torch.ones(3, 2, requires_grad=known)
    with pytest.raises(RuntimeError, match=r"read out of sight.*use recompute=False"):
        integrate(sde, x0, TIMES, integrator="em", recompute=True, **OPTIONS)[-1].sum().backward()


def test_a_scripted_drift_has_its_weights_gradients():
    torch.manual_seed(0)
    network = torch.jit.script(nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2)))
    gradients = []
    for recompute in (False, True):
        network.zero_grad()
        xs = integrate(
            SDE(network, 0.3, "additive"), torch.ones(3, 2), TIMES, integrator="em", recompute=recompute, **OPTIONS
        )
        xs[-1].square().sum().backward()
        gradients.append([parameter.grad.clone() for parameter in network.parameters()])
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-10)


# ------------------------------------------------------------------------ what differs from one call to the next


def trained(network, recompute=True, change=None):
    """The gradients of a drift network, and of the start."""
    x0 = torch.linspace(-1.0, 1.0, 8).view(4, 2).requires_grad_()
    xs = integrate(SDE(network, 0.3, "additive"), x0, TIMES, integrator="em", recompute=recompute, **OPTIONS)
    if change is not None:
        change()
    return torch.autograd.grad(xs[-1].pow(3).sum(), (x0, *network.parameters()))


class Noisy(nn.Linear):
    """Draws from a generator of its own."""

    def __init__(self, generator):
        super().__init__(2, 2)
        self.generator = generator

    def forward(self, x):
        return super().forward(x) * torch.rand(x.shape, generator=self.generator)


@pytest.mark.parametrize("own", [False, True])
def test_random_numbers_are_drawn_again(own):
    found = []
    for recompute in (False, True):
        torch.manual_seed(0)
        generator = torch.Generator().manual_seed(5)
        layers = nn.Sequential(nn.Linear(2, 16), nn.Dropout(0.5), nn.Linear(16, 2))
        network = Noisy(generator) if own else layers
        found.append((*trained(network, recompute), torch.rand(3), torch.rand(3, generator=generator)))
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)  # and what comes after them is the same, too


def batch_norm():
    return nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def spectral_norm():
    return nn.utils.parametrizations.spectral_norm(nn.Linear(2, 2))


@pytest.mark.parametrize("network", [batch_norm, spectral_norm, lambda: torch.jit.script(batch_norm())])
def test_a_network_that_changes_with_each_call_is_refused(network):
    torch.manual_seed(0)
    network = network()
    with pytest.raises(RuntimeError, match=r"changes its 'drift_function.* makes every step twice.*\.eval\(\)"):
        trained(network)
    network.eval()
    torch.testing.assert_close(trained(network), trained(network, False), rtol=1e-10, atol=1e-10)


def test_batches_are_counted_once():
    network = batch_norm()
    trained(network, recompute=False)
    assert int(network[1].num_batches_tracked) == 10


class Shifted(nn.Linear):
    def __init__(self):
        super().__init__(2, 2)
        self.register_buffer("shift", torch.ones(2))

    def forward(self, x):
        return super().forward(x) + self.shift * x


@pytest.mark.parametrize("name", ["shift", "weight"])
def test_what_is_changed_before_the_backward_pass(name):
    network = Shifted()

    @torch.no_grad()
    def change():
        getattr(network, name).add_(1e-12)

    with pytest.raises(RuntimeError, match=f"its 'drift_function.{name}'.* modified by an in-place operation"):
        trained(network, change=change)


def test_a_closures_tensor_is_changed_before_the_backward_pass():
    shift = torch.ones(2)
    x0 = torch.ones(3, 2, requires_grad=True)
    sde = SDE(lambda x: shift * x, 0.3, "additive")
    xs = integrate(sde, x0, TIMES, integrator="em", recompute=True, **OPTIONS)
    shift.add_(1.0)
    with pytest.raises(RuntimeError, match=r"a tensor of shape \(2,\).* modified by an in-place operation"):
        xs[-1].sum().backward()


def test_what_was_not_read_may_be_changed():
    network = Shifted()
    network.register_buffer("calls", torch.zeros(()))
    torch.testing.assert_close(trained(network, change=lambda: network.calls.add_(1)), trained(network, False))


def test_steps_that_end_elsewhere_are_refused():
    calls = []

    class Counting(nn.Linear):
        def forward(self, x):
            calls.append(x)
            return super().forward(x) / len(calls)

    with pytest.raises(RuntimeError, match=r"the same steps ended elsewhere.*Use recompute=False"):
        trained(Counting(2, 2))


@pytest.mark.parametrize("how", ["a point of its own", "a point declared later", "the state", "a parameter"])
def test_a_drift_that_differentiates(how):
    """By x, by w, or by points of its own: those begin graphs that no gradient comes from."""
    w = torch.tensor([0.7, -0.4], requires_grad=True)

    def drift(x):
        point = x.detach().requires_grad_() if how == "a point of its own" else x
        if how == "a point declared later":
            point = x.detach()
            point.requires_grad = True
        if how == "a parameter":  # else the derivative is that of all steps so far, in which w is read as well
            point = x.detach()
        energy = (w * point.square()).sum().sin()
        (slope,) = torch.autograd.grad(energy, w if how == "a parameter" else point, create_graph=True)
        return -slope - 0.1 * x

    found = []
    for recompute in (False, True):
        x0 = torch.ones(3, 2, requires_grad=True)
        xs = integrate(SDE(drift, 0.3, "additive"), x0, TIMES, integrator="em", recompute=recompute, **OPTIONS)
        found.append(torch.autograd.grad(xs[-1].pow(3).sum(), (w, x0)))
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.vmap])
def test_transformations_are_refused(transform):
    sde = networks(2)

    def loss(x0):
        return integrate(sde, x0, TIMES, integrator="em", recompute=True, **OPTIONS).sum()

    with pytest.raises(RuntimeError, match=r"torch.func .* recompute=True: use recompute=False"):
        transform(loss)(torch.ones(3, 2, 2))


def test_forward_derivatives_are_refused():
    with torch.autograd.forward_ad.dual_level():
        x0 = torch.autograd.forward_ad.make_dual(torch.ones(3, 2), torch.ones(3, 2))
        with pytest.raises(RuntimeError, match="forward derivatives"):
            integrate(networks(2), x0, TIMES, integrator="em", recompute=True, **OPTIONS)
