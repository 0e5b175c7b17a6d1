"""More parameters than are shown: the worst ones are among them."""

import pytest
import torch

from torchsrk import Run, diagnose
from torchsrk.plots import posterior_figure

COUNT, STUCK, DRIFTS, HEAVY = 90, 77, 60, 83


@pytest.fixture(scope="module")
def run():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(10, 500, COUNT, generator=generator)
    x[..., STUCK] = 0.3 * x[..., STUCK] + torch.randn(500, generator=generator)
    x[..., DRIFTS] += torch.linspace(0.0, 3.0, 10).unsqueeze(1)
    x[..., HEAVY] /= x[..., 0].abs()
    return Run(x[-1], x, x[-1], 10)


@pytest.fixture(scope="module")
def diagnosis(run):
    with pytest.warns(RuntimeWarning, match="should not be trusted"):
        return diagnose(run, names={"a": (60,), "b": (COUNT - 60,)})


def test_the_worst_are_printed(diagnosis):
    assert set(diagnosis.worst[:3]) >= {"b[17]", "b[0]"}
    assert "b[23]" in diagnosis.worst[:5]
    assert sorted(diagnosis.worst) == sorted(diagnosis.names)
    lines = str(diagnosis).splitlines()
    shown = [line.split()[0] for line in lines[2:42]]
    assert len(set(shown)) == 40
    assert {"b[17]", "b[0]", "b[23]", "a[0]", "a[5]"} <= set(shown)
    assert "50 more parameters: above are the 20 worst and then the first; rows() has all" in lines[42]


def test_few_are_printed_in_order(run):
    lines = str(diagnose(run, parameters=lambda x: x[..., 1:41])).splitlines()
    assert [line.split()[0] for line in lines[2:42]] == [f"x[{k}]" for k in range(40)]


def test_a_fine_line_says_what_is_allowed(run):
    said = str(diagnose(run, parameters=lambda x: x[..., :5]))
    assert "have forgotten where they started" in said
    assert "is allowed" in next(line for line in said.splitlines() if "nested R-hat of" in line)


def shown_in(figure):
    return [axis.get_ylabel() for axis in figure.axes[:-1:2]]


def test_a_figure_shows_the_troubled_or_the_chosen(run, diagnosis):
    with_troubles = shown_in(posterior_figure(run, diagnosis=diagnosis, most=6))
    assert {"b[0]", "b[17]", "b[23]"} < set(with_troubles)
    assert with_troubles[:3] == ["a[0]", "a[1]", "a[2]"]
    assert shown_in(posterior_figure(run, diagnosis=diagnosis, only=["b[3]", "a[59]"])) == ["b[3]", "a[59]"]
    assert len(shown_in(posterior_figure(run, diagnosis=diagnosis, only=["b"]))) == COUNT - 60
    for wrong in (["c"], "a", []):
        with pytest.raises(ValueError, match=r"only is a list|no parameter 'c'; there are a\[0\]"):
            posterior_figure(run, diagnosis=diagnosis, only=wrong)
