"""Schemes by second and third derivatives, compiled; and the eigendecomposition that one of them asks for."""

import itertools
import math

import pytest
import torch

from tests.compiled.test_same_numbers import ONE_BY_ONE, SIDE_BY_SIDE, assert_same, both, start
from tests.problems import mixture, potentials
from torchsrk import Langevin, NonFiniteStateError, Ozaki, sample
from torchsrk.brownian import FreshNoise, Increment
from torchsrk.potentials import FunctionPotential

# Both ways of running, and both precisions, without every combination of them.
FORMS = [(torch.float32, SIDE_BY_SIDE), (torch.float64, ONE_BY_ONE)]


def by_turns(cases, forms=FORMS):
    """Cases with a form each, the next one's the other."""
    return [(*case, *form) for case, form in zip(cases, itertools.cycle(forms))]


# A potential takes one form with one scheme, and the other with the other.
PAIRS = by_turns(("ozaki", name) for name in potentials())
PAIRS += by_turns((("tamed", name) for name in potentials()), FORMS[::-1])


@pytest.mark.parametrize(("scheme", "name", "dtype", "particles"), PAIRS)
def test_shipped_potentials(scheme, name, dtype, particles):
    potential, dim = potentials(dtype)[name]
    assert_same(*both(Langevin(potential), start(particles, dim, dtype), scheme))


SPECTRA = {
    "wide": (-5.0, -1.0, 0.0, 1e-9, 1e-3, 1.0, 30.0, 300.0),
    "repeated": (-5.0, -5.0, 0.0, 0.0, 1.0, 1.0, 300.0, 300.0),
}


def matrix_of(name):
    turn = torch.linalg.qr(torch.linspace(-1.0, 5.0, 64, dtype=torch.float64).square().sin().view(8, 8)).Q
    return turn @ torch.tensor(SPECTRA[name], dtype=torch.float64).diag() @ turn.T


@pytest.mark.parametrize(("dtype", "particles"), FORMS)
@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.filterwarnings("ignore:this run can't be trusted")  # with curvatures below 0 the density is improper
def test_ozaki_with_curvatures_of_all_sizes(name, dtype, particles):
    """h = 1: against the step worked out in float64, with torch's own eigendecomposition."""
    matrix = matrix_of(name).to(dtype)
    sde = Langevin(FunctionPotential(lambda x: 0.5 * torch.einsum("...i,ij,...j->...", x, matrix.to(x.dtype), x)))
    x0 = start(particles, 8, dtype)
    moved = sample(sde, x0, integrator="ozaki", step_size=1.0, num_steps=1, seed=5, compile=True).final
    W = FreshNoise(5, x0.shape, dtype=dtype, device=x0.device).increment(0, 0.0, 1.0, Ozaki.needs).W
    exact = Ozaki().step(sde, 0.0, x0.double(), Increment(1.0, W.double()))
    assert (moved - exact).abs().max() < (1e-9 if dtype == torch.float64 else 1e-4) * exact.abs().max()


@pytest.mark.parametrize("particles", [ONE_BY_ONE, SIDE_BY_SIDE])
def test_a_curvature_that_is_not_finite_is_reported(particles):
    sde = Langevin(FunctionPotential(lambda x: x.abs().pow(1.5).sum(-1)))
    x0 = start(particles, 2)
    x0[1, 0] = 0.0
    errors = []
    for compiled in (False, True):
        with pytest.raises(NonFiniteStateError) as caught:
            sample(sde, x0, integrator="ozaki", step_size=0.1, num_steps=3, seed=0, compile=compiled)
        errors.append((caught.value.step, caught.value.count))
    assert errors[0] == errors[1] == (1, 1)


def test_same_bits_whatever_the_neighbours():
    """Lanes take as many rotations as the slowest of them, and must not be changed by those they don't need."""
    sde = Langevin(mixture(5, torch.float32))
    x0 = start(41, 5, torch.float32) * torch.logspace(-6, 1, 41, dtype=torch.float32).unsqueeze(-1)
    options = {"integrator": "ozaki", "step_size": 0.3, "num_steps": 5, "seed": 5, "compile": True}
    whole = sample(sde, x0, **options).final
    for first, last in ((0, 5), (3, 9), (10, 41)):
        assert torch.equal(sample(sde, x0[first:last], first_particle=first, **options).final, whole[first:last])


def outer(x):
    """Symmetric matrices (..., 3, 3) with eigenvalues that are apart."""
    return x.unsqueeze(-1) * x.unsqueeze(-2) + torch.diag_embed(torch.tensor([-2.0, 0.5, 3.0], dtype=x.dtype) + x.sin())


def by_values(x):
    return torch.linalg.eigvalsh(outer(x)).mul(torch.tensor([1.0, -1.0, 2.0], dtype=x.dtype)).sum(-1)


def by_one_triangle(x):
    """The other one is not read."""
    noted = outer(x) + torch.ones(3, 3, dtype=x.dtype).tril(-1)
    values, vectors = torch.linalg.eigh(noted, UPLO="U")
    return (vectors * values.exp().clamp(max=50.0).unsqueeze(-2) @ vectors.mT).diagonal(dim1=-2, dim2=-1).sum(-1)


def in_batches(x):
    blocks = torch.stack((outer(x), 2.0 * outer(x.cos())), dim=-3)
    return (torch.linalg.eigvalsh(blocks) * torch.tensor([[1.0], [0.5]], dtype=x.dtype)).square().sum((-1, -2))


def of_copies(x):
    """One entry, and matrices on either side of the particles."""
    copies = torch.linalg.eigvalsh(torch.stack((outer(x), outer(2.0 * x))).flatten(0, 1)).view(2, -1, 3)
    return copies[0, :, 0] + copies[1, :, 2] + torch.linalg.eigvalsh(x[..., :1, None].square())[..., 0]


@pytest.mark.parametrize(
    ("energy", "dtype", "particles"), by_turns([(by_values,), (by_one_triangle,), (in_batches,), (of_copies,)])
)
def test_eigenvalues_in_an_energy(energy, dtype, particles):
    potential = FunctionPotential(lambda x: 0.1 * energy(x) + 0.5 * x.square().sum(-1))
    assert_same(*both(Langevin(potential), start(particles, 3, dtype), "em"))


@pytest.mark.parametrize("scale", [1e-40, 1e-300, 1e290])
def test_eigenvalues_of_any_size(scale):
    """Squares of the entries under- and overflow."""
    potential = FunctionPotential(
        lambda x: torch.linalg.eigvalsh(scale * outer(x))[..., 2] / scale + x.square().sum(-1)
    )
    assert_same(*both(Langevin(potential), start(SIDE_BY_SIDE, 3), "em"))


def test_an_eigenvector_of_either_sign_is_noticed():
    """Its sign is nobody's to tell: where a step depends on it the run is an eager one, or has torch's by chance."""
    sde = Langevin(FunctionPotential(lambda x: torch.linalg.eigh(outer(x))[1][..., 0, :].sum(-1) + x.square().sum(-1)))
    options = {"integrator": "em", "step_size": 0.01, "num_steps": 3, "seed": 5}
    x0 = start(SIDE_BY_SIDE, 3)
    with pytest.warns(RuntimeWarning, match="compile=True"):
        compiled = sample(sde, x0, compile=True, **options).final
    assert torch.equal(compiled, sample(sde, x0, **options).final)
    assert math.isfinite(float(compiled.sum()))
