"""Schemes, potentials and experiments of the user's own: named in configs after ``--import``, and refused before."""

import json
import sys

import pytest
import torch
import yaml

from torchsrk import __version__, experiments
from torchsrk.cli import main
from torchsrk.experiments import named_potentials, register_experiment, register_potential
from torchsrk.experiments.no_numbers import no_numbers
from torchsrk.integrators import base

CODE = """
import sys
from dataclasses import dataclass

import torch
from matplotlib.figure import Figure

from torchsrk import EulerMaruyama, Integrator, Langevin, sample
from torchsrk.experiments import register_experiment
from torchsrk.experiments import Conclusion, Finding, SchemeName, register_potential
from torchsrk.potentials import FunctionPotential


class Mine(Integrator):
    name = "my-scheme"
    gradients_per_step = 1
    strong_order_additive = 1.0

    def step(self, sde, t, state, increment):
        return EulerMaruyama().step(sde, t, state, increment)


@dataclass(frozen=True)
class Bowl:
    stiffness: float = 1.0

    def potential(self, context):
        return FunctionPotential(lambda x: 0.5 * self.stiffness * x.square().sum(-1), 2)


@dataclass(frozen=True)
class Settings:
    count: int = 2
    fails: bool = False
    scheme: SchemeName = "my-scheme"
    no_numbers: tuple[int, ...] = (9,)

    def __post_init__(self):
        if self.count == 77:
            raise ValueError("77 units are too many")


def plan(settings):
    if settings.count == 66:
        raise ValueError("66 units are no plan")
    return {f"unit-{k}": k for k in range(settings.count)}


def measure(settings, k, context):
    if settings.fails:
        away = Langevin(FunctionPotential(energy=lambda x: x.pow(4).sum(-1)))
        sample(away, torch.full((2, 1), 1e3), integrator="em", step_size=1.0, num_steps=9, seed=0)
    return {"value": float("nan") if k in settings.no_numbers else float(k), "parts": [{"a": torch.ones(2)}]}


def conclude(settings, results):
    total = sum(result["value"] for result in results.values())
    figure = Figure()
    figure.subplots().plot([0, total])
    return Conclusion({"values": [{"total": total}]}, {"line": figure}, [Finding(f"the sum is {total:g}", True)])


register_potential("my-bowl", Bowl)
register_experiment("my-experiment", sys.modules[__name__])
"""


@pytest.fixture
def code(tmp_path, monkeypatch):
    """The user's file, with registries that forget it afterwards."""
    monkeypatch.setattr(base, "_REGISTRY", dict(base._REGISTRY))
    monkeypatch.setattr(experiments, "_REGISTERED", {})
    monkeypatch.setattr(named_potentials, "_KINDS", dict(named_potentials._KINDS))
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("mine", "helper", "other"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(CODE, encoding="utf-8")
    return "mine.py"


def config(folder, **entries):
    (folder / "config.yaml").write_text(yaml.safe_dump({"description": "Mine", "settings": {}, **entries}), "utf-8")
    return "config.yaml"


def test_an_experiment(code, tmp_path, capsys):
    file = config(tmp_path, experiment="my-experiment")
    assert main(["run", file]) == 2
    error = capsys.readouterr().err
    assert "experiment: expected one of asymptotic, " in error
    assert "or a name that --import MODULE registers" in error
    assert main(["run", file, "--import", code, "--settings.count", "3", "--output", "out"]) == 0
    assert "holds: the sum is 3" in capsys.readouterr().out
    assert (tmp_path / "out" / "values.csv").read_text(encoding="utf-8").split() == ["total", "3.0"]
    assert (tmp_path / "out" / "line.png").read_bytes().startswith(b"\x89PNG")
    assert main(["run", file, "--import", code, "--settings.fails", "true", "--output", "other"]) == 2
    assert "error: unit-0: 2 of 2 particles are not finite" in capsys.readouterr().err


def test_a_plan_of_names(code, tmp_path, capsys):
    """Each is its own case."""
    named = CODE.replace('{f"unit-{k}": k for k in range(settings.count)}', "[str(k) for k in range(settings.count)]")
    (tmp_path / code).write_text(named, encoding="utf-8")
    file = config(tmp_path, experiment="my-experiment")
    assert main(["run", file, "--import", code, "--settings.count", "4", "--output", "out"]) == 0
    assert "holds: the sum is 6" in capsys.readouterr().out
    assert sorted(unit.stem for unit in (tmp_path / "out" / "units").iterdir()) == ["0", "1", "2", "3"]


def test_a_scheme(code, capsys):
    asked = ["run", "schemes", "--print_config", "--settings.schemes", "[em, my-scheme]"]
    assert main(asked) == 2
    assert "settings.schemes[1]: expected one of baoab, " in capsys.readouterr().err
    assert main([*asked, "--import", code]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["settings"]["schemes"] == ["em", "my-scheme"]


def test_a_scheme_beside_the_shipped_ones(code, tmp_path, capsys):
    """To the end: with its name in tables, figures and findings."""
    target = "[{kind: gaussian, dim: 4, condition: 4.0, tolerance: 0.3, particles: 200, many: 400}]"
    asked = ["run", "schemes", "--import", code, "--settings.schemes", "[em, baoab, my-scheme]", "--output", "out"]
    assert main([*asked, "--settings.targets", target]) == 0
    assert "my-scheme" in (tmp_path / "out" / "summary.md").read_text(encoding="utf-8")


def test_a_scheme_without_a_known_law_is_refused_by_name_where_one_is_needed(code, capsys):
    assert main(["run", "asymptotic", "--print_config", "--settings.schemes", "[my-scheme]"]) == 2
    assert "settings.schemes[0]: expected one of baoab, " in capsys.readouterr().err
    for config in ("asymptotic", "fig1a", "quickstart", "rates"):
        assert main(["run", config, "--import", code, "--print_config", "--settings.schemes", "[em, my-scheme]"]) == 2
        error = capsys.readouterr().err
        assert "schemes: laws are known of em, " in error
        assert "got 'my-scheme', which has none here" in error


def test_a_potential(code, tmp_path, capsys):
    (tmp_path / "bowl.yaml").write_text("target: my-bowl\nstiffness: 4.0\n", encoding="utf-8")
    asked = ["sample", "bowl.yaml", "--output", "out", "--particles", "100", "--draws", "5"]
    assert main(asked) == 2
    assert "target: expected one of mixture, regression" in capsys.readouterr().err
    assert main([*asked, "--import", code]) in (0, 3)
    assert (tmp_path / "out" / "summary.md").is_file()


def test_a_potential_without_known_moments_is_refused_where_they_are_needed(code, capsys):
    target = "[{kind: my-bowl, dim: 2, tolerance: 0.3, particles: 200, many: 400}]"
    assert main(["run", "schemes", "--import", code, "--print_config", "--settings.targets", target]) == 2
    error = capsys.readouterr().err
    assert "settings.targets[0].kind: expected one of mixture, regression, gaussian, banana; got 'my-bowl'" in error
    assert "`torchsrk sample` draws from it" in error


def test_code_that_is_not_there_or_fails(code, tmp_path, capsys):
    for name in ("absent", "absent.py"):
        assert main(["run", "fig1a", "--import", name]) == 2
        assert "absent" in capsys.readouterr().err
    (tmp_path / "broken.py").write_text("raise KeyError('mine')\n", encoding="utf-8")
    assert main(["run", "fig1a", "--import", "broken.py"]) == 2
    error = capsys.readouterr().err
    assert "broken.py: KeyError: 'mine'" in error
    assert 'broken.py", line 1' in error


def test_names_that_are_taken_and_things_that_are_none():
    with pytest.raises(ValueError, match="'schemes' is the name of one of torchsrk's own"):
        register_experiment("schemes", named_experiment())
    with pytest.raises(TypeError, match="has no plan, measure, conclude"):
        register_experiment("other", type("Other", (), {"Settings": int}))
    with pytest.raises(ValueError, match="'banana' is the name of one"):
        register_potential("banana", named_potentials._KINDS["banana"])
    with pytest.raises(TypeError, match="no dataclass with a method potential"):
        register_potential("other", int)


def named_experiment():
    return experiments.experiment_named("schemes")


def test_the_nearest_config(capsys):
    assert main(["run", "fig1aa"]) == 2
    assert "(did you mean fig1a?)" in capsys.readouterr().err
    assert main(["theory", "configs/theori.yaml"]) == 2
    assert "(did you mean theory?)" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--version"], ["run", "--help"]])
def test_version_and_help(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    if arguments == ["--version"]:
        assert shown == f"torchsrk {__version__}\n"
    else:
        for text in ("--profile quick|full|paper", "--seed N", "--device auto|cpu|cuda", "--dtype float32|float64"):
            assert text in shown


def test_the_version_of_the_installed_package():
    from importlib.metadata import version

    assert version("torchsrk") == __version__


def test_a_run_goes_on_with_the_code_that_it_was_begun_with_alone(code, tmp_path, capsys):
    """A module beside the one that is named is as much a part of it."""
    (tmp_path / "helper.py").write_text("FACTOR = 1.0\n", encoding="utf-8")
    (tmp_path / code).write_text("from helper import FACTOR\n" + CODE, encoding="utf-8")
    file = config(tmp_path, experiment="my-experiment")
    asked = ["run", file, "--output", "out", "--import"]
    again = ["run", file, "--output", "out", "--resume", "--import"]
    assert main([*asked, code]) == 0
    (noted,) = json.loads((tmp_path / "out" / "provenance.json").read_text(encoding="utf-8"))
    assert sorted(noted["imported"][code]) == ["helper.py", "mine.py"]
    digest = noted["imported"][code]["mine.py"]
    assert f"mine.py (SHA-256 {digest[:12]})" in (tmp_path / "out" / "summary.md").read_text(encoding="utf-8")
    assert main(["report", "out", "--output", "page.html"]) == 0
    assert digest in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert main([*again, code]) == 0
    assert main([*again, "mine"]) == 0  # the same file
    capsys.readouterr()
    for edited in ("helper.py", code):
        before = (tmp_path / edited).read_text(encoding="utf-8")
        (tmp_path / edited).write_text(before + "# another\n", encoding="utf-8")
        assert main([*again, code]) == 2
        error = capsys.readouterr().err
        assert f"holds results of other code: {edited} was edited since" in error
        assert "give another --output, or put the code back as it was" in error
        (tmp_path / edited).write_text(before, encoding="utf-8")
    assert main([*again, code]) == 0


def test_a_run_with_and_without_an_import_are_two(code, tmp_path, capsys):
    small = "[{kind: gaussian, dim: 2, condition: 4.0, tolerance: 0.3, particles: 200, many: 400}]"
    asked = ["run", "schemes", "--settings.schemes", "[em, baoab]", "--settings.targets", small, "--output"]
    assert main([*asked, "with", "--import", code]) == 0
    assert main([*asked, "without"]) == 0
    capsys.readouterr()
    assert main([*asked, "with", "--resume"]) == 2
    error = capsys.readouterr().err
    assert "it was begun with --import mine.py, and now nothing is imported" in error
    assert error.endswith("give another --output, or --import mine.py\n")
    assert main([*asked, "without", "--resume", "--import", code]) == 2
    assert "begun without --import, and now mine.py is imported" in capsys.readouterr().err


def test_other_versions_than_a_run_was_begun_with_are_told(code, tmp_path, capsys):
    file = config(tmp_path, experiment="my-experiment")
    assert main(["run", file, "--import", code, "--output", "out"]) == 0
    provenance = tmp_path / "out" / "provenance.json"
    (noted,) = json.loads(provenance.read_text(encoding="utf-8"))
    noted["versions"]["torchsrk"] = "0.0.1"
    provenance.write_text(json.dumps([noted]), encoding="utf-8")
    capsys.readouterr()
    assert main(["run", file, "--import", code, "--output", "out", "--resume"]) == 0
    assert "out holds results of other versions" in (error := capsys.readouterr().err)
    assert "torchsrk 0.0.1 -> " in error
    assert main(["run", file, "--import", code, "--output", "out", "--resume"]) == 0  # told once
    assert "other versions" not in capsys.readouterr().err


@pytest.mark.parametrize("imports", [["mine", "mine.py"], ["mine.py", "other.py"], ["other.py", "mine.py"]])
def test_a_file_may_be_imported_twice(code, tmp_path, capsys, imports):
    """By both of its names, or by another module, too."""
    (tmp_path / "other.py").write_text("import mine\n", encoding="utf-8")
    file = config(tmp_path, experiment="my-experiment")
    given = [part for name in imports for part in ("--import", name)]
    assert main(["run", file, *given, "--output", "out"]) == 0, capsys.readouterr().err


def test_settings_that_do_not_go_together_are_an_error_of_the_config(code, tmp_path, capsys):
    """Whether the settings see it or the plan, and whichever error of values they raise."""
    file = config(tmp_path, experiment="my-experiment")
    asked = ["run", file, "--import", code, "--output", "out", "--settings.count"]
    for count, said in (("77", "77 units are too many"), ("66", "66 units are no plan")):
        assert main([*asked, count]) == 2
        assert capsys.readouterr().err == f"torchsrk: error: config.yaml: settings: {said}\n"
    assert not (tmp_path / "out").exists()


def test_names_of_schemes_in_settings_of_ones_own(code, tmp_path, capsys):
    file = config(tmp_path, experiment="my-experiment")
    asked = ["run", file, "--import", code, "--print_config", "--settings.scheme"]
    assert main([*asked, "my-schem"]) == 2
    error = capsys.readouterr().err
    assert "config.yaml: settings.scheme: expected one of baoab, " in error
    assert "(did you mean my-scheme?)" in error
    assert main([*asked, "em"]) == 0


def test_what_is_no_number_is_told(code, tmp_path, capsys):
    file = config(tmp_path, experiment="my-experiment")
    asked = ["run", file, "--import", code, "--output", "out", "--settings.count", "3"]
    assert main([*asked, "--settings.no_numbers", "[1]"]) == 0
    told = "NOT A NUMBER: value of unit-1 is NaN"
    assert told in capsys.readouterr().out
    assert f"- {told}" in (tmp_path / "out" / "summary.md").read_text(encoding="utf-8")


def test_no_numbers_wherever_they_are():
    nan = float("nan")
    results = {
        "a": {"x": [1.0, {"y": nan}], "z": torch.tensor([1.0, nan]), "infinite": float("inf")},
        "b": {"x": "nan"},
    }
    assert no_numbers(results) == ["NOT A NUMBER: x of a is NaN", "NOT A NUMBER: z of a is NaN"]
    assert no_numbers({str(k): {"x": nan} for k in range(13)})[-1] == "NOT A NUMBER: 3 more"


@pytest.mark.parametrize("command", [["run", "rign.yaml"], ["sample", "rign.yaml", "--output", "out"]])
def test_a_file_that_was_mistyped(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ring.yaml").write_text("target: ring\n", encoding="utf-8")
    assert main(command) == 2
    assert "rign.yaml: there is no such file" in (error := capsys.readouterr().err)
    assert "(did you mean ring.yaml?)" in error
