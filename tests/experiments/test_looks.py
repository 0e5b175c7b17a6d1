"""What figures are made of: colours and markers, marks below a logarithmic axis, axes of either sign."""

import importlib.util
from pathlib import Path

import pytest

from torchsrk.experiments import plots
from torchsrk.experiments.scheme_figures import _style
from torchsrk.experiments.scheme_moments import scheme_names

ROOT = Path(__file__).parent.parent.parent


def test_no_two_schemes_share_colour_and_marker():
    looks = [(_style(scheme)["color"], _style(scheme)["marker"]) for scheme in scheme_names()]
    assert len(set(looks)) == len(looks) >= 17
    assert [_style(scheme)["color"] for scheme in plots.LABELS] == list(plots.COLOR_OF.values())
    pairs = [tuple(plots.combination(number).values()) for number in range(len(plots.COLORS) * len(plots.MARKERS))]
    assert len(set(pairs)) == len(pairs)
    with pytest.raises(ValueError, match="104 pairs; got number 104"):
        plots.combination(104)


def test_colours_of_code_style_and_documentation_are_one():
    from matplotlib import rc_params_from_file

    cycle = rc_params_from_file(plots.STYLE, use_default_template=False)["axes.prop_cycle"].by_key()["color"]
    assert cycle == list(plots.COLORS)
    spec = importlib.util.spec_from_file_location("style", ROOT / "docs" / "extensions" / "style.py")
    style = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(style)
    assert style.STYLE["axes.prop_cycle"].by_key()["color"] == cycle


def test_points_below_zero_are_hollow_at_the_end_of_their_bar_or_at_the_floor():
    _, (axis,) = plots.panels(1)
    values = {"x": [1, 2, 3, 4], "y": [0.5, -0.1, -0.3, 0.0], "bars": [0.1, 0.3, 0.2, 0.05]}
    plots.points_above_zero(axis, **values, floor=0.1, color="red", label="particles")
    (hollow,) = [line for line in axis.lines if line.get_label() == plots.BELOW]
    assert hollow.get_xydata().tolist() == [[2, pytest.approx(0.2)], [3, 0.1], [4, 0.1]]
    assert hollow.get_fillstyle() == "none"
    (points, *_) = axis.containers[0]
    assert points.get_xydata().tolist() == [[1, 0.5]]


@pytest.mark.parametrize(
    ("noise", "linear"), [([0.002, 0.2], 1e-2), ([3e-4, 3e-4], 1e-4), ([0.0, 0.05], 0.1), ([], 1e-3)]
)
def test_an_axis_of_either_sign_is_linear_within_the_noise(noise, linear):
    _, (axis,) = plots.panels(1)
    plots.scale_signed(axis, noise)
    assert axis.yaxis.get_transform().linthresh == pytest.approx(linear)


@pytest.mark.parametrize(
    ("limits", "labels"), [((4.0, 60.0), ["5", "10", "20", "50"]), ((1.0, 5e3), ["1", "10", "100", "1000"])]
)
def test_labels_at_round_numbers(limits, labels):
    _, (axis,) = plots.panels(1)
    axis.set(xscale="log", xlim=limits)
    plots.label_round_numbers(axis.xaxis)
    assert [label.get_text() for label in axis.get_xticklabels()] == labels


def test_a_lighter_colour_is_between_it_and_white():
    assert plots.lighter("#000000", 1.0) == (0.0, 0.0, 0.0)
    assert plots.lighter("#000000", 0.25) == pytest.approx((0.75, 0.75, 0.75))


@pytest.fixture
def keep_figures():
    spec = importlib.util.spec_from_file_location("keep_figures", ROOT / "scripts" / "keep_figures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_figures_are_kept_with_their_tables(keep_figures, tmp_path):
    run, into = tmp_path / "fig1", tmp_path / "kept"
    run.mkdir()
    into.mkdir()
    with pytest.raises(SystemExit, match="holds no finished run"):
        keep_figures.keep(run, {}, into)
    (run / "summary.md").write_text("# a\n")
    for name in ("a.png", "a.svg", "errors.csv"):
        (run / name).write_bytes(b"x")
    assert keep_figures.names_of(run) == {"a": "fig1"}
    assert keep_figures.keep(run, keep_figures.names_of(run), into) == []
    assert sorted(file.name for file in into.iterdir()) == ["fig1-errors.csv", "fig1.png", "fig1.svg"]
    (run / "a.svg").write_bytes(b"x" * 300_001)
    assert keep_figures.keep(run, {"a": "fig1"}, into) == ["fig1.svg: 300 kB, and the most is 300"]
    assert not (into / "fig1.svg").exists()
    (run / "b.png").write_bytes(b"x")
    assert keep_figures.names_of(run) == {"a": "fig1-a", "b": "fig1-b"}
    with pytest.raises(SystemExit, match=r"has no c\.png; its figures are a, b"):
        keep_figures.keep(run, {"c": "c"}, into)
