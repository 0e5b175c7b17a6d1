"""SDEs: drifts that are right, coefficients in every form, and a place among nn.Modules and in torchsde."""

import copy
import io

import pytest
import torch
import torchsde
from torch import nn

from tests.problems import matrix_columns, matrix_field, mixture, networks, sdes
from torchsrk import SDE, ItoDiffusion, Langevin
from torchsrk.brownian import BrownianPath, Needs
from torchsrk.potentials import FunctionPotential, NonConvex
from torchsrk.sde import plus
from torchsrk.sde.ito_diffusion import divergence

NAMES = sorted(sdes())


def points(dim, count=6):
    return torch.linspace(-1.5, 2.0, count * dim).reshape(count, dim)


def stationary_flux_divergence(sde, potential, x):
    """∇·(b p) - ½ Σ ∂_i ∂_j (w_ij p), over p: zero iff exp(-f) is invariant (Fokker-Planck)."""

    def density(y):
        return torch.exp(-potential(y))

    def flux(y):
        spread = divergence(lambda z: _covariance(sde, z) * density(z).unsqueeze(-1).unsqueeze(-1), y)
        return sde.drift(0.0, y) * density(y).unsqueeze(-1) - 0.5 * spread

    jacobian = torch.autograd.functional.jacobian(flux, x)
    return torch.einsum("ii->", jacobian) / density(x)


def _covariance(sde, x):
    matrix = sde.noise.matrix(sde.sigma(0.0, x), x)
    return matrix @ matrix.mT


@pytest.mark.parametrize("gamma", [0.5, 1.3])
def test_non_convex_drift_is_the_closed_one(gamma):
    target = NonConvex(beta=2.0, gamma=gamma, dim=3)
    x = points(3)
    g = (2.0 + x.square().sum(-1, keepdim=True)).sqrt()
    expected = -x / 2 + (0.5 - gamma) * x / g
    sde = ItoDiffusion(target, target.scale, noise_type="isotropic")
    torch.testing.assert_close(sde.drift(0.0, x), expected)
    # The same diffusion without the shortcut: a general matrix.
    general = ItoDiffusion(
        target, lambda y: torch.diag_embed(target.scale(y).unsqueeze(-1).expand_as(y)), noise_type="general"
    )
    torch.testing.assert_close(general.drift(0.0, x), expected)


CASES = {
    "general": (matrix_field, "general"),
    "isotropic": (lambda x: 1.0 + 0.3 * x.square().sum(-1), "isotropic"),
    "diagonal": (lambda x: 1.0 + 0.5 * x.sin(), "diagonal"),
    "scalar": (lambda x: (1.0 + 0.5 * x.sin()).unsqueeze(-1), "scalar"),
    "additive": (torch.linspace(-1.0, 1.0, 12).double().view(3, 4), "additive"),
    "number": (0.7, "additive"),
}


@pytest.mark.parametrize("case", sorted(CASES))
@pytest.mark.parametrize("skewed", ["no skew", "constant", "field"])
def test_drift_leaves_the_density_invariant(case, skewed):
    """Fokker-Planck, pointwise, for every noise type, with and without a skew part."""
    diffusion, noise_type = CASES[case]
    potential = FunctionPotential(lambda x: 0.5 * x.square().sum(-1) + 0.1 * x.pow(4).sum(-1) + x[..., 0].sin(), dim=3)
    constant = torch.tensor([[0.0, 1.0, -2.0], [-1.0, 0.0, 0.5], [2.0, -0.5, 0.0]])
    skew = {
        "no skew": None,
        "constant": constant,
        "field": lambda x: constant * (1.0 + x[..., 1].cos())[..., None, None],
    }
    sde = ItoDiffusion(potential, diffusion, skew[skewed], noise_type=noise_type)
    for x in points(3):
        assert abs(stationary_flux_divergence(sde, potential, x)) < 1e-9
    if skewed != "no skew":
        without = ItoDiffusion(potential, diffusion, noise_type=noise_type)
        assert (sde.drift(0.0, points(3)) - without.drift(0.0, points(3))).abs().max() > 0.1


def test_the_check_of_invariance_can_fail():
    target = NonConvex(beta=2.0, gamma=1.3, dim=3)
    wrong = SDE(lambda x: -x / 2, target.scale, "isotropic")
    assert abs(stationary_flux_divergence(wrong, target, points(3)[1])) > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_products_and_columns_agree_with_the_matrix(name):
    sde, dim = sdes()[name]
    x = points(dim)
    sigma = sde.sigma(0.3, x)
    matrix = sde.noise.matrix(sigma, x)
    m = sde.brownian_dim(x)
    assert matrix.shape == (6, dim, m)
    v = torch.linspace(-1.0, 1.0, 6 * m).reshape(6, m)
    torch.testing.assert_close(sde.noise.product(sigma, v), (matrix @ v.unsqueeze(-1)).squeeze(-1))
    torch.testing.assert_close(plus(x, 2.0 * sde.noise_at(0.3, x)(v)), x + 2.0 * (matrix @ v.unsqueeze(-1)).squeeze(-1))
    torch.testing.assert_close(plus(x, 0.5 * sde.drift_at(0.3, x)), x + 0.5 * sde.drift(0.3, x))
    expected = sigma if sde.noise_type == "diagonal" else matrix
    torch.testing.assert_close(sde.g(0.3, x), expected)


@pytest.mark.parametrize("name", NAMES)
def test_stages_of_srk_id_agree_with_the_formula_written_out(name):
    """Σ_i σ_i(x + Σ_j σ_j I_(j,i)), by loops over the full matrix."""
    sde, dim = sdes()[name]
    x = points(dim)
    m = sde.brownian_dim(x)
    increment = next(BrownianPath((6, m), num_steps=2, seed=1, t1=0.1).increments(1, Needs.LEVY_AREA))
    offsets = sde.noise.offsets(sde.sigma(0.3, x), increment)
    if offsets is None:
        assert sde.noise.constant
        return
    centre = x.unsqueeze(-2) if offsets.ndim > x.ndim else x
    summed = sde.sum_columns(0.3, centre + offsets)
    integrals, matrix = increment.iterated_integrals(), sde.noise.matrix(sde.sigma(0.3, x), x)
    expected = torch.zeros_like(x)
    for i in range(m):
        point = x + sum(matrix[:, :, j] * integrals[:, j, i, None] for j in range(m))
        expected += sde.noise.matrix(sde.sigma(0.3, point), point)[:, :, i]
    torch.testing.assert_close(summed, expected)


def test_columns_spare_the_rest_of_the_matrix():
    whole, spared = (
        SDE(torch.neg, matrix_field, "general"),
        SDE(torch.neg, matrix_field, "general", columns=matrix_columns),
    )
    stages = torch.linspace(-1.0, 1.0, 5 * 4 * 3).reshape(5, 4, 3)
    torch.testing.assert_close(spared.sum_columns(0.0, stages), whole.sum_columns(0.0, stages))


@pytest.mark.parametrize("name", NAMES)
def test_torchsde_accepts_it(name):
    sde, dim = sdes()[name]
    x = points(dim)
    ts = torch.tensor([0.0, 0.1])
    solution = torchsde.sdeint(sde, x, ts, dt=0.05, method="euler")
    assert solution.shape == (2, 6, dim)
    assert solution.isfinite().all()


def test_parameters_register_move_and_save():
    sde = networks(2)
    assert len(list(sde.parameters())) == 8
    buffer = io.BytesIO()
    torch.save(sde.state_dict(), buffer)
    buffer.seek(0)
    twin = networks(2)
    with torch.no_grad():
        next(twin.parameters()).zero_()
    twin.load_state_dict(torch.load(buffer, weights_only=True))
    x = points(2)
    assert torch.equal(twin.drift(0.0, x), sde.drift(0.0, x))
    assert sde.float().drift(0.0, x.float()).dtype == torch.float32
    assert next(sde.to("meta").parameters()).is_meta


def test_constant_diffusions_register():
    trained = SDE(torch.neg, nn.Parameter(torch.eye(2)), "additive")
    fixed = SDE(torch.neg, torch.eye(2), "additive")
    assert [name for name, _ in trained.named_parameters()] == ["diffusion_function.value"]
    assert [name for name, _ in fixed.named_buffers()] == ["diffusion_function.value"]
    number = SDE(torch.neg, 2, "additive")
    assert number.sigma(0.0, torch.ones(2, dtype=torch.float32)).dtype == torch.float32


@pytest.mark.parametrize("name", NAMES)
def test_copies_and_prints(name):
    sde, dim = sdes()[name]
    twin = copy.deepcopy(sde)
    torch.testing.assert_close(twin.drift(0.1, points(dim)), sde.drift(0.1, points(dim)))
    assert type(sde).__name__ in repr(sde)


def test_langevin_runs_downhill():
    target = mixture(4)
    x = points(4)
    torch.testing.assert_close(Langevin(target).drift(0.0, x), -target.grad(x))


class OfTimeAndState(torch.nn.Module):
    def forward(self, t, x):
        return t * x


@pytest.mark.parametrize("drift", [lambda t, x: -x, OfTimeAndState(), OfTimeAndState().forward])
def test_a_function_of_time_without_the_word(drift):
    with pytest.raises(TypeError, match=r"drift takes \(t, x\), and is called as \(x\): .*time_dependent=True"):
        SDE(drift, 1.0, "additive")
    with pytest.raises(TypeError, match=r"diffusion takes \(t, x\), and is called as \(x\)"):
        SDE(torch.neg, drift, "diagonal")
    SDE(drift, 1.0, "additive", time_dependent=True)


def test_a_function_without_time_or_with_time_in_the_wrong_place():
    with pytest.raises(TypeError, match=r"diffusion takes \(x\), and is called as \(t, x\): leave time_dependent=True"):
        SDE(lambda t, x: -x, lambda x: x, "diagonal", time_dependent=True)
    for drift in (lambda x, t: -x, lambda y, time=0.0: -y):
        with pytest.raises(TypeError, match=r"drift is called as .* exchange its arguments"):
            SDE(drift, 1.0, "additive", time_dependent=True)
    for right in (lambda x, t=0.0: -x, lambda *given: -given[-1], torch.neg, torch.nn.Linear(2, 2)):
        SDE(right, 1.0, "additive")
