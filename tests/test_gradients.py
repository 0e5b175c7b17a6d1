"""Gradients of ``integrate`` are those of a loop written by hand, wherever and however a parameter is read."""

import pytest
import torch
from torch import nn

from tests.problems import Scaled, networks
from torchsrk import SDE, ItoDiffusion, Langevin, NonFiniteStateError, integrate
from torchsrk.brownian import FreshNoise, Needs
from torchsrk.potentials import FunctionPotential, NonConvex

STEP_SIZE, STEPS, SEED = 0.05, 10, 3
EXACT = {"rtol": 1e-10, "atol": 1e-10}


class Holding(nn.Module):
    """A field with a parameter or buffer of its own."""

    def __init__(self, p: torch.Tensor, made: bool) -> None:
        super().__init__()
        if made:
            self.register_buffer("w", p.exp())
        else:
            self.w = p

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(self.w * x)


def a_view(p):
    view = p[1:]
    return lambda x: (view * x).sin()


def a_function(p):
    made = p.exp().square()
    return lambda x: (made * x).sin()


def a_view_and_its_base(p):
    view = p[:1]
    return lambda x: (view * x).sin() + p * x.cos()


def two_that_depend_on_one_another(p):
    first = p.exp()
    second = first.log1p().sum()
    return lambda x: (first * x).sin() + second * x.cos() + p


def functions_of_ones_own(p):
    made = p.exp()
    return lambda x: Scaled.apply(x.sin(), made) + p * x.cos()


def transformed(p):
    made = p.exp()
    field = torch.func.vmap(lambda row, w, v: (w * row).sin() + v, (0, None, None))
    return lambda x: field(x, made, p.detach()) * p


def in_a_list(p):
    parts = [p, p.square()]
    return lambda x: torch.stack(parts, dim=0).sum(0) * x.sin() + torch.cat(tensors=parts)[:2]


# A function of the parameter, (2,), that gives a field from (..., 2) to (..., 2).
SOURCES = {
    "parameter": lambda p: Holding(p, made=False),
    "buffer": lambda p: Holding(p, made=True),
    "scripted": lambda p: torch.jit.script(Holding(p, made=False)),
    "closure": lambda p: lambda x: (p * x).sin(),
    "function": lambda p: lambda x: Scaled.apply(x.sin(), p),
    **{
        source.__name__: source
        for source in (
            *(a_view, a_function, a_view_and_its_base, two_that_depend_on_one_another),
            *(functions_of_ones_own, transformed, in_a_list),
        )
    },
}


class Field(nn.Module):
    """form(field(x), x); a field that is a module is a part of this one."""

    def __init__(self, field, form):
        super().__init__()
        self.field, self.form = field, form

    def forward(self, x):
        return self.form(self.field(x), x)


def in_the_start(field, x0):
    return SDE(lambda x: -x.sin(), 0.4, "additive"), x0 + field(x0)


def in_the_start_and_the_drift(field, x0):
    start = x0 + field(x0)
    return SDE(Field(field, lambda s, x: 0.3 * s - (x - start)), 0.4, "additive"), start


def in_the_drift(field, x0):
    return SDE(Field(field, lambda s, x: s - x), 0.4, "additive"), x0


def in_the_diffusion(field, x0):
    return SDE(lambda x: -x, Field(field, lambda s, x: 0.5 + 0.2 * s), "diagonal"), x0


def in_the_potential(field, x0):
    return Langevin(FunctionPotential(Field(field, lambda s, x: (0.5 * x.square() + s).sum(-1)))), x0


PLACES = {
    place.__name__: place
    for place in (in_the_start, in_the_start_and_the_drift, in_the_drift, in_the_diffusion, in_the_potential)
}


def by_hand(sde, x):
    """Euler-Maruyama, without the library's loop."""
    noise = FreshNoise(SEED, tuple(x.shape), dtype=x.dtype, device=x.device)
    for step in range(STEPS):
        dW = noise.increment(step, 0.0, STEP_SIZE, Needs.INCREMENT).W
        x = x + STEP_SIZE * sde.drift(0.0, x) + sde.sigma(0.0, x) * dW
    return x


def solved(sde, x, recompute):
    ts = (0.0, 4 * STEP_SIZE, STEPS * STEP_SIZE)
    options = {"integrator": "em", "step_size": STEP_SIZE, "seed": SEED}
    return integrate(sde, x, ts, recompute=recompute, **options)[-1]


def gradients(source, place, solve):
    p = nn.Parameter(torch.tensor([0.7, -0.4]))
    x0 = torch.linspace(-1.0, 1.0, 8).view(4, 2).requires_grad_()
    sde, start = place(source(p), x0)
    x = solve(sde, start)
    return (x, *torch.autograd.grad(x.pow(3).sum() + p.exp().sum(), (p, x0)))


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("source", SOURCES)
def test_gradients_are_those_of_a_loop(source, place, recompute):
    chosen = SOURCES[source], PLACES[place]
    expected = gradients(*chosen, by_hand)
    found = gradients(*chosen, lambda sde, x: solved(sde, x, recompute))
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, **EXACT)


def langevin(w):
    return Langevin(FunctionPotential(lambda x: (w * x.square() + x.sin()).sum(-1)))


def diagonal(w):
    return SDE(lambda x: -w * x, lambda x: 0.5 + 0.1 * (w * x).sin(), "diagonal")


def isotropic(w):
    target = NonConvex(beta=2.0, gamma=0.5, dim=2)
    return ItoDiffusion(target, lambda x: target.scale(x) * w.sum().exp(), noise_type="isotropic")


TRANSFORMED = [(langevin, "em"), (langevin, "srk-ld"), (diagonal, "srk-id"), (isotropic, "em"), (isotropic, "srk-id")]
W, X0 = torch.tensor([0.7, -0.4], dtype=torch.float64), torch.linspace(-1.0, 1.0, 8, dtype=torch.float64).view(4, 2)


@pytest.fixture(params=TRANSFORMED, ids=lambda pair: f"{pair[0].__name__}, {pair[1]}")
def states(request):
    """A function of (w, x0) that solves."""
    make, scheme = request.param
    options = {"integrator": scheme, "step_size": STEP_SIZE, "seed": SEED}
    return lambda w, x: integrate(make(w), x, (0.0, 0.2, 0.5), **options)


def test_grad_and_jvp(states):
    def loss(w, x):
        return states(w, x).pow(3).sum()

    w, x = W.clone().requires_grad_(), X0.clone().requires_grad_()
    expected = torch.autograd.grad(loss(w, x), (w, x))
    torch.testing.assert_close(torch.func.grad(loss, (0, 1))(W, X0), expected, **EXACT)
    value, along = torch.func.jvp(loss, (W, X0), (W, X0))
    torch.testing.assert_close(value, loss(W, X0), **EXACT)
    torch.testing.assert_close(along, (expected[0] * W).sum() + (expected[1] * X0).sum(), **EXACT)
    rows = torch.func.vmap(torch.func.grad(loss), (0, None))(torch.stack((W, 2 * W)), X0)
    torch.testing.assert_close(rows[0], expected[0], **EXACT)


def test_entries_of_a_vmap_are_solves_of_their_own_with_the_same_noise(states):
    ws, xs = torch.stack((W, 2 * W)), torch.stack((X0, X0 + 1))
    both = torch.func.vmap(states)(ws, xs)
    torch.testing.assert_close(both, torch.stack([states(*pair) for pair in zip(ws, xs, strict=True)]), **EXACT)
    by_parameter = torch.func.vmap(lambda w: states(w, X0))(ws)
    torch.testing.assert_close(by_parameter, torch.stack([states(w, X0) for w in ws]), **EXACT)


def test_a_vmap_within_a_graph(states):
    w = W.clone().requires_grad_()
    expected = torch.autograd.grad(states(w, X0).pow(3).sum(), w)
    found = torch.autograd.grad(torch.func.vmap(lambda x: states(w, x))(X0.unsqueeze(0)).pow(3).sum(), w)
    torch.testing.assert_close(found, expected, **EXACT)


def test_networks_by_a_functional_call():
    sde = networks(2)
    parameters = {name: value.detach() for name, value in sde.named_parameters()}

    def loss(parameters):
        options = {"integrator": "em", "step_size": STEP_SIZE, "seed": SEED}
        return torch.func.functional_call(Solved(sde, options), {f"sde.{k}": v for k, v in parameters.items()}, X0)

    found = torch.func.grad(loss)(parameters)
    expected = torch.autograd.grad(loss(dict(sde.named_parameters())), list(sde.parameters()))
    torch.testing.assert_close(list(found.values()), list(expected), **EXACT)


class Solved(nn.Module):
    def __init__(self, sde, options):
        super().__init__()
        self.sde, self.options = sde, options

    def forward(self, x):
        return integrate(self.sde, x, (0.0, 0.2), **self.options)[-1].square().sum()


def test_failures_under_a_vmap():
    def solve(w, x):
        return integrate(langevin(w), x, (0.0, 0.5), integrator="em", step_size=STEP_SIZE, seed=SEED)

    with pytest.raises(ValueError, match="x0 has 8 entries that are infinite or NaN"):
        torch.func.vmap(solve, (None, 0))(W, torch.stack((X0, X0 * torch.nan)))
    with pytest.raises(NonFiniteStateError, match="4 of 8 particles are not finite at step 2"):
        torch.func.vmap(solve, (0, None))(torch.stack((W, W * 1e300)), X0 * 1e3)
