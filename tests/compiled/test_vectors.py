"""Every entrywise operation, on every vector width that this processor can pretend to have."""

import pytest
import torch

from torchsrk import SDE, sample
from torchsrk.compiled import build

# Operation: the interval it is tried on.
FUNCTIONS = {
    **dict.fromkeys(("exp", "expm1", "sin", "cos", "tan", "atan", "sinh", "cosh", "tanh", "asinh"), (-25.0, 25.0)),
    **dict.fromkeys(("erf", "erfc", "sigmoid", "relu", "abs", "floor", "ceil", "trunc", "sign", "exp2"), (-9.0, 9.0)),
    **dict.fromkeys(("log", "log2", "log10", "sqrt", "rsqrt", "reciprocal", "lgamma"), (0.01, 40.0)),
    **dict.fromkeys(("asin", "acos", "atanh"), (-0.999, 0.999)),
    "log1p": (-0.99, 40.0),
    "digamma": (0.05, 40.0),
    "erfinv": (-0.999, 0.999),
    "erfcx": (-3.0, 40.0),
    **dict.fromkeys(("i0", "i1"), (-24.0, 24.0)),
    **dict.fromkeys(("i0e", "i1e"), (-60.0, 60.0)),
    "acosh": (1.01, 40.0),
    "round": (-9.0, 9.0),
}
WIDTHS = {
    "widest": (),
    "AVX2": ("-mno-avx512f",),
    "SSE": ("-mno-avx512f", "-mno-avx2", "-mno-avx"),
    "lane by lane": ("-UVECTOR_MATH",),
}


def function(name):
    return getattr(torch, name, None) or getattr(torch.special, name)


def apply(functions, x, monkeypatch, flags, subtract=True):
    """Each function by a compiled step that moves x to it, without noise; or, from 0, by one that moves there."""
    load = build.load
    monkeypatch.setattr(build, "load", lambda source, more=(): load(source, (*more, *flags)))

    def drift(points):
        return torch.stack([function(name)(points[..., i]) for i, name in enumerate(functions)], -1) - points

    def beside(points):
        """The state is (0, x), and the function of x goes where there is nothing to round it off with."""
        return torch.cat((function(functions[0])(points[..., 1:]), 0.0 * points[..., 1:]), -1)

    state = x if subtract else torch.cat((torch.zeros_like(x), x), -1)
    sde = SDE(drift if subtract else beside, lambda points: 0.0 * points, "diagonal")
    final = sample(sde, state, integrator="em", step_size=1.0, num_steps=1, seed=0, compile=True).final
    return final if subtract else final[:, :1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("particles", [4, 203])
def test_functions(monkeypatch, width, dtype, particles):
    x = torch.stack([torch.linspace(low, high, particles, dtype=dtype) for low, high in FUNCTIONS.values()], -1)
    result = apply(list(FUNCTIONS), x, monkeypatch, WIDTHS[width])
    for i, name in enumerate(FUNCTIONS):
        exact = function(name)(x[:, i].double()) if name != "round" else x[:, i].round().double()
        # Four units in the last place, the bound that glibc states, and the rounding of (f(x) - x) + x.
        unit = torch.finfo(dtype).eps * torch.maximum(exact.abs(), x[:, i].abs().double())
        assert ((result[:, i].double() - exact).abs() <= 6 * unit).all(), name


@pytest.mark.parametrize("particles", [4, 203])
def test_not_a_number_stays_one(monkeypatch, particles):
    """Comparisons and extremes treat NaN as torch does, so that it can't hide."""
    x = torch.randn(particles, 1)
    x[::3] = 30.0

    def drift(points):
        overflow = torch.exp(points.square())  # inf where x is 30
        nan = overflow - overflow
        parts = (nan.clamp(-1, 1), torch.maximum(nan, points), torch.minimum(points, nan), torch.relu(nan), nan.abs())
        return sum(torch.where(part.isnan(), 1.0, 0.0) for part in parts) - points

    sde = SDE(drift, lambda points: 0.0 * points, "diagonal")
    run = {"integrator": "em", "step_size": 1.0, "num_steps": 1, "seed": 0}
    compiled = sample(sde, x, compile=True, **run).final
    torch.testing.assert_close(compiled, torch.where(x == 30.0, 5.0, 0.0), rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("particles", [4, 203])
def test_floor_divide(dtype, particles):
    """As torch has it, with its signs, zeros and quotients that rounding leaves a hair off a whole number."""
    x = torch.linspace(-6.0, 6.0, 3 * particles, dtype=dtype).reshape(-1, 3)
    divisors = torch.tensor([0.3, -0.7, 1.0], dtype=dtype)

    def drift(points):
        return torch.div(points, divisors, rounding_mode="floor") - points

    sde = SDE(drift, lambda points: 0.0 * points, "diagonal")
    run = {"integrator": "em", "step_size": 1.0, "num_steps": 1, "seed": 0}
    compiled, eager = (sample(sde, x, compile=compiling, **run).final for compiling in (True, False))
    torch.testing.assert_close(compiled, eager, rtol=0.0, atol=0.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["exp", "tanh", "sigmoid"])
def test_far_out(monkeypatch, width, dtype, name):
    """Up to where results leave what the dtype holds, and down to where they are all but 0."""
    largest = 700.0 if dtype == torch.float64 else 88.0
    ends = torch.tensor([-0.0, 0.0, 1e-30, -1e-30, largest, -largest, 1e4, -1e4, 2 * largest], dtype=dtype)
    x = torch.cat((ends, torch.linspace(-1.2 * largest, -0.9 * largest, 40, dtype=dtype)))[:, None]
    x = x[getattr(torch, name)(x).isfinite()][:, None]
    exact = getattr(torch, name)(x)
    result = apply([name], x, monkeypatch, WIDTHS[width], subtract=False)
    same = (result == exact) | ((result - exact).abs() <= 6 * torch.finfo(dtype).eps * exact.abs())
    least = torch.finfo(dtype).smallest_normal
    small = (exact.abs() < least) & ((result - exact).abs() <= torch.finfo(dtype).eps * least)  # one unit of the least
    assert (same | small).all(), x[~(same | small)]
