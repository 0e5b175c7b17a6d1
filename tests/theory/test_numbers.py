"""Every constant and bound against numbers worked out by hand."""

import math

import pytest

from torchsrk.potentials import NonConvex
from torchsrk.theory import (
    DiffusionConstants,
    LocalDeviation,
    Smoothness,
    cheng,
    cheng_stated,
    dalalyan_karagulyan,
    dalalyan_karagulyan_hessian,
    durmus_moulines,
    ito,
    langevin,
    master,
    non_convex_constants,
    printed,
    shen_lee,
    theorem_one,
    underdamped,
)
from torchsrk.theory.recursion import fixed_point_bound

UNIT = Smoothness(1, 1.0, 1.0, 1.0, 1.0)
ONES = langevin.Moments(1.0, 1.0, 1.0)
PLAIN = DiffusionConstants(
    dim=2,
    brownian=2,
    contraction=0.5,
    dissipativity=0.5,
    excess=1.0,
    drift=(0.5, 2.0),
    diffusion=(1.0, 1.0, 1.0),
    diffusion_frobenius=2.0,
    growth=1.0,
    growth_frobenius=1.0,
)


def near(value):
    return pytest.approx(value, rel=1e-5)


def test_theorem_one():
    deviation = LocalDeviation(1.5, 2.0, 3.0, 5.0)
    # 8(16·2·3 + 5)/1 + 2·3/1 = 814.
    assert master.bias(0.04, deviation, contraction=1.0, drift_lipschitz=2.0) == near(math.sqrt(814) * 0.04)
    assert math.exp(-10 * master.decay(0.1, contraction=1.0)) == near(0.95**5)
    assert master.largest_step(contraction=1.0, drift_lipschitz=2.0) == near(1 / 32)
    assert master.largest_step(contraction=4.0, drift_lipschitz=0.1, diffusion_lipschitz=0.1) == near(1 / 8)
    assert master.largest_step(contraction=0.1, drift_lipschitz=0.1) == 1.0


def test_theorem_one_for_numbers_given_by_hand():
    """The same bound as by its parts, for one deviation and for one that changes with h."""
    deviation = LocalDeviation(1.5, 2.0, 3.0, 5.0)
    numbers = {"contraction": 1.0, "drift_lipschitz": 2.0, "start": 7.0}
    bound = theorem_one(deviation, **numbers)
    assert (bound.largest_step, bound.start, bound.gradients_per_step) == (near(1 / 32), 7.0, 1)
    assert bound.after(10, step_size=0.02) == near(7 * 0.99**5 + math.sqrt(814) * 0.02)
    changing = theorem_one(lambda h: LocalDeviation(1.5, 2.0, 3.0 * h / 0.02, 5.0), **numbers)
    assert changing.bias(0.02) == near(bound.bias(0.02))
    assert changing.bias(0.01) < bound.bias(0.01)
    assert theorem_one(deviation, **numbers, own_step=0.01).largest_step == 0.01
    with_noise = theorem_one(deviation, **numbers, diffusion_lipschitz=2.0)
    assert with_noise.largest_step == near(1 / 64)
    plan = bound.plan(0.1)
    assert bound.after(plan.steps, step_size=plan.step_size) <= 0.1
    assert theorem_one(LocalDeviation(0.5, 1.0, 3.0, 5.0), **numbers).plan(0.1) is None  # a bias that never falls


def test_langevin_constants():
    assert langevin.continuous_second_moment(UNIT, ONES) == near(3.0)
    assert langevin.continuous_fourth_moment(UNIT, ONES) == near(19.0)
    assert langevin.constant_c0(UNIT, ONES) == near(12.0)
    assert langevin.constant_c1(UNIT, ONES) == near(256.0)
    # √(256·20)·2 = 143.1084.
    assert langevin.constant_c2(UNIT, ONES) == near(8 * 143.1084 + 8 * 2 + 116 + 90 + 96)
    assert langevin.constant_c3(UNIT, ONES) == near(4 * 143.1084 + 12 + 0.5 + 8 * (2 + 73 * 125))
    em = langevin.em_deviation(UNIT, ONES)
    assert (em.mean_square, em.mean) == (near(6.0), near((math.sqrt(3) + 1) ** 2 / 4))


def test_langevin_moments():
    f = Smoothness(2, 1.0, 2.0)
    # Euler-Maruyama at h = ½: ρ = ½, and S² = 2D·h/(1 - ρ²) = (4/3)D.
    moments = langevin.em_moments(f, 0.5, radius=0.0)
    assert (moments.second, moments.fourth, moments.sixth) == (near(8 / 3), near((16 / 3) ** 2), near(8.0**3))
    assert langevin.em_moments(f, 0.5, radius=10.0).fourth == near(1e4)
    # SRK-LD at h = ¼: ρ = 1 - ¼ + ⅛ = 7/8, (1 - ρ²)/h = 15/16, q√h = 0.888069·2·½.
    unit = (0.888069 + math.sqrt(0.888069**2 + 15 / 8)) / (15 / 16)
    assert langevin.srk_ld_moments(f, 0.25, radius=0.0).second == near(2 * unit**2)


def test_diffusion_constants():
    # 𝒰₂' = 1 + 2 = 3; D₀ = 2(¼·4 + 1 + √3).
    d0 = 2 * (2 + math.sqrt(3))
    assert ito.constant_d0(PLAIN, 1.0) == near(d0)
    # 𝒰₄': the root of ½s² = 2s + 3 is 2 + √10.
    root = 2 + math.sqrt(10)
    assert ito.continuous_fourth_moment(PLAIN, 1.0) == near(root**4)
    d1 = 8 * (0.0625 * (1 + root**4) + 36 * 4)
    assert ito.constant_d1(PLAIN, 1.0, 1.0) == near(d1)
    d3 = 16 * d0 / 4 + 64 / 3 * math.sqrt(d1) * (1 + math.sqrt(3)) + 64 / 3 * d0 + 32 + 128 + 2**7 * 81 * 4 * 2
    assert ito.constant_d3(PLAIN, 1.0, 1.0) == near(d3)
    d4 = 4 / 3 * 0.25 * 0.25 * 4 + 1 / 3 * 4 * 4 * 4 + 4 * 243 * 15625 * 4 * math.sqrt(2) * 2
    assert ito.constant_d4(PLAIN, 1.0, 1.0) == near(d4)
    assert ito.constant_e0(PLAIN, 1.0) == near(d0)
    assert ito.constant_e1(PLAIN, 1.0) == near(4.25 * d0)
    assert ito.constant_e2(PLAIN, 1.0) == near(d0 / 8)
    em = ito.em_deviation(PLAIN, 1.0)
    assert (em.mean_square, em.mean) == (near(4.25 * d0), near(d0 / 8))
    assert ito.em_second_moment(PLAIN, radius=2.0) == near(9.0)


def test_non_convex_constants():
    c = non_convex_constants(NonConvex(beta=1.0, gamma=0.5, dim=2))
    assert c.diffusion == (near(0.3102016), near(0.5), near(0.7897478))
    assert c.contraction == near(0.5 - 0.3102016**2)
    assert (c.drift, c.excess, c.growth_frobenius) == ((0.5, 0.0), near(4.0), near(math.sqrt(2)))


def test_bounds_of_others():
    f = Smoothness(4, 1.0, 4.0, 0.5)
    assert dalalyan_karagulyan(f, start=3.0).after(100, step_size=0.01) == near(3 * 0.99**100 + 1.65 * 4 * 0.2)
    hessian = dalalyan_karagulyan_hessian(f, start=3.0)
    assert hessian.after(100, step_size=0.01) == near(3 * 0.99**100 + 0.01 * (1.0 + 2.2 * 8 * 2))
    # κ' = 1.6: W2² ≤ 2·0.992ⁿ·9 + 16·4·10⁻⁴(0.625 + 0.01)(2 + 0.16 + 0.0002667)/0.008.
    squared = 64e-4 * 0.635 * 2.1602667 / 0.008
    expected = math.sqrt(2) * 0.992**50 * 3 + math.sqrt(squared)
    assert durmus_moulines(f, start=3.0).after(100, step_size=0.01) == near(expected)


def test_underdamped_deviations():
    assert underdamped.cheng_deviation(1.0) == near(math.hypot(0.2581989, 0.2581989 + 0.5773503))
    # In (x, v), as Cheng et al. have it: √(2/5)h² at h = 1.
    assert math.hypot(underdamped._V, underdamped._X) == near(math.sqrt(0.4))
    assert underdamped.midpoint_mean(1.0) == near(math.hypot(0.01290994, 0.01290994 + 0.06454972))
    travelled = 0.5773503 * 1.2581989
    assert underdamped.midpoint_spread(1.0) == near(
        math.hypot(travelled + 0.2886751, 2 * travelled + 0.2886751 + 0.5773503)
    )


def test_cheng_as_stated():
    """Their step size and number of steps give ε; the argument here is nowhere weaker."""
    f = Smoothness(10, 1.0, 10.0)
    bound, size = cheng_stated(f, radius=math.sqrt(90)), 10.0
    for epsilon in (1.0, 0.1):
        h = epsilon / (104 * 10 * size)
        assert bound.bias(h) <= epsilon / 2
        steps = math.ceil(208 * 100 * size / epsilon * math.log(24 * size / epsilon))
        assert bound.after(steps, step_size=h) <= epsilon
        assert bound.plan(epsilon).steps <= steps
        assert cheng(f, start=bound.start).plan(epsilon).steps < bound.plan(epsilon).steps / 50


def test_underdamped_bounds():
    f = Smoothness(2, 1.0, 2.0)
    # κ = 2, √(d/L) = 1, c = 0.0058037 at h = 0.1.
    c = math.hypot(2.581989e-4, 2.581989e-4 + 5.773503e-3)
    lost = 1 - math.exp(-0.1 / 4) - math.sqrt(2) * c
    expected = math.sqrt(2) * 5 * (1 - lost) ** 20 + c / lost
    assert cheng(f, start=5.0).after(20, step_size=0.1) == near(expected)
    b, s = underdamped.midpoint_mean(0.02), underdamped.midpoint_spread(0.02)
    lost = 1 - math.exp(-0.02 / 4) - math.sqrt(2) * (b + s)
    expected = b / lost + s / math.sqrt(lost * (2 - lost - 2 * math.sqrt(2) * s))
    assert shen_lee(f, start=0.0).after(0, step_size=0.02) == near(expected)


def test_fixed_point_bound_holds_for_the_recursion():
    for r, b, c, s in ((0.9, 0.1, 0.3, 0.0), (0.5, 0.0, 1.0, 0.2), (0.99, 0.01, 0.2, 0.001)):
        x, lost = 7.0, 1 - r - s
        for n in range(1, 2000):
            x = math.hypot(r * x + b, c) + s * x
            assert x <= ((1 - lost) ** n * 7.0 + fixed_point_bound(lost, b, c, drag=s)) * (1 + 1e-12)
    # Without a mean it is reached.
    assert fixed_point_bound(0.3, 0.0, 1.0, drag=0.2) == near(1 / math.sqrt(0.3 * 1.3))
    assert fixed_point_bound(0.0, 1.0, 1.0) == math.inf


def test_constants_as_printed():
    f = Smoothness(1, 1.0, 1.0, 1.0, 1.0)
    assert (printed.n1(f), printed.n2(f), printed.n3(f)) == (12.0, 16.0, near(4 * math.sqrt(2)))
    assert printed.n4(f) == near(2 * math.sqrt(2) * (1 + math.sqrt(3)))
    assert printed.n5(f) == 7.0
    assert printed.n6(f) == near((32 + 16 + 56 + 128 + 8 * printed.n4(f)) / 3)
    assert printed.chi_moment(3, 2) == 15.0
    # p = 2n = 4 in N₈ of n = 2: 2⁸·3²·√1.5.
    assert printed.n8(f, 2) == near(256 * 9 * math.sqrt(1.5))
    assert printed.n9(f, 1) == near(math.sqrt(96 + 48 + 1))
    assert printed.n11(f, 2) == near(8 * 36 * (1 + 256 * 9 * math.sqrt(1.5)))
    assert printed.n12(f, 2) == near(288 * (printed.n8(f, 2) + printed.n10(f, 2)))
    assert printed.n7(f, 2, 0.0) == near((4 + 14 + 8) * printed.moment(f, 1, 0.0))
    assert printed.srk_ld_largest_step(f) == near((9 / (8 * printed.n11(f, 3))) ** 2)
    assert printed.m1(PLAIN) == near(0.25 + 72 * 2 * (1 + 1 + 0.5 + 1))
    assert printed.m2(PLAIN) == near(2 * (1 + 0.0625 + 72 * 3.5) / 0.5)
    assert printed.m3(PLAIN, 1) == near(2**22 * 10 * 0.25 * math.sqrt(2) * 2)
    assert printed.srk_id_largest_step(PLAIN) == near((0.5 / printed.m3(PLAIN, 2)) ** 2)
