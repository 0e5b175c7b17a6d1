"""Bounds are never below the W2 of laws that are known without sampling."""

import math
from functools import partial
from itertools import islice

import pytest
import torch

from torchsrk.experiments.laws import LineMixture, gaussian_errors, line_errors, linear_step
from torchsrk.experiments.linear import gaussian_w2, probe
from torchsrk.experiments.scheme_targets import Quadratic
from torchsrk.integrators import integrator_named
from torchsrk.potentials import GaussianMixture
from torchsrk.sde import UnderdampedLangevin
from torchsrk.theory import (
    Smoothness,
    certified,
    cheng,
    dalalyan_karagulyan,
    dalalyan_karagulyan_hessian,
    durmus_moulines,
    langevin,
    shen_lee,
    theorem_one_cheng,
    theorem_one_em,
    theorem_one_midpoint,
    theorem_one_srk_ld,
    underdamped,
)

OVERDAMPED = {
    "dk": dalalyan_karagulyan,
    "dk-hessian": dalalyan_karagulyan_hessian,
    "dm": durmus_moulines,
    "theorem-1": theorem_one_em,
    "theorem-2": theorem_one_srk_ld,
}
UNDERDAMPED = {
    "cheng": cheng,
    "shen-lee": shen_lee,
    "theorem-1-cheng": theorem_one_cheng,
    "theorem-1-midpoint": theorem_one_midpoint,
}
CURVATURES = torch.tensor([1.0, 1.7, 3.0], dtype=torch.float64)
GAUSSIAN = certified(Quadratic(torch.zeros(3, dtype=torch.float64), CURVATURES))
AWAY = 2.0  # the start, in every coordinate
START = math.sqrt(3 * AWAY**2 + float((1 / CURVATURES).sum()))
STEPS = torch.arange(1, 401)


def overdamped(name, f, start, radius):
    make = OVERDAMPED[name]
    return make(f, start=start, radius=radius) if name.startswith("theorem") else make(f, start=start)


def exact_gaussian(scheme, h):
    """W2 after every step, from a point."""
    modes = (
        gaussian_errors(scheme, step_size=h, curvature=float(c), mean=AWAY, variance=0.0, steps=STEPS)
        for c in CURVATURES
    )
    return sum(modes).sqrt()


@pytest.mark.parametrize("fraction", [1.0, 0.3, 0.03])
@pytest.mark.parametrize("name", OVERDAMPED)
def test_bounds_hold_on_a_gaussian_at_every_step(name, fraction):
    bound = overdamped(name, GAUSSIAN, START, AWAY * math.sqrt(3))
    h = fraction * bound.largest_step
    truth = exact_gaussian(bound.scheme, h)
    assert all(bound.after(int(n), step_size=h) >= float(w) for n, w in zip(STEPS, truth, strict=True))


@pytest.mark.parametrize("fraction", [1.0, 0.1])
@pytest.mark.parametrize("name", UNDERDAMPED)
def test_underdamped_bounds_hold_on_a_gaussian_at_every_step(name, fraction):
    """The midpoint's law is no Gaussian; one of its moments is no farther from the target than it is (Gelbrich)."""
    bound = UNDERDAMPED[name](GAUSSIAN, start=START)
    h = fraction * bound.largest_step
    potential = Quadratic(torch.zeros(3, dtype=torch.float64), CURVATURES)
    sde = UnderdampedLangevin(potential, friction=underdamped.FRICTION, u=1 / GAUSSIAN.smoothness)
    law = probe(sde, integrator_named(bound.scheme), step_size=h, modes=3)
    mean, second = law.trace(torch.full((3,), AWAY, dtype=torch.float64), 2000)
    truth = gaussian_w2(mean, second, CURVATURES.rsqrt())
    assert all(bound.after(n, step_size=h) >= float(w) for n, w in enumerate(truth, start=1))


@pytest.mark.parametrize("name", OVERDAMPED)
def test_bounds_hold_on_the_mixture_at_every_step(name):
    """From N(away, 1) along a and N(0, 1) across it. Theorem 1 uses of a point that it has moments: those of this start
    are at most (away² + d + 4)ⁿ."""
    target = GaussianMixture(torch.full((2,), 0.5, dtype=torch.float64))
    away = 3.0
    bound = overdamped(name, certified(target), start=away + 1.0, radius=math.sqrt(away**2 + 6))
    for h in (0.12, 0.04):
        line = islice(line_errors(LineMixture(math.sqrt(0.5)), bound.scheme, step_size=h, mean=away, deviation=1.0), 60)
        factor, noise = linear_step(bound.scheme, step_size=h, curvature=1.0)
        variance = 1.0
        for n, along in enumerate(line, start=1):
            variance = factor**2 * variance + noise
            truth = math.sqrt(along + (math.sqrt(variance) - 1) ** 2)
            assert bound.after(n, step_size=h) >= truth


@pytest.mark.parametrize(("scheme", "moments"), [("em", langevin.em_moments), ("srk-ld", langevin.srk_ld_moments)])
def test_moments_hold_on_a_gaussian(scheme, moments):
    """Second and fourth moments of the chain, exactly: Var‖x‖² = Σ(2v² + 4μ²v)."""
    for away in (0.0, 0.5, 2.0):
        for h in (0.1, 0.02):
            bound = moments(GAUSSIAN, h, radius=away * math.sqrt(3))
            mean, variance = torch.full((3,), away, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
            steps = [linear_step(scheme, step_size=h, curvature=float(c)) for c in CURVATURES]
            factor, noise = torch.tensor(steps, dtype=torch.float64).T
            for _ in range(300):
                mean, variance = factor * mean, factor**2 * variance + noise
                second = float((mean.square() + variance).sum())
                fourth = second**2 + float((2 * variance.square() + 4 * mean.square() * variance).sum())
                assert second <= bound.second
                assert fourth <= bound.fourth


def test_local_deviation_of_euler_maruyama_on_a_gaussian():
    """D = (e^(-h) - 1 + h)x + √2∫(e^(-(h - s)) - 1)dB on f = x²/2, whose moments are known."""
    f = Smoothness(1, 1.0, 1.0, 0.0, 0.0)
    for x in (0.0, 1.0, 5.0):
        for h in (0.5, 0.1, 0.01):
            moments = langevin.em_moments(f, h, radius=x)
            deviation = langevin.em_deviation(f, moments)
            mean = (math.expm1(-h) + h) * x
            spread = 2 * (h + 2 * math.expm1(-h) - math.expm1(-2 * h) / 2)
            assert mean**2 <= deviation.mean * h**4
            assert mean**2 + spread <= deviation.mean_square * h**3


def test_local_deviation_of_srk_ld_on_a_gaussian():
    """Of its conditional mean (e^(-h) - 1 + h - h²/2)x, and of E‖D‖² by the noise left over beyond W and H."""
    f = Smoothness(1, 1.0, 1.0, 0.0, 0.0)
    for x in (0.0, 1.0, 5.0):
        for h in (0.1, 0.01):
            deviation = langevin.srk_ld_deviation(f, langevin.srk_ld_moments(f, h, radius=x))
            mean = (math.expm1(-h) + h - h**2 / 2) * x
            # ∫e^(-(h - s))dB less (1 - h/2)B_h + hH, H = ∫(½ - s/h)dB: one integral, by Simpson's rule.
            s = torch.linspace(0, h, 2001, dtype=torch.float64)
            gap = torch.exp(s - h) - (1 - h / 2) + h * (0.5 - s / h)
            weights = torch.full_like(s, 2.0)
            weights[1::2], weights[0], weights[-1] = 4.0, 1.0, 1.0
            spread = 2 * float((weights * gap.square()).sum()) * h / 6000
            assert mean**2 <= deviation.mean * h**5
            assert mean**2 + spread <= deviation.mean_square * h**4


@pytest.mark.parametrize("name", ["dk", "dk-hessian", "dm"])
def test_bounds_of_others_do_not_depend_on_units(name):
    f = Smoothness(3, 0.7, 2.0, 0.4, 0.3)
    for c in (0.1, 7.0):
        plain = OVERDAMPED[name](f, start=5.0)
        other = OVERDAMPED[name](f.scaled(c), start=5.0 * c)
        assert other.largest_step == pytest.approx(c**2 * plain.largest_step)
        assert other.after(9, step_size=0.02 * c**2) == pytest.approx(c * plain.after(9, step_size=0.02))
        assert other.plan(0.1 * c).steps == pytest.approx(plain.plan(0.1).steps, abs=2)


@pytest.mark.parametrize("make", [cheng, shen_lee])
def test_underdamped_bounds_do_not_depend_on_units(make):
    """With u = 1/L time has no unit."""
    f = Smoothness(3, 0.7, 2.0)
    for c in (0.1, 7.0):
        plain, other = make(f, start=5.0), make(f.scaled(c), start=5.0 * c)
        assert other.after(9, step_size=0.02) == pytest.approx(c * plain.after(9, step_size=0.02))


def test_theorem_one_depends_on_units_in_its_step_alone():
    from torchsrk.theory import LocalDeviation, master

    c, h, alpha, smooth, first, second = 3.0, 0.01, 0.5, 2.0, 4.0, 6.0
    bias = partial(master.bias, contraction=alpha, drift_lipschitz=smooth)
    scaled = partial(master.bias, contraction=alpha / c**2, drift_lipschitz=smooth / c**2)
    # λh^(2p) is a squared length, and h is c² times as large.
    other = LocalDeviation(2.0, 2.5, first * c**2 / c**8, second * c**2 / c**10)
    assert scaled(h * c**2, other) == pytest.approx(c * bias(h, LocalDeviation(2.0, 2.5, first, second)))
    plain = master.largest_step(contraction=alpha, drift_lipschitz=smooth)
    assert master.largest_step(contraction=alpha / c**2, drift_lipschitz=smooth / c**2) != pytest.approx(c**2 * plain)
