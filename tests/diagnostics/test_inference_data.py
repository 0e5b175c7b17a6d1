"""Draws as ArviZ takes them."""

import math

import pytest
import torch

from torchsrk import Chain, Langevin, Run, to_arviz, tune
from torchsrk.distributions import DiffusionDistribution
from torchsrk.potentials import FunctionPotential

arviz = pytest.importorskip("arviz")
DRAWS = torch.arange(2 * 3 * 5, dtype=torch.float64).reshape(2, 3, 5).sin()


def test_chains_and_draws():
    posterior = to_arviz(DRAWS).posterior
    assert dict(posterior.sizes)["chain"] == 3
    assert dict(posterior.sizes)["draw"] == 2
    assert posterior["x"].shape == (3, 2, 5)
    assert torch.equal(torch.from_numpy(posterior["x"].values[1, 0]), DRAWS[0, 1])


def test_names_and_shapes():
    run = Run(DRAWS[-1], DRAWS, DRAWS[-1], 2)
    scalars = to_arviz(run, names=["a", "b", "c", "d", "e"]).posterior
    assert torch.equal(torch.from_numpy(scalars["c"].values), DRAWS[..., 2].T)
    arrays = to_arviz(run, names={"slope": (2, 2), "sd": ()}).posterior
    assert arrays["slope"].shape == (3, 2, 2, 2)
    assert torch.equal(torch.from_numpy(arrays["sd"].values), DRAWS[..., 4].T)
    read = to_arviz(run, names=["total"], parameters=lambda x: x.sum(-1, keepdim=True)).posterior
    torch.testing.assert_close(torch.from_numpy(read["total"].values), DRAWS.sum(-1).T)


def log_density(x):
    return -0.5 * x.square().sum(-1)


def test_draws_of_a_distribution_with_a_chain_length():
    """As its docstring says. Chains of short steps: two draws of one are alike, and those of two are not."""
    options = {"step_size": 0.01, "num_steps": 400, "chain_length": 50, "seed": 0}
    posterior = DiffusionDistribution(log_density=log_density, event_shape=(2,), **options)
    draws = posterior.sample((6 * 50,)).reshape(6, 50, 2)
    data = to_arviz(draws.transpose(0, 1), names=["a", "b"]).posterior
    assert (data.sizes["chain"], data.sizes["draw"]) == (6, 50)
    assert torch.equal(torch.from_numpy(data["b"].values), draws[..., 1])
    assert abs(data["a"].diff("draw")).mean() < 0.2 < abs(data["a"].diff("chain")).mean()
    theirs = arviz.convert_to_dataset({"a": draws[..., 0].numpy()})
    assert theirs["a"].equals(data["a"])


def test_what_has_no_draws_in_itself():
    chain = Chain(
        Langevin(FunctionPotential(log_density=log_density)), DRAWS[0], integrator="em", step_size=0.1, seed=0
    )
    posterior = DiffusionDistribution(log_density=log_density, event_shape=(2,), particles=100, seed=0)
    tuning = tune(log_density, dim=2, particles=100, seed=0)
    for given, message in (
        (chain, r"got Chain: chain\.advance\(1000, thin=100\)"),
        (tuning, r"got Tuning: tuning\.sample\(10\)"),
        (posterior, r"got DiffusionDistribution: posterior\.tuning\.sample\(10\).*parameters=posterior\.constrain"),
        (None, "got NoneType$"),
    ):
        with pytest.raises(TypeError, match=message):
            to_arviz(given)
    assert to_arviz(chain.advance(1000, thin=100)).posterior.sizes["draw"] == 10
    assert to_arviz(tuning.sample(10)).posterior.sizes["chain"] == 100
    assert to_arviz(posterior.tuning.sample(10), parameters=posterior.constrain).posterior["x"].shape == (100, 10, 2)


@pytest.mark.filterwarnings("ignore:Passing a dict or None as alias_mapping:DeprecationWarning")
def test_arviz_s_own_summary_and_figures():
    generator = torch.Generator().manual_seed(0)
    data = to_arviz(torch.randn(50, 4, 2, generator=generator), names=["a", "b"])
    summary = arviz.summary(data)
    assert list(summary.index) == ["a", "b"]
    assert bool((summary["r_hat"] < 1.1).all())
    import matplotlib

    matplotlib.use("agg")
    assert arviz.plot_trace(data).shape == (2, 2)
    import matplotlib.pyplot as plt

    plt.close("all")


@pytest.mark.parametrize(
    ("draws", "options", "message"),
    [
        (torch.zeros(3, 2), {}, r"\(draws, particles, parameters\)"),
        (torch.zeros(3, 2, 2, dtype=torch.long), {}, "floating"),
        (torch.zeros(0, 2, 2), {}, "no draws"),
        (torch.full((3, 2, 2), math.nan), {}, "NaN"),
        (torch.zeros(3, 2, 2), {"names": ["a"]}, "names are for 1 parameters, and there are 2"),
    ],
)
def test_bad_input(draws, options, message):
    with pytest.raises(ValueError, match=message):
        to_arviz(draws, **options)
