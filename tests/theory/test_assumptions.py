"""Estimates, checks of assumptions, plans and what is refused."""

import math
from dataclasses import replace

import pytest
import torch

from torchsrk.experiments.scheme_targets import Quadratic
from torchsrk.potentials import Banana, GaussianMixture, LogisticRegression, MinibatchPotential, NonConvex, Potential
from torchsrk.sde import ItoDiffusion, Langevin
from torchsrk.theory import (
    DiffusionConstants,
    LocalDeviation,
    Smoothness,
    certified,
    check_dissipativity,
    cheng,
    cheng_stated,
    dalalyan_karagulyan,
    dalalyan_karagulyan_hessian,
    estimated,
    measured_contraction,
    non_convex_constants,
    theorem_one,
    theorem_one_em,
    theorem_one_em_ito,
    theorem_one_midpoint,
    theorem_one_srk_id,
    theorem_one_srk_ld,
)

MIXTURE = GaussianMixture(torch.tensor([0.6, 0.3], dtype=torch.float64))
REGRESSION = LogisticRegression.synthetic(30, 2, seed=0, dtype=torch.float64)
GAUSSIAN = Quadratic(torch.zeros(3, dtype=torch.float64), torch.tensor([0.5, 1.0, 4.0], dtype=torch.float64))
POINTS = 2.0 * torch.randn(400, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("potential", [MIXTURE, REGRESSION, GAUSSIAN], ids=["mixture", "regression", "gaussian"])
def test_estimates_do_not_contradict_what_is_certified(potential):
    proof, seen = certified(potential), estimated(potential, POINTS[:100, : potential.dim], seed=1, iterations=15)
    assert seen.strong_convexity >= proof.strong_convexity * (1 - 1e-9)
    assert seen.smoothness <= proof.smoothness * (1 + 1e-9)
    assert seen.hessian() <= proof.hessian() + 1e-9
    assert seen.third() <= proof.third() + 1e-9


def test_estimates_find_what_is_certified_of_the_mixture():
    """Its suprema are reached near the origin, so that many particles there see nearly all of them."""
    proof, seen = certified(MIXTURE), estimated(MIXTURE, 0.7 * POINTS[:, :2], seed=1, iterations=10)
    for name in ("strong_convexity", "smoothness", "hessian_lipschitz", "third_derivative_lipschitz"):
        assert getattr(seen, name) == pytest.approx(getattr(proof, name), rel=0.01)


def test_estimates_on_a_gaussian():
    seen = estimated(GAUSSIAN, POINTS[:20], seed=1)
    assert (seen.strong_convexity, seen.smoothness) == (pytest.approx(0.5, rel=1e-3), pytest.approx(4.0))
    assert seen.hessian_lipschitz == seen.third_derivative_lipschitz == 0.0


class RootOfG(Potential):
    """√g of the non-convex target: its derivatives are those of a column of σ."""

    def forward(self, x):
        return (2.0 + x.square().sum(-1)) ** 0.25 + 5.0 * x.square().sum(-1)


def test_diffusion_constants_of_the_non_convex_target_are_not_seen_to_be_passed():
    c = non_convex_constants(NonConvex(beta=2.0, gamma=0.5, dim=3))
    seen = estimated(RootOfG(), POINTS, seed=1, iterations=15)
    assert seen.smoothness - 10.0 <= c.diffusion[1]
    assert 0.5 * c.diffusion[2] <= seen.hessian() <= c.diffusion[2]
    scale = NonConvex(beta=2.0, gamma=0.5, dim=3).scale
    slope = torch.func.vmap(torch.func.grad(scale))(POINTS).norm(dim=-1).max()
    assert 0.95 * c.diffusion[0] <= float(slope) <= c.diffusion[0]


@pytest.mark.parametrize(("beta", "gamma", "dim"), [(0.33, 0.5, 1), (2.0, 0.5, 3), (4.0, 0.2, 2), (1.0, 1.5, 2)])
def test_certified_dissipativity_is_not_refuted_and_is_nearly_the_best(beta, gamma, dim):
    target = NonConvex(beta=beta, gamma=gamma, dim=dim)
    claimed = non_convex_constants(target).contraction
    sde = ItoDiffusion(target, diffusion=target.scale, noise_type="isotropic")
    x = POINTS[:, :dim] * torch.linspace(0.01, 3.0, len(POINTS), dtype=torch.float64).unsqueeze(-1)
    for distance in (1e-3, 0.3, 3.0):
        y = x + distance * POINTS.flip(0)[:, :dim]
        check = check_dissipativity(sde, x, y, claimed=claimed)
        assert not check.refuted
        assert "no proof" in str(check)
        assert claimed >= target.dissipativity
    assert check_dissipativity(sde, x, y, claimed=0.6 + max(0.0, gamma - 0.5)).refuted


def test_a_false_claim_is_refuted():
    sde = Langevin(Banana())
    check = check_dissipativity(sde, POINTS[:200, :2], POINTS[200:, :2], claimed=0.1)
    assert check.refuted
    assert "refuted" in str(check)


def test_contraction_on_a_gaussian_is_that_of_the_linear_map():
    x0 = torch.zeros(20, 3, dtype=torch.float64)
    y0 = x0 + torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    seen = measured_contraction(Langevin(GAUSSIAN), x0, y0, step_size=0.01, num_steps=50, seed=3)
    assert torch.allclose(seen.distances, 0.995 ** torch.arange(1, 51, dtype=torch.float64))
    assert torch.allclose(seen.rates, torch.full((50,), -math.log(0.995) / 0.01, dtype=torch.float64))


def test_contraction_is_at_least_the_constant_that_is_used():
    target = NonConvex(beta=0.33, gamma=0.5, dim=1)
    sde = ItoDiffusion(target, diffusion=target.scale, noise_type="isotropic")
    x0 = torch.linspace(-2, 2, 2000, dtype=torch.float64).unsqueeze(-1)
    seen = measured_contraction(sde, x0, x0.flip(0) + 0.1, step_size=0.01, num_steps=100, seed=3)
    assert float(seen.rates[-1]) > non_convex_constants(target).contraction


def test_a_plan_is_kept_and_no_neighbour_is_shorter():
    f = Smoothness(4, 1.0, 4.0, 0.5)
    for make in (dalalyan_karagulyan, dalalyan_karagulyan_hessian):
        bound = make(f, start=3.0)
        plan = bound.plan(0.1)
        assert bound.after(plan.steps, step_size=plan.step_size) <= 0.1
        assert bound.after(plan.steps - 1, step_size=plan.step_size) > 0.1
        for factor in (0.8, 1.1):
            other = bound.steps_for(0.1, step_size=factor * plan.step_size)
            assert other is None or other >= plan.steps
    assert bound.plan(1e9).steps == 0
    assert bound.steps_for(1e-9, step_size=0.1) is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Smoothness(0, 1.0, 1.0), "dim is a positive integer; got 0"),
        (lambda: Smoothness(1, 2.0, 1.0), "strong_convexity ≤ smoothness is needed; got 2.0 and 1.0"),
        (lambda: Smoothness(1, math.nan, 1.0), "got nan"),
        (lambda: Smoothness(1, 1.0, True), "got 1.0 and True"),
        (lambda: Smoothness(1, 1.0, 1.0, -1.0), "hessian_lipschitz is a number from 0 on, or None; got -1.0"),
        (lambda: certified(Banana()), "not known to be strongly convex"),
        (lambda: certified(GaussianMixture(torch.tensor([2.0]))), "not known to be strongly convex"),
        (lambda: LocalDeviation(1.0, 1.0, 1.0, 1.0), "p₂ ≥ p₁ \\+ ½; got"),
        (lambda: LocalDeviation(1.0, 1.5, -1.0, 1.0), "λ₁ and λ₂ are numbers from 0 on; got -1.0"),
        (lambda: LocalDeviation(1.0, 1.5, None, 1.0), "λ₁ and λ₂ are numbers from 0 on; got None"),
        (lambda: LocalDeviation(math.nan, 1.5, 1.0, 1.0), "mean_square_order is a number from 0 on; got nan"),
        (lambda: Smoothness(2, 1.0, 2.0).scaled(0.0), "c is a positive number; got 0.0"),
        (lambda: certified(MIXTURE, dim=5), "lives in dimension 2; got dim=5"),
        (lambda: dalalyan_karagulyan(UNIT, start=-1.0), "start is a number from 0 on; got -1.0"),
        (lambda: cheng(UNIT, start=math.nan), "start is a number from 0 on; got nan"),
        (lambda: cheng_stated(UNIT, radius=-1.0), "radius is a number from 0 on; got -1.0"),
        (lambda: theorem_one_midpoint(UNIT, start=math.inf), "start is a number from 0 on; got inf"),
        (lambda: theorem_one_em(UNIT, start=1.0, radius=-1.0), "radius is a number from 0 on; got -1.0"),
        (lambda: theorem_one_srk_ld(UNIT, start=1.0, radius=math.nan), "radius is a number from 0 on; got nan"),
        (lambda: theorem_one_em_ito(HILLS, start=1.0, radius=True), "radius is a number from 0 on; got True"),
        (lambda: theorem_one_srk_id(HILLS, start=1.0, radius="a"), "radius is a number from 0 on; got 'a'"),
        (lambda: replace(HILLS, dim=0), "dim is a positive integer; got 0"),
        (lambda: replace(HILLS, drift=(0.5, math.nan)), "drift\\[1\\] is a number from 0 on; got nan"),
        (lambda: replace(HILLS, diffusion=(1.0, 2.0)), "diffusion is a tuple of 3 Lipschitz constants"),
        (lambda: replace(HILLS, growth=-1.0), "growth is a number from 0 on; got -1.0"),
        (lambda: replace(HILLS, contraction=0.6), "contracts faster than its drift's Lipschitz constant; got 0.6"),
        (lambda: by_hand(contraction=0.0), "contraction is a positive number; got 0.0"),
        (lambda: by_hand(drift_lipschitz=-1.0), "drift_lipschitz is a number from 0 on; got -1.0"),
        (lambda: by_hand(contraction=3.0), "contracts faster"),
        (lambda: by_hand(own_step=math.nan), "own_step is a positive number; got nan"),
        (lambda: by_hand(gradients_per_step=0), "gradients_per_step is a positive integer; got 0"),
        (lambda: non_convex_constants(NonConvex(beta=0.01, gamma=0.5, dim=3)), "uniformly dissipative diffusion"),
        (lambda: theorem_one_srk_ld(Smoothness(1, 1.0, 1.0), start=1.0, radius=1.0), "third_derivative_lipschitz is"),
        (lambda: dalalyan_karagulyan_hessian(Smoothness(1, 1.0, 1.0), start=1.0), "hessian_lipschitz is not known"),
        (lambda: BOUND.after(3, step_size=5.0), "proven for step sizes up to 1; got 5"),
        (lambda: BOUND.after(-1, step_size=0.5), "steps is a whole number from 0 on; got -1"),
        (lambda: check_dissipativity(Langevin(MIXTURE), *PAIR, claimed=math.nan), "claimed is a number, the α"),
        (lambda: check_dissipativity(Langevin(MIXTURE), PAIR[0], PAIR[1] * math.inf, claimed=1.0), "not finite"),
        (lambda: BOUND.after(1, step_size=math.nan), "step_size is a positive number; got nan"),
        (lambda: BOUND.plan(0.0), "epsilon is a positive number, the W2 to be reached; got 0.0"),
        (lambda: BOUND.plan(math.nan), "epsilon is a positive number"),
        (lambda: estimated(Banana(), POINTS[:, :2], seed=0, iterations=5), "least curvature is about"),
        (lambda: estimated(MIXTURE, POINTS[0], seed=0), "particles are \\(particles, dim\\) floats"),
        (lambda: estimated(MIXTURE, POINTS * math.inf, seed=0), "particles are finite"),
        (lambda: estimated(MIXTURE, POINTS[:, :2], seed=0, iterations=0), "iterations is a positive integer; got 0"),
        (lambda: check_dissipativity(Langevin(MIXTURE), POINTS[:, :2], POINTS, claimed=1.0), "of one shape"),
        (lambda: check_dissipativity(Langevin(MIXTURE), POINTS[:, :2], POINTS[:, :2], claimed=1.0), "differ in every"),
        (
            lambda: measured_contraction(
                Langevin(MIXTURE), POINTS[:, :2], POINTS[:, :2], step_size=0.1, num_steps=2, seed=0
            ),
            "not the same",
        ),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()


UNIT = Smoothness(1, 1.0, 1.0, 1.0, 1.0)
BOUND = dalalyan_karagulyan(UNIT, start=1.0)
HILLS = non_convex_constants(NonConvex(beta=2.0, gamma=0.5, dim=2))
PAIR = POINTS[:5, :2], POINTS[5:10, :2]


def by_hand(**changes):
    numbers = {"contraction": 1.0, "drift_lipschitz": 2.0, "start": 3.0} | changes
    return theorem_one(LocalDeviation(1.5, 2.0, 3.0, 5.0), **numbers)


def test_minibatches_have_no_derivative():
    data = torch.zeros(4, 1)
    potential = MinibatchPotential(lambda x, y: (x.unsqueeze(-2) - y).square().sum(-1), data, batch_size=2, seed=0)
    with pytest.raises(ValueError, match="draws minibatches"):
        estimated(potential, torch.zeros(3, 1), seed=0)


def test_constants_need_dissipativity():
    with pytest.raises(ValueError, match="uniformly dissipative"):
        DiffusionConstants(1, 1, -0.1, 0.5, 1.0, (1.0, 1.0), (1.0, 1.0, 1.0), 1.0, 1.0, 1.0)
