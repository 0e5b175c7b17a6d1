"""The shape of a target, from positions and gradients."""

import pytest
import torch

from torchsrk.potentials.affine import Diagonal, LowRank, Triangular
from torchsrk.tuning.ensemble import Ensemble
from torchsrk.tuning.metric import dense_metric, diagonal_metric, divergence, standardised, whitened


def gaussian(dim, kappa, seed=0):
    """A precision matrix with a log-spaced spectrum, turned at random, and a mean."""
    generator = torch.Generator().manual_seed(seed)
    rotation = torch.linalg.qr(torch.randn(dim, dim, generator=generator, dtype=torch.float64))[0]
    spectrum = torch.logspace(0.0, torch.tensor(kappa).log10().item(), dim, dtype=torch.float64)
    return (rotation * spectrum) @ rotation.mT, 3.0 * torch.randn(dim, generator=generator, dtype=torch.float64)


def far_ensemble(precision, mean, particles, seed=1):
    """Particles that are nowhere near the target."""
    generator = torch.Generator().manual_seed(seed)
    x = 7.0 + 3.0 * torch.randn(particles, len(mean), generator=generator, dtype=torch.float64)
    gradient = (x - mean) @ precision
    return Ensemble(x, torch.zeros(particles, dtype=torch.float64), gradient)


@pytest.mark.parametrize(("dim", "particles"), [(3, 5), (30, 32), (30, 200)])
def test_a_gaussian_is_known_exactly_from_particles_that_are_elsewhere(dim, particles):
    precision, mean = gaussian(dim, 1e4)
    ensemble = far_ensemble(precision, mean, particles)
    found = dense_metric(standardised(ensemble))
    loc, scale = found.loc, found.scale
    assert isinstance(scale, Triangular)
    whitened_precision = scale.factor.mT @ precision @ scale.factor
    # Exact but for rounding, which the squares of condition numbers make large: 1e4 here, and that of 32 particles.
    torch.testing.assert_close(whitened_precision, torch.eye(dim, dtype=torch.float64), atol=1e-2, rtol=0.0)
    assert scale.solve(loc - mean).norm() < 1e-3 * scale.solve(ensemble.x.mean(0) - mean).norm()


def test_the_diagonal_is_exact_where_the_target_is():
    spectrum = torch.tensor([1.0, 1e3, 1e-4], dtype=torch.float64)
    mean = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    ensemble = far_ensemble(torch.diag(spectrum), mean, 500)
    found = diagonal_metric(standardised(ensemble))
    torch.testing.assert_close(found.scale.diagonal, spectrum.rsqrt())
    torch.testing.assert_close(found.loc, mean)
    assert divergence(found, ensemble) < 1e-18


def test_the_form_is_the_one_that_others_confirm():
    precision, mean = gaussian(20, 100.0)
    dense = whitened(far_ensemble(precision, mean, 200))
    assert isinstance(dense.scale, Triangular)
    # Fewer particles than dimensions can't tell a dense metric; noise makes diagonal ones of what is diagonal.
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(60, 100, generator=generator, dtype=torch.float64)
    noise = 0.5 * torch.randn(60, 100, generator=generator, dtype=torch.float64)
    alone = whitened(Ensemble(x, x[:, 0], x + noise))
    assert isinstance(alone.scale, Diagonal)


def test_few_directions_are_found_among_many():
    """A covariance of 1 but for two directions, of 100 and 1/100, in 200 dimensions, by 100 particles."""
    generator = torch.Generator().manual_seed(2)
    directions = torch.linalg.qr(torch.randn(200, 2, generator=generator, dtype=torch.float64))[0]
    precision = torch.eye(200, dtype=torch.float64) + (directions * torch.tensor([-0.99, 99.0])) @ directions.mT
    normals = torch.randn(100, 200, generator=generator, dtype=torch.float64)
    x = torch.linalg.solve_triangular(torch.linalg.cholesky(precision).mT, normals.mT, upper=True).mT
    potential = whitened(Ensemble(x, x[:, 0], x @ precision))
    assert isinstance(potential.scale, LowRank)
    columns = potential.scale.times(torch.eye(200, dtype=torch.float64))  # row i: S e_i
    condition = torch.linalg.cond(columns @ precision @ columns.mT)
    assert condition < 300.0  # 10,000 before; 169 was measured, as few particles shrink the metric towards 1


def test_a_few_huge_gradients_do_not_spoil_it():
    precision, mean = gaussian(5, 10.0)
    ensemble = far_ensemble(precision, mean, 1000)
    ensemble.gradient[:10] *= 1e6
    scale = dense_metric(standardised(ensemble)).scale
    condition = torch.linalg.cond(scale.factor.mT @ precision @ scale.factor)
    assert condition < 2.0  # 1e12 or so without weights
