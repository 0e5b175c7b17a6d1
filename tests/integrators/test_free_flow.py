"""The free flow's coefficients against ninety digits, from friction that hardly acts to friction that stops."""

from decimal import Decimal, getcontext, localcontext

import numpy as np
import pytest
import torch

from torchsrk.integrators import free_flow as ff

RATES = [1e-12, 1e-8, 1e-5, 1e-3, 0.03, 0.3, 0.999, 1.0, 1.7, 1.999, 2.0, 4.0, 4.001, 10.0, 50.0, 1e4]
TIMES = (0.0, 1e-3, 0.1, 0.3, 0.5, 0.77, 0.9, 0.999, 1.0)


@pytest.fixture(autouse=True)
def _ninety_digits():
    with localcontext():
        getcontext().prec = 90
        yield


def moments(x, tau=1):
    """Var N_X, Cov and Var N_V over the time τ, and the mean displacement, in the module's units."""
    x, tau = Decimal(x), Decimal(tau)
    e = (-x * tau).exp()
    position = (2 * x * tau - 3 + 4 * e - e * e) / (2 * x**3)
    return position, (1 - e) ** 2 / (2 * x**2), (1 - e * e) / (2 * x), (1 - e) / x


def exact_bridge(x, tau):
    """Coefficients and variance of the position at τ given the end, by Gaussian elimination."""
    position, both, velocity, _ = moments(x)
    own, own_both, _, _ = moments(x, tau)
    left = Decimal(1) - Decimal(tau)
    decay = (-Decimal(x) * left).exp()
    with_velocity = decay * own_both
    with_position = own + (1 - decay) / Decimal(x) * own_both
    determinant = position * velocity - both * both
    from_position = (with_position * velocity - with_velocity * both) / determinant
    from_velocity = (with_velocity * position - with_position * both) / determinant
    return from_position, from_velocity, own - from_position * with_position - from_velocity * with_velocity


@pytest.mark.parametrize("x", RATES)
def test_functions_of_friction_times_step(x):
    position, both, velocity, reach = moments(x)
    exact = Decimal(x)
    pairs = [
        (ff.reach(x), reach),
        (ff.fall(x), (1 - reach) / exact),
        (ff.position_variance(x), position),
        (ff.velocity_variance(x), velocity),
        (ff.covariance(x), both),
        (ff.area_share(x), (position - ((1 - reach) / exact) ** 2).sqrt()),
    ]
    for got, wanted in pairs:
        assert got == pytest.approx(float(wanted), rel=4e-15)


@pytest.mark.parametrize("x", RATES)
def test_noise_of_a_step_has_its_law_exactly(x):
    friction, u, h = x / 0.3, 0.7, 0.3
    flow = ff.free_flow(friction, u, h)
    rows = np.array([flow.position, flow.velocity])
    made = rows @ np.diag([h, h / 12]) @ rows.T
    position, both, velocity, reach = (float(value) for value in moments(x))
    unit = 2.0 * friction * u * h
    wanted = unit * np.array([[h * h * position, h * both], [h * both, velocity]])
    np.testing.assert_allclose(made, wanted, rtol=1e-14)
    assert flow.c == pytest.approx(h * reach, rel=1e-14)
    assert friction * flow.k + flow.c == pytest.approx(h, rel=1e-14)


def test_noise_of_a_step_is_near_its_mean_given_the_path():
    """E[N W]/h is met exactly. E[N_X H]·12/h is exceeded by a share of x²/120: nothing at strong order 2."""
    nodes, weights = np.polynomial.legendre.leggauss(30)
    left, weights = 0.5 * (nodes + 1.0), 0.5 * weights
    excess = []
    for x in (0.1, 0.2, 0.4):
        flow = ff.free_flow(x, 0.5 / x, 1.0)  # so that √(2γu) = 1
        kernels = (1.0 - np.exp(-x * left)) / x, np.exp(-x * left)
        for kernel, made in zip(kernels, (flow.position, flow.velocity), strict=True):
            assert made[0] == pytest.approx(weights @ kernel, rel=1e-13)
            excess.append(made[1] / (12.0 * weights @ (kernel * (left - 0.5))) - 1.0)
    assert excess[0] == pytest.approx(0.1**2 / 120, rel=0.05)
    assert excess[::2] == pytest.approx(excess[1::2], rel=1e-6)
    assert np.log2(excess[4] / excess[2]) == pytest.approx(2.0, abs=0.1)


@pytest.mark.parametrize("x", RATES)
@pytest.mark.parametrize("tau", TIMES)
def test_position_within_a_step_given_its_end(x, tau):
    from_position, from_velocity, variance = exact_bridge(x, tau)
    got = ff.bridge(x, tau)
    assert got[0] == pytest.approx(float(from_position), abs=4e-15)
    assert got[1] == pytest.approx(float(from_velocity), abs=4e-15)
    if 0.0 < tau < 1.0:
        room = Decimal(tau) * (1 - Decimal(tau))
        assert got[2] == pytest.approx(float(variance / room**3), rel=1e-14)


def test_without_friction_the_bridge_is_a_cubic():
    for tau in TIMES:
        cubic = (3 * tau**2 - 2 * tau**3, tau**3 - tau**2, 1.0 / 3.0)
        assert ff.bridge(1e-13, tau) == pytest.approx(cubic, abs=1e-12)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
@pytest.mark.parametrize("x", RATES)
def test_functions_of_a_random_time(x, dtype, tolerance):
    friction, u, h = x / 0.3, 0.7, 0.3
    at = ff.random_time(friction, u, h)
    tau = torch.tensor(TIMES, dtype=dtype).unsqueeze(-1)
    given = [float(value) for value in tau]
    one, none = torch.ones_like(tau), torch.zeros_like(tau)
    exact = [exact_bridge(x, value) for value in given]
    scale = (2.0 * friction * u) ** 0.5 * h**1.5
    wanted = {
        "reach": [h * float(moments(x, value)[3]) for value in given],
        "decay": [float((-Decimal(x) * Decimal(value)).exp()) for value in given],
        "fall": [h * h * float((Decimal(value) - moments(x, value)[3]) / Decimal(x)) for value in given],
        "position": [float(row[0]) for row in exact],
        "velocity": [h * float(row[1]) for row in exact],
        "deviation": [scale * float(max(row[2], Decimal(0)).sqrt()) for row in exact],
    }
    got = {
        "reach": at.reach(tau),
        "decay": at.decay(tau),
        "fall": at.fall(tau),
        "position": at.noise(tau, one, none, none),
        "velocity": at.noise(tau, none, one, none),
        "deviation": at.noise(tau, none, none, one),
    }
    for name, values in wanted.items():
        assert got[name].dtype == dtype
        largest = max(map(abs, values))
        # Above the range of the fits the variance cancels near both ends, and its root shows half of the digits.
        allowed = 4.0 * tolerance**0.5 if name == "deviation" and not at.fits else tolerance
        np.testing.assert_allclose(got[name].flatten().numpy(), values, rtol=0, atol=allowed * largest, err_msg=name)


def test_fits_have_few_terms():
    sizes = [max(map(len, ff.random_time(x, 1.0, 1.0).fits)) for x in (1e-8, 0.1, 1.0, 4.0)]
    assert sizes == sorted(sizes)
    assert sizes[0] == 9
    assert sizes[-1] <= 19
