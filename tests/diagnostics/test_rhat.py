"""Nested R-hat beside its formula, beside ArviZ's R-hat, and on chains whose memory is known."""

import math

import pytest
import torch

from torchsrk.diagnostics import nested_rhat
from torchsrk.diagnostics.errors import critical, independent, standard_error
from torchsrk.diagnostics.rhat import largest_rhat, rhat_over_time


def normals(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_by_hand():
    """Two superchains of two chains of two draws."""
    theta = torch.tensor([[0.0, 2.0, 10.0, 12.0], [2.0, 4.0, 12.0, 18.0]]).double().unsqueeze(-1)
    # Means of chains 1, 3, 11, 15, of superchains 2 and 13; their variance is 60.5. Between chains of a superchain 2
    # and 8, on average 5; within chains 2, 2, 2 and 18, on average 6.
    expected = math.sqrt(1.0 + 60.5 / (5.0 + 6.0))
    assert float(nested_rhat(theta, 2)) == pytest.approx(expected)
    assert float(nested_rhat(theta[:, [0, 2, 1, 3]], torch.tensor([7, 3, 7, 3]))) == pytest.approx(expected)
    # One draw of each: nothing varies within a chain.
    assert float(nested_rhat(theta[:1], 2)) == pytest.approx(math.sqrt(1.0 + 50.0 / 2.0))


def test_without_superchains_it_is_gelman_and_rubin_s():
    arviz = pytest.importorskip("arviz")
    theta = normals(40, 6, 1) + 0.3 * normals(1, 6, 1, seed=1)
    theirs = float(arviz.rhat(theta.squeeze(-1).T.numpy(), method="identity"))
    assert float(nested_rhat(theta)) ** 2 == pytest.approx(theirs**2 + 1.0 / 40)  # they take what chance makes off


def test_what_is_allowed():
    """Draws with the memory that tuning leaves, 0.2, stay below; half of the variance between particles does not."""
    for draws, particles in ((2, 1000), (3, 1000), (10, 100), (10, 1000), (100, 500)):
        theta = [normals(particles, 5, seed=1)]
        for k in range(1, draws):
            theta.append(0.2 * theta[-1] + math.sqrt(0.96) * normals(particles, 5, seed=k + 1))
        theta = torch.stack(theta)
        assert bool((nested_rhat(theta) <= largest_rhat(theta)).all())
        stuck = theta + normals(1, particles, 5, seed=500)
        assert bool((nested_rhat(stuck) > largest_rhat(stuck)).all())


def test_few_chains_are_asked_for_what_is_usual():
    theta = normals(2000, 4, 1)
    assert float(largest_rhat(theta)) == pytest.approx(1.01, abs=0.005)


def test_superchains_see_what_is_left_of_a_start():
    """32 superchains of 32 chains with one draw: starts that left a variance of 0 and of 0.2."""
    noise, starts = normals(1, 1024, 3), normals(1, 32, 3, seed=1).repeat_interleave(32, 1)
    ids = torch.arange(1024) // 32
    assert bool((nested_rhat(noise, ids) <= largest_rhat(noise, ids)).all())
    left = noise + math.sqrt(0.2) * starts
    assert bool((nested_rhat(left, 32) > largest_rhat(left, 32)).all())
    # Groups of particles with other starts each hide it.
    shuffled = left[:, torch.randperm(1024, generator=torch.Generator().manual_seed(0))]
    assert bool((nested_rhat(shuffled, 32) <= largest_rhat(shuffled, 32)).all())


def test_over_time():
    times, values = rhat_over_time(normals(100, 50, 2))
    assert times[0] == 2
    assert times[-1] == 100
    assert values.shape == (len(times), 2)
    assert torch.equal(values[-1], nested_rhat(normals(100, 50, 2)))
    assert rhat_over_time(normals(1, 50, 2))[0] == []
    assert rhat_over_time(normals(1, 50, 2), 5)[0] == [1]


@pytest.mark.parametrize(
    ("superchains", "message"),
    [
        (3, "of different sizes"),
        (1, "two or more groups"),
        (8, "two or more of the 8 particles"),
        (0, "a number of groups"),
        (True, "a number of groups"),
        (torch.zeros(3, dtype=torch.long), "each of 8 particles"),
        (torch.zeros(8), "each of 8 particles"),
        (torch.tensor([0, 0, 0, 1, 1, 1, 1, 1]), "of different sizes"),
    ],
)
def test_superchains_that_can_not_be(superchains, message):
    with pytest.raises(ValueError, match=message):
        nested_rhat(normals(4, 8, 2), superchains)


def test_errors_of_independent_draws():
    """1/√n over particles; 30 % of it, from 32 batches, where there are few of them; none where there is too little."""
    assert standard_error(normals(10, 1000, 1)) == pytest.approx(0.01, rel=0.1)
    assert standard_error(normals(2500, 4, 1)) == pytest.approx(0.01, rel=0.5)
    assert independent(2500, 4) == 32
    assert math.isnan(float(standard_error(normals(10, 4, 1))))
    assert independent(10, 4) == 0


def test_critical_values_are_student_s():
    scipy_stats = pytest.importorskip("scipy.stats")
    for count, units in ((1, 32), (10, 100), (1000, 10_000)):
        exact = scipy_stats.t.isf(0.5e-3 / count, units - 1)
        assert critical(count, units) == pytest.approx(exact, rel=0.02)
