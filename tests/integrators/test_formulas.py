"""Schemes against their formulas written out another way, and what they do at the edges."""

import math

import pytest
import torch

from tests.problems import mixture
from torchsrk import MALA, SDE, SRA1, SRKLD, Langevin, LeimkuhlerMatthews, Ozaki, ShARK, Tamed
from torchsrk.brownian import BrownianPath, FreshNoise, Increment, start_normals
from torchsrk.integrators import integrator_named
from torchsrk.potentials import FunctionPotential


def drawn(scheme, shape, h, seed=2):
    return BrownianPath(shape, num_steps=4, seed=seed, t1=h).increment(0, 0.0, h, scheme.needs)


def quadratic(matrix):
    return FunctionPotential(lambda x: 0.5 * torch.einsum("...i,ij,...j->...", x, matrix, x))


def quartic():
    return Langevin(FunctionPotential(lambda x: 0.25 * x.pow(4).sum(-1)))


def chain(scheme, sde, x, h, steps):
    """States from x on, (steps + 1, ..., width)."""
    noise = FreshNoise(3, x.shape, dtype=x.dtype, device=x.device)
    with torch.no_grad():
        states = [scheme.init(sde, 0.0, x, h, start_normals(3))]
        for number in range(steps):
            increment = noise.increment(number, 0.0, h, scheme.required(sde))
            states.append(scheme.step(sde, 0.0, states[-1], increment))
    return torch.stack(states)


# A step of a drift -λx is a x + w σW + k σH: (a, w, k) in u = hλ, worked out from the formulas.
LINEAR = {
    "em": lambda u: (1 - u, 1.0, 0.0),
    "lm": lambda u: (1 - u, 1 - u / 2, 0.0),
    "srk-ld": lambda u: (1 - u + u**2 / 2, 1 - u / 2, -u),
    "sra1": lambda u: (1 - u + u**2 / 2, 1 - u / 2, -u),
    "shark": lambda u: (1 - u + u**2 / 2, 1 - u / 2, -u * (1 - u / 2)),
}


@pytest.mark.parametrize("name", LINEAR)
def test_a_step_of_a_linear_drift(name):
    sigma, rate, h = torch.linspace(-1, 1, 12).view(3, 4), 2.0, 0.3
    sde, scheme = SDE(lambda x: -rate * x, sigma, "additive"), integrator_named(name)
    x, given = torch.linspace(-1.0, 1.0, 15).view(5, 3), drawn(SRKLD(), (5, 4), h)
    a, w, k = LINEAR[name](rate * h)
    torch.testing.assert_close(scheme.step(sde, 0.0, x, given), a * x + (w * given.W + k * given.H) @ sigma.T)


@pytest.mark.parametrize(("scheme", "later"), [(SRA1(), 0.75), (ShARK(), 5.0 / 6.0), (SRKLD(), 1.0)], ids=str)
def test_a_time_dependent_drift_is_met_at_these_times(scheme, later):
    times = []

    def drift(t, x):
        times.append(t)
        return -x

    sde = SDE(drift, 1.0, "additive", time_dependent=True)
    scheme.step(sde, 2.0, torch.zeros(4, 1), drawn(scheme, (4, 1), 0.6))
    assert set(times) == {2.0, 2.0 + later * 0.6}


def test_leimkuhler_matthews_reports_where_the_next_step_takes_its_gradient():
    points = []

    def energy(x):
        points.append(x.detach())
        return x.pow(4).sum(-1)

    sde, x = Langevin(FunctionPotential(energy)), torch.linspace(-1.0, 1.0, 6).view(2, 3)
    given = drawn(LeimkuhlerMatthews(), (2, 3), 0.1)
    LeimkuhlerMatthews().step(sde, 0.0, x, given)
    torch.testing.assert_close(LeimkuhlerMatthews().position(sde, 0.0, x, given), points[0])


def test_ozaki_makes_the_exact_step_of_a_linear_drift():
    """With curvatures of either sign, of 0 and near it, along directions that are no axes."""
    h, curvatures = 0.4, torch.tensor([3.0, 1e-13, 0.0, -1.5])
    turn = torch.linalg.qr(torch.linspace(-1.0, 2.0, 16).sin().view(4, 4)).Q
    matrix = turn @ curvatures.diag() @ turn.T
    x, given = torch.linspace(-1.0, 1.0, 20).view(5, 4), drawn(Ozaki(), (5, 4), h)
    grid = torch.linspace(0.0, 2.0 * h, 4001)
    spread = torch.trapezoid(torch.exp(-curvatures.unsqueeze(-1) * grid), grid).sqrt()  # ∫2e^(-2λs)ds to h, 2s put as s
    expected = x @ torch.linalg.matrix_exp(-h * matrix) + given.W / math.sqrt(h) @ (turn * spread @ turn.T)
    moved = Ozaki().step(Langevin(quadratic(matrix)), 0.0, x, given)
    torch.testing.assert_close(moved, expected, rtol=1e-6, atol=1e-6)


def test_ozaki_leaves_a_curvature_that_is_not_finite_to_the_run():
    sde, x = Langevin(FunctionPotential(lambda x: x.abs().pow(1.5).sum(-1))), torch.tensor([[0.0, 1.0], [1.0, 2.0]])
    moved = Ozaki().step(sde, 0.0, x, drawn(Ozaki(), (2, 2), 0.1))
    assert moved.isfinite().all(-1).tolist() == [False, True]


def test_tamed_is_the_ito_taylor_step_up_to_the_third_power_of_h():
    """f = ¼Σx⁴ + ½(Σx)²: ∇f = x³ + Σx, ∇²f = 3 diag(x²) + 11ᵀ, ∇Δf = 6x."""
    sde = Langevin(FunctionPotential(lambda x: 0.25 * x.pow(4).sum(-1) + 0.5 * x.sum(-1).square()))
    x, gaps = torch.linspace(-1.5, 1.5, 12).view(4, 3), []
    for h in (1e-2, 1e-3):
        W, H = (math.sqrt(h) * torch.linspace(-a, a, 12).view(4, 3).sin() for a in (2.0, 0.5))
        gradient = x.pow(3) + x.sum(-1, keepdim=True)
        curvature = torch.diag_embed(3.0 * x.square()) + 1.0
        curved, swayed = ((curvature @ v.unsqueeze(-1)).squeeze(-1) for v in (gradient, W / 2 + H))
        taylor = x - h * gradient + h**2 / 2 * (curved - 6.0 * x) + math.sqrt(2.0) * (W - h * swayed)
        gaps.append((Tamed().step(sde, 0.0, x, Increment(h, W, H)) - taylor).abs().max().item())
    assert 0 < gaps[0] < 1e-5
    assert math.log10(gaps[0] / gaps[1]) == pytest.approx(3.0, abs=0.1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("start", [10.0, 1e4])
def test_tamed_comes_back_where_srk_ld_explodes(start, dtype):
    h, x = 0.1, torch.full((50, 2), start, dtype=dtype)
    assert not chain(SRKLD(), quartic(), x, h, 20)[-1].isfinite().any()
    states = chain(Tamed(), quartic(), x, h, 200)
    distances = states.norm(dim=-1)
    assert states.isfinite().all()
    assert (distances[100] < distances[0]).all()
    if start == 10.0:
        assert distances[-1].max() < 4.0


def test_tamed_knows_no_unit_of_length():
    x, c, h = torch.linspace(-3.0, 3.0, 10).view(5, 2), 1000.0, 0.2
    given = drawn(Tamed(), (5, 2), h)
    wide = Langevin(FunctionPotential(lambda x: 0.25 * (x / c).pow(4).sum(-1)))
    scaled = Tamed().step(wide, 0.0, c * x, Increment(c**2 * h, c * given.W, c * given.H))
    torch.testing.assert_close(scaled / c, Tamed().step(quartic(), 0.0, x, given))


def test_mala_accepts_by_the_ratio_of_densities():
    """log π(y)q(y→x) - log π(x)q(x→y), literally, is where a uniform number makes the difference."""
    potential, h = mixture(3), 0.7
    sde, x = Langevin(potential), torch.linspace(-2.0, 2.0, 30).view(10, 3)
    state, given = MALA().init(sde, 0.0, x, h, start_normals(0)), drawn(MALA(), (10, 3), h)
    y = x - h * potential.grad(x) + math.sqrt(2.0) * given.W

    def log_proposal(of, at):
        return -(of - at + h * potential.grad(at)).square().sum(-1, keepdim=True) / (4.0 * h)

    log_ratio = (potential(x) - potential(y)).unsqueeze(-1) + log_proposal(x, y) - log_proposal(y, x)
    assert log_ratio.min() < -0.1
    for shift, expected in ((-1e-9, y), (1e-9, x)):
        u = (log_ratio + shift).exp()
        moved = MALA().step(sde, 0.0, state, Increment(h, given.W, u=u))
        torch.testing.assert_close(MALA().position(sde, 0.0, moved, None), expected)
        torch.testing.assert_close(moved[..., 3:6], potential.grad(expected))
        torch.testing.assert_close(moved[..., 6], potential(expected))
        assert (moved[..., 7] == float(expected is y)).all()


@pytest.mark.parametrize("beyond", [math.inf, -math.inf, math.nan])
def test_mala_stays_where_a_proposals_energy_is_not_finite(beyond):
    sde = Langevin(FunctionPotential(lambda x: torch.where(x[..., 0] > 0.5, beyond, 0.5 * x.square().sum(-1))))
    states = chain(MALA(), sde, torch.zeros(200, 2), 0.5, 50)
    assert states.isfinite().all()
    assert states[..., 0].max() <= 0.5
    assert states[-1, :, -1].min() > 0


def test_mala_stays_finite_from_far_out():
    """A proposal from here has an energy beyond float32."""
    states = chain(MALA(), quartic(), torch.full((20, 2), 1e8, dtype=torch.float32), 0.5, 5)
    assert states.isfinite().all()
    assert torch.equal(states[-1], states[0])


def test_mala_tells_its_acceptance():
    sde, steps = Langevin(mixture(3)), 50
    states = chain(MALA(), sde, mixture(3).sample((400,), seed=1), 0.6, steps)
    moves = (states[1:, :, :3] != states[:-1, :, :3]).any(-1).double().mean()
    accepted = MALA().tallies(states)["acceptance"].mean(-1)
    told = float(accepted[-1]) / steps
    assert told == pytest.approx(float(moves))
    assert 0.5 < told < 0.95
    assert float(accepted[-1] - accepted[25]) / 25 == pytest.approx(told, abs=0.05)
