"""Draws as ArviZ takes them."""

import math

import pytest
import torch

from torchsrk import Run, to_arviz

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
