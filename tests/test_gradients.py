"""Gradients of ``integrate`` are those of a loop written by hand, wherever and however a parameter is read."""

import pytest
import torch
from torch import nn

from torchsrk import SDE, Langevin, integrate
from torchsrk.brownian import FreshNoise, Needs
from torchsrk.potentials import FunctionPotential

STEP_SIZE, STEPS, SEED = 0.05, 10, 3
EXACT = {"rtol": 1e-10, "atol": 1e-10}


class Scaled(torch.autograd.Function):
    """x·w, by hand."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, gradient):
        x, w = ctx.saved_tensors
        return gradient * w, (gradient * x).sum(tuple(range(x.ndim - 1)))


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


@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("source", SOURCES)
def test_gradients_are_those_of_a_loop(source, place, recompute):
    chosen = SOURCES[source], PLACES[place]
    expected = gradients(*chosen, by_hand)
    found = gradients(*chosen, lambda sde, x: solved(sde, x, recompute))
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, **EXACT)
