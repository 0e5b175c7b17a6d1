"""A posterior on one page."""

import pytest
import torch

from torchsrk import Run, UnderdampedLangevin, diagnose, sample
from torchsrk.plots import posterior_figure
from torchsrk.potentials import FunctionPotential

SDE = UnderdampedLangevin(FunctionPotential(lambda x: 0.5 * x.square().sum(-1), dim=10), friction=1.5)
OPTIONS = {"integrator": "baoab", "step_size": 0.5}


@pytest.fixture(scope="module")
def run():
    x0 = torch.randn(500, 10, generator=torch.Generator().manual_seed(0))
    return sample(SDE, x0, burn_in=20, num_steps=100, thin=10, seed=0, **OPTIONS)


def labels(figure):
    return [(axis.get_xlabel(), axis.get_ylabel()) for axis in figure.axes]


def drawn(figure, file):
    figure.savefig(file, format="png")
    return file.stat().st_size > 10_000


def test_all_of_it(run, tmp_path):
    diagnosis = diagnose(run, sde=SDE, names={"slope": (9,), "sd": ()}, **OPTIONS)
    figure = posterior_figure(run, diagnosis=diagnosis, reference=torch.randn(2000, 10), most=3)
    assert len(figure.axes) == 3 * 2 + 2
    assert {label for pair in labels(figure) for label in pair} >= {
        *("slope[0]", "slope[2]", "kept draw", "density", "nested R-hat", "bias of the step, in sd"),
    }
    legends = [text.get_text() for axis in figure.axes if axis.get_legend() for text in axis.get_legend().get_texts()]
    assert {"run", "reference", "tolerance", "means", "standard deviations", "independent draws"} <= set(legends)
    assert drawn(figure, tmp_path / "figure.png")


def test_parts_that_are_not_known_are_not_drawn(run, tmp_path):
    assert len(posterior_figure(run).axes) == 8 * 2 + 1
    alone = Run(run.final, None, run.state, run.step)
    assert len(posterior_figure(alone, most=2, names=list("abcdefghij")).axes) == 2
    single = Run(run.final[:1], run.trajectory[:, :1], run.state[:1], run.step)
    assert len(posterior_figure(single, most=2).axes) == 4
    one = posterior_figure(run, parameters=lambda x: x[..., :1].exp() * 0.0 + 1.0)
    assert drawn(one, tmp_path / "constant.png")


def test_the_diagnosis_says_what_is_read(run):
    diagnosis = diagnose(run, parameters=lambda x: x[..., :2].exp(), names=["a", "b"])
    assert len(posterior_figure(run, diagnosis=diagnosis).axes) == 2 * 2 + 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"most": 0}, "most"),
        ({"names": ["a"]}, "names are for 1 parameters, and there are 10"),
        ({"reference": torch.zeros(5, 3)}, r"\(draws, 10\)"),
        ({"reference": [1.0]}, "list"),
    ],
)
def test_bad_input(run, options, message):
    with pytest.raises(ValueError, match=message):
        posterior_figure(run, **options)


def test_a_diagnosis_of_another_run(run):
    other = diagnose(run, parameters=lambda x: x[..., :2])
    with pytest.raises(ValueError, match="of 2 parameters, and the run has 10"):
        posterior_figure(run, diagnosis=other, parameters=lambda x: x)
