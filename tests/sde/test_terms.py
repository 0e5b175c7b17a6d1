"""Terms in a user's arithmetic: what is written with tensors gives the same with drift_at and noise_at."""

import copy

import pytest
import torch

from torchsrk import SDE, Integrator, Langevin, UnderdampedLangevin, sample
from torchsrk.brownian import Increment, Needs
from torchsrk.potentials import FunctionPotential
from torchsrk.sde import Term, plus

X = torch.linspace(-1.0, 2.0, 6, dtype=torch.float64).view(3, 2)
B = X.cos()
H = 0.25

WRITTEN = {
    "x + 0.5*h*(b + c)": lambda x, b, c: x + 0.5 * H * (b + c),
    "x + b*h": lambda x, b, c: x + b * H,
    "x + h*b/2": lambda x, b, c: x + H * b / 2,
    "x - b": lambda x, b, c: x - b,
    "b - x": lambda x, b, c: b - x,
    "b + x": lambda x, b, c: b + x,
    "x + (b - c)": lambda x, b, c: x + (b - c),
    "x + -b": lambda x, b, c: x + -b,
    "b**2": lambda x, b, c: b**2,
    "b*x": lambda x, b, c: b * x,
    "x*b": lambda x, b, c: x * b,
    "b*c": lambda x, b, c: b * c,
    "b/c": lambda x, b, c: b / c,
    "1 - b": lambda x, b, c: 1 - b,
    "sum": lambda x, b, c: x + sum([b, c]),
    "square": lambda x, b, c: x + b.square(),
    "norm": lambda x, b, c: b / b.norm(dim=-1, keepdim=True),
    "tanh": lambda x, b, c: torch.tanh(b) + torch.cat((b, c), -1)[..., :2],
    "entry": lambda x, b, c: b[..., 0] - c.mean(),
    "where": lambda x, b, c: torch.where(b.gt(0), b, c),
    "in place": lambda x, b, c: x.clone().add_(b, alpha=H),
    "+=": lambda x, b, c: add_in_place(x.clone(), b),
}


def add_in_place(x, b):
    x += b
    x -= 0.5 * b
    return x


@pytest.mark.parametrize("factor", [1.0, -1.0, 0.5])
@pytest.mark.parametrize("written", WRITTEN)
def test_arithmetic_with_terms_is_that_of_their_products(written, factor):
    terms = Term(factor, B), Term(-2.0, X.sin())
    value = WRITTEN[written](X, *terms)
    if isinstance(value, Term):
        value = value.product
    torch.testing.assert_close(value, WRITTEN[written](X, factor * B, -2.0 * X.sin()), rtol=1e-14, atol=1e-15)


def test_a_number_times_a_term_and_sums_of_terms_stay_terms():
    term = Term(2.0, B)
    assert [type(made) for made in (0.5 * term, term * 0.5, term / 2, -term, term + term, term - term)] == [Term] * 6
    assert (term / 4).tensor is B
    assert copy.deepcopy(term).factor == 2.0


def potential():
    return FunctionPotential(lambda x: 0.5 * x.square().sum(-1) + x.pow(4).sum(-1), dim=2)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_scheme_in_plain_arithmetic_takes_the_steps_of_one_in_terms(compiled):
    class Plain(Integrator):
        gradients_per_step = 2

        def step(self, sde, t, x, increment):
            h, noise, b = increment.dt, sde.noise_at(t, x)(increment.W), sde.drift_at(t, x)
            return x + noise - (-b - sde.drift_at(t + h, x + b * h + noise)) * h / 2

    class InTerms(Integrator):
        gradients_per_step = 2

        def step(self, sde, t, x, increment):
            h, noise, b = increment.dt, sde.noise_at(t, x)(increment.W), sde.drift_at(t, x)
            return plus(x, noise, 0.5 * h * b, 0.5 * h * sde.drift_at(t + h, plus(x, h * b, noise)))

    for step_size in (0.05, 0.02):  # compiled, the second takes the first one's code
        options = {"step_size": step_size, "num_steps": 20, "seed": 0, "compile": compiled}
        runs = [sample(Langevin(potential()), X, integrator=scheme, **options) for scheme in (Plain(), InTerms())]
        torch.testing.assert_close(runs[0].final, runs[1].final, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    "sde",
    [
        Langevin(potential()),
        UnderdampedLangevin(potential(), friction=1.0),
        SDE(lambda x: -x, lambda x: 1.0 + 0.1 * x.cos(), "diagonal"),
    ],
    ids=lambda sde: type(sde).__name__,
)
def test_a_part_that_was_not_asked_for_is_told_with_what_asks_for_it(sde):
    class WithoutNeeds(Integrator):
        noise_types, gradients_per_step = ("additive", "diagonal"), 1

        def step(self, sde, t, x, increment):
            return x + increment.dt * sde.drift_at(t, x) + sde.noise_at(t, x)(increment.H)

    with pytest.raises(ValueError, match=r"did not ask for it: needs = Needs.SPACE_TIME_AREA asks for increment.H"):
        sample(sde, X, integrator=WithoutNeeds(), step_size=0.1, num_steps=2, seed=0)
    WithoutNeeds.needs = Needs.SPACE_TIME_AREA
    assert sample(sde, X, integrator=WithoutNeeds(), step_size=0.1, num_steps=2, seed=0).final.isfinite().all()


def test_iterated_integrals_ask_too():
    with pytest.raises(ValueError, match=r"Needs.LEVY_AREA"):
        Increment(0.1, X).iterated_integrals()
