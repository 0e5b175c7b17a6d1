"""The table of posteriors, as far as it needs no other sampler."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests import forks

BENCH = Path(__file__).parent.parent / "scripts" / "bench"


@pytest.fixture(autouse=True)
def _bench(monkeypatch):
    """The scripts' modules, for the time of a test; double precision is torch's default in their processes alone."""
    monkeypatch.syspath_prepend(str(BENCH))
    before, dtype = set(sys.modules), torch.get_default_dtype()
    yield
    torch.set_default_dtype(dtype)
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(BENCH) in str(sys.modules[name].__file__):
            del sys.modules[name]


def standard_normal(dim=2):
    from trial import Reference

    ones = np.ones(dim)
    return Reference(0 * ones, ones, ones, 2 * ones, draws=1, mean_error=0.0, sd_error=0.0)


@pytest.mark.parametrize("number", range(5))
def test_densities(number):
    from models import FILES, model, starts, torch_log_density

    file = FILES[number]
    log_density, x = torch_log_density(file), torch.as_tensor(starts(file, 6, seed=0)).requires_grad_()
    values = log_density(x)
    assert values.shape == (6,)
    assert x.shape[-1] == model(file).DIM
    torch.testing.assert_close(log_density(x.view(2, 3, -1)), values.view(2, 3))
    torch.testing.assert_close(log_density(x[0]), values[0])
    (gradient,) = torch.autograd.grad(values.sum(), x)
    assert bool(gradient.isfinite().all())
    assert bool((gradient != 0).all())


def test_a_run_is_judged_as_it_grows():
    from samplers import Chunk, Sampler
    from trial import measured

    rng = np.random.default_rng(0)

    def run(seed, limit):
        yield Chunk(1.0 + rng.standard_normal((1, 100, 2)), np.array([50.0]))
        for number in range(100):
            yield Chunk(rng.standard_normal((100, 100, 2)), 50.0 + 100 * number + np.arange(1, 101))

    found = measured(Sampler(run, draws=101), seed=0, limit=10.0, reference=standard_normal())
    assert found.gradients == 150.0
    assert 0.0 < found.accurate <= found.seconds
    assert 50.0 < found.below < 150.0
    assert found.mean_error < 0.1
    assert found.draws.shape == (101, 100, 2)
    assert not found.limit


def test_a_run_that_stands_alone_has_its_own_time():
    from samplers import Chunk, Sampler
    from trial import measured

    def run(seed, limit):
        import time

        time.sleep(0.2)
        yield Chunk(np.full((1, 10, 2), 9.0), np.array([1.0]), alone=True)
        yield Chunk(np.random.default_rng(0).standard_normal((1, 9999, 2)), np.array([2.0]), alone=True)

    found = measured(Sampler(run, draws=1), seed=0, limit=10.0, reference=standard_normal())
    assert found.seconds >= 0.2
    assert found.accurate < 0.2
    assert found.below is None


def test_a_run_ends_at_its_limit():
    from samplers import Sampler
    from trial import measured

    def run(seed, limit):
        raise TimeoutError("3 of 1000 draws")
        yield

    found = measured(Sampler(run, draws=1), seed=0, limit=0.0, reference=standard_normal())
    assert found.limit == "3 of 1000 draws"
    assert found.seconds is None


def test_staying_below():
    from trial import BIAS, staying_below

    low, high = 0.5 * BIAS, 2.0 * BIAS
    assert staying_below((1, 2, 3, 4), (high, low, high, low)) == 4
    assert staying_below((1, 2), (low, low)) == 1
    assert staying_below((1, 2), (low, high)) is None
    assert staying_below((1, 2), (low, float("nan"))) is None


def test_moments_and_their_errors():
    from reference import moments

    found = moments(3.0 + 2.0 * np.random.default_rng(0).standard_normal((1000, 40, 3)))
    np.testing.assert_allclose(found.mean, 3.0, atol=0.05)
    np.testing.assert_allclose(found.sd, 2.0, atol=0.05)
    np.testing.assert_allclose(found.second, 13.0, rtol=0.02)
    assert 0.003 < found.mean_error < 0.008  # 1/200 for one coordinate
    assert 0.002 < found.sd_error < 0.006
    assert found.badness(found.second) == 0.0


def test_effective_draws_of_particles():
    from effective import smallest_ess

    rng = np.random.default_rng(0)
    free = rng.standard_normal((10, 2000, 2))
    assert smallest_ess(free) == pytest.approx(20_000, rel=0.1)
    assert smallest_ess(np.repeat(free[:5], 2, axis=0)) == pytest.approx(10_000, rel=0.1)


def call(**changed):
    usual = {"seconds": 1.0, "gradients": 200.0, "mean_error": 0.01, "sd_error": 0.02, "accurate": 0.5, "ess": 9000.0}
    return {**usual, "below": None, "limit": "", "note": "", **changed}


def test_render():
    from tables.posteriors import render

    late = call(seconds=None, accurate=None, gradients=None, mean_error=None, sd_error=None, ess=None, limit="late")
    outcomes = {
        "torchsrk compiled": {"failed": "", "calls": [call(), call(note="do | not trust")]},
        "torchsrk eager": {"failed": "", "calls": [call(), call(accurate=0.25)]},
        "numpyro NUTS, vectorized": {"failed": "", "calls": [call(), call(accurate=2.5)]},
        "Pyro NUTS": {"failed": "", "calls": [late]},
        "nutpie NUTS": {"failed": "ModuleNotFoundError: nutpie", "calls": []},
    }
    known = {"draws": 10, "mean_error": 0.001, "sd_error": 0.002}
    usual = {"model": "eight schools", "dim": 10, "failed": "", "rounds": 1, "limit": 60.0, "twins": 1e-16}
    text = render([{**usual, "reference": known, "outcomes": outcomes}, {**usual, "failed": "no jax", "outcomes": {}}])
    assert "| numpyro NUTS, vectorized | 1 | 1 | 200 | not reached | 0.01 | 2 | 9000 | 0.5 | 2.5 | 10 |" in text
    assert "no: late" in text
    assert "failed: ModuleNotFoundError: nutpie" in text
    assert "Not measured: no jax" in text
    assert "| eight schools | 1 | > 120 | 10 | > 240 |" in text
    assert "do | not trust" in text


def test_without_the_peers(tmp_path):
    """In an environment that has no jax the table says so."""
    try:
        import jax  # noqa: F401
    except ImportError:
        pass
    else:
        pytest.skip("jax is here")
    done = forks.run(BENCH / "__main__.py", "--quick", "--only", "posteriors", "--output", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "Not measured: ModuleNotFoundError: No module named 'jax'" in done.stdout
