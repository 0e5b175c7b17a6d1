"""The law of Lévy areas, exactly known given W, and the error constants the methods claim.

Significance 1e-4 a test, fixed seeds.
"""

import math

import pytest
import torch
from scipy import special, stats

from tests.memory import run_numbers
from torchsrk.brownian import (
    BrownianPath,
    FourierLevyArea,
    MrongowiusRoesslerLevyArea,
    Needs,
    StepNormals,
    Stream,
    WiktorssonLevyArea,
    fill_normal,
)
from torchsrk.brownian.levy_area import _trigamma

LEVEL = 1e-4
Z = stats.norm.isf(LEVEL / 2)
METHODS = [FourierLevyArea(300), WiktorssonLevyArea(2), MrongowiusRoesslerLevyArea(2)]
H = 0.25


def increments(particles, m, seed=5, h=H):
    return fill_normal(torch.empty(particles, m), seed=seed, stream=Stream.INCREMENT, scale=math.sqrt(h))


def path_areas(particles, m):
    path = BrownianPath((particles, m), num_steps=64, seed=8, t1=H)
    increment = path.increment(0, 0.0, H, Needs.LEVY_AREA)
    return increment.W, increment.A


def draws(source, particles, m):
    if source == "path":
        return path_areas(particles, m)
    W = increments(particles, m)
    return W, source.sample(W, H, StepNormals(5, 0))


def z_score(values, mean):
    return (values.mean() - mean) / (values.std() / math.sqrt(len(values)))


@pytest.mark.parametrize("source", [*METHODS, "path"], ids=str)
def test_law_given_the_increment(source):
    """Skewness, the two conditional moments, and Lévy's formula for the characteristic function given W."""
    W, A = draws(source, 40_000, 3)
    assert torch.equal(A, -A.mT)
    # The truncated series lacks variance by up to its declared error, which the tests below allow for.
    missing = source.error(H, 3) ** 2 if isinstance(source, FourierLevyArea) else 0.0
    area, first, second = A[:, 0, 1], W[:, 0], W[:, 1]
    variance_given_w = H**2 / 12 + H * (first**2 + second**2) / 12
    for weight in (torch.ones_like(first), first**2 / H, (first * second) ** 2 / H**2):
        scored = weight * (area**2 - variance_given_w)
        assert abs(scored.mean()) < Z * scored.std() / math.sqrt(len(scored)) + missing * weight.mean()
    assert abs(z_score(area, 0.0)) < Z
    # Two areas that share a component are correlated given the increment: cov(A_01, A_02 | W) = h W_1 W_2 / 12.
    product = A[:, 0, 1] * A[:, 0, 2] * W[:, 1] * W[:, 2] / H**2
    expected = (W[:, 1] * W[:, 2]) ** 2 / (12 * H)
    assert abs(z_score(product - expected, 0.0)) < Z + 0.5 * bool(missing)

    for scale in (2.0, 6.0, 12.0):
        frequency = scale / H
        half = frequency * H / 2
        norm = (first**2 + second**2) / H
        levy = half / math.sinh(half) * torch.exp(-0.5 * norm * (half / math.tanh(half) - 1.0))
        slack = 0.5 * missing * frequency**2
        for weight in (torch.ones_like(norm), (norm < 1.0).double(), (norm > 3.0).double()):
            gap = weight * (torch.cos(frequency * area) - levy)
            assert abs(gap.mean()) < Z * gap.std() / math.sqrt(len(gap)) + slack, (scale, gap.mean())


@pytest.mark.parametrize("source", [*METHODS, "path"], ids=str)
def test_variance_of_every_entry(source):
    _, A = draws(source, 30_000, 4)
    row, column = torch.triu_indices(4, 4, 1)
    squares = A[:, row, column].square()
    missing = source.error(H, 4) ** 2 if isinstance(source, FourierLevyArea) else 0.0
    limit = stats.norm.isf(LEVEL / 2 / len(row)) * squares.std(0) / math.sqrt(len(squares)) + missing
    assert ((squares.mean(0) - H**2 / 4).abs() < limit).all()


def test_fourier_truncation_error_falls_as_its_constant_says():
    """Against its own longer series: what n terms leave out, to the terms' own tail Σ_{n<k≤N} 1/k²."""
    W, reference_terms = increments(4000, 2), 2048
    normals = StepNormals(5, 0)
    reference = FourierLevyArea(reference_terms).sample(W, H, normals)[:, 0, 1]
    for n in (4, 16, 64):
        squared = (FourierLevyArea(n).sample(W, H, normals)[:, 0, 1] - reference).square()
        tail = sum(1.0 / k**2 for k in range(n + 1, reference_terms + 1))
        # Over W the error's variance is 3h²/(2π²) Σ 1/k², which the declared h²·coefficient²/n bounds as n grows.
        expected = 1.5 * (H / math.pi) ** 2 * tail
        assert abs(z_score(squared, expected)) < Z
        assert expected < (H * FourierLevyArea.coefficient(2)) ** 2 / n


@pytest.mark.parametrize(
    ("method", "expected"),
    [(FourierLevyArea(), 152), (WiktorssonLevyArea(), 21), (MrongowiusRoesslerLevyArea(), 10)],
    ids=str,
)
def test_number_of_terms_follows_from_the_error_constant(method, expected):
    assert method.num_terms(1e-3, 10) == expected
    assert method.error(1e-3, 10) <= 1e-3**1.5
    assert type(method)(7).num_terms(1e-3, 10) == 7
    assert type(method)(order=1.5).num_terms(1e-3, 10) > 10 * expected


@pytest.mark.parametrize("method", [WiktorssonLevyArea, MrongowiusRoesslerLevyArea])
def test_error_constants_of_the_tails_hold(method):
    """Fourth moments, which the tail only gets right as n grows, are nearer than the declared error allows.

    A coupled exact area is not at hand for a random tail, so this compares laws: |E A⁴ - E Ã⁴| is at most
    E|A - Ã|·(|A| + |Ã|)³, by Hölder at most error · 8 (E A⁶)^(1/2) for the optimal coupling whose error is declared.
    """
    W = increments(200_000, 2)
    exact_fourth = 5 * H**4 / 16  # Lévy's area at time h has density sech(πa/h)/h: E A² = h²/4, E A⁴ = 5h⁴/16
    exact_sixth = 61 * H**6 / 64
    for n in (1, 4):
        area = method(n).sample(W, H, StepNormals(6, 0))[:, 0, 1]
        fourth = area.pow(4)
        limit = method(n).error(H, 2) * 8 * math.sqrt(exact_sixth)
        noise = Z * fourth.std() / math.sqrt(len(fourth))
        assert abs(fourth.mean() - exact_fourth) < limit + noise
    # And the long series is on the exact value itself.
    fourth = method(64).sample(W, H, StepNormals(6, 0))[:, 0, 1].pow(4)
    assert abs(z_score(fourth, exact_fourth)) < Z


@pytest.mark.slow
def test_memory_is_bounded_whatever_the_number_of_terms():
    """n = 3000, m = 20: 5,000 particles would take 4.8 GB of normals at once, twice; here pieces of a few MB."""
    code = """
from torchsrk.brownian import FourierLevyArea, StepNormals
W = torch.randn(150, 20, dtype=torch.float64)
before = peak()
FourierLevyArea(3000).sample(W, 0.01, StepNormals(0, 0))
print(peak() - before)
"""
    assert run_numbers(code)[0] < 60.0  # all at once: 2 x 72 MB for 150 particles


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_areas_do_not_depend_on_the_batch(method):
    W = increments(300, 3)
    whole = method.sample(W, H, StepNormals(5, 7))
    part = method.sample(W[100:], H, StepNormals(5, 7, first_particle=100))
    torch.testing.assert_close(part, whole[100:], rtol=1e-13, atol=1e-15)


def test_one_brownian_motion_has_no_area():
    assert torch.equal(
        MrongowiusRoesslerLevyArea().sample(torch.ones(3, 1), 0.1, StepNormals(0, 0)), torch.zeros(3, 1, 1)
    )


@pytest.mark.parametrize("arguments", [{"terms": 0}, {"terms": 2.5}, {"order": 0.0}])
def test_bad_arguments(arguments):
    with pytest.raises(ValueError, match=r"terms|order"):
        MrongowiusRoesslerLevyArea(**arguments)


@pytest.mark.parametrize("n", [1, 2, 7, 19, 20, 21, 3000, 10**6])
def test_the_size_of_a_tail(n):
    """ψ₁(n) is ζ(2, n)."""
    assert _trigamma(n) == pytest.approx(special.zeta(2.0, n), rel=1e-15)
