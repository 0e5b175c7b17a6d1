"""``torchsrk sample``: every kind of target, what a folder holds, kills that change no byte, and what is refused."""

import csv
import re
import shutil
import signal
import sys
import time

import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch.distributions import Independent, constraints

from tests import forks
from torchsrk.checkpoints import load_checkpoint
from torchsrk.cli import main
from torchsrk.experiments.user_code import TargetError, target_at
from torchsrk.potentials import Banana, UnconstrainedPotential
from torchsrk.tuning import Tuning

from .test_runs import contents, refused

pytestmark = pytest.mark.usefixtures("plain_figures")
MODEL = """
import torch
from functools import partial
from torch import nn
from torch.distributions import Gamma, Normal, constraints
from torchsrk.potentials import Banana, FunctionPotential

def gamma(x):
    return (2.0 * x.log() - x).sum(-1)
gamma.event_shape = [2]
gamma.support = constraints.independent(constraints.positive, 1)
gamma.names = ["rate", "shape"]

def plain(x):
    return -0.5 * x.square().sum(-1)

def known(x):
    return plain(x)
known.dim = 3

class Energy(nn.Module):
    dim = 2
    def forward(self, x):
        return plain(x)

def scaled(x, scale):
    return plain(x / scale)

def loaded(file="nowhere.csv"):
    return known

def modes(x):
    return torch.logaddexp(plain(x - 20.0), plain(x + 20.0))
modes.dim = 1

def failing(x):
    return plain(x) + table["column"]
failing.dim, table = 2, {}

def nan(x):
    return plain(x) * torch.nan
nan.dim = 2

def wide(x):
    return x
wide.dim = 2

def flat(x):
    return 0.0 * plain(x)
flat.dim = 2

def raising():
    raise RuntimeError("there is\\nno data")

def shapeless(x):
    return plain(x)
shapeless.event_shape = "2"

def misnamed(x):
    return plain(x)
misnamed.dim, misnamed.names = 2, ["a"]

def arrays(x):
    return plain(x)
arrays.dim, arrays.names = 3, {"z": (2,), "tau": ()}

def shapes_of_text(x):
    return plain(x)
shapes_of_text.dim, shapes_of_text.names = 2, {"z": "2"}

def unsupported(x):
    return plain(x)
unsupported.dim, unsupported.support = 2, "positive"

half = partial(scaled, scale=0.5)
energy, scalar, batch, banana, number = Energy(), Gamma(3.0, 1.0), Normal(torch.zeros(3), 1.0), Banana(), 3
"""


@pytest.fixture(autouse=True)
def _imports_of_their_own(monkeypatch):
    """What a command imports, and from where, ends with its test."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith(("torchsrk_target_", "some_model")):
            del sys.modules[name]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    file = tmp_path_factory.mktemp("model") / "model.py"
    file.write_text(MODEL, encoding="utf-8")
    return file


def command(target, output, *more):
    return ["sample", str(target), "--output", str(output), "--particles", "256", "--draws", "3", *more]


@pytest.fixture(scope="module")
def finished(model, tmp_path_factory):
    output = tmp_path_factory.mktemp("finished") / "run"
    torch.set_default_dtype(torch.float64)
    assert main(command(f"{model}:gamma", output)) == 0
    return output


# ------------------------------------------------------------------------------------------------------ the targets


@pytest.mark.parametrize(
    ("name", "dim", "shape"),
    [
        ("gamma", None, (2,)),
        ("plain", 4, (4,)),
        ("known", None, (3,)),
        ("known", 3, (3,)),
        ("loaded", None, (3,)),  # needs no argument: makes the target
        ("Energy", None, (2,)),
        ("energy", None, (2,)),
        ("half", 2, (2,)),
        ("banana", None, (2,)),
        ("Banana", None, (2,)),
    ],
)
def test_log_densities_and_potentials(model, name, dim, shape):
    given = target_at(f"{model}:{name}", dim)
    assert given.event_shape == shape
    assert given.target(torch.ones(5, *shape)).shape == (5,)
    assert isinstance(given.target, Banana) == (name in ("banana", "Banana"))
    if name == "gamma":
        assert given.names == ("rate", "shape")
        assert given.support.base_constraint is constraints.positive


def test_names_of_arrays(model):
    assert target_at(f"{model}:arrays", None).names == ("z[0]", "z[1]", "tau")


def test_distributions_and_modules_by_name(model, monkeypatch, tmp_path):
    assert target_at(f"{model}:scalar", None).target.event_shape == ()
    batch = target_at(f"{model}:batch", None).target
    assert isinstance(batch, Independent)
    assert (batch.batch_shape, batch.event_shape) == ((), (3,))
    (tmp_path / "some_models").mkdir()
    (tmp_path / "some_models" / "__init__.py").write_text("")
    (tmp_path / "some_models" / "helper.py").write_text("dim = 7\n")
    (tmp_path / "some_models" / "first.py").write_text(
        "from .helper import dim\n\ndef density(x):\n    return -x.square().sum(-1)\n\ndensity.dim = dim\n"
    )
    monkeypatch.chdir(tmp_path)
    assert target_at("some_models.first:density", None).event_shape == (7,)
    with pytest.raises(TargetError, match=r"no module some_models\.second"):
        target_at("some_models.second:density", None)


def test_a_constrained_posterior(model, finished):
    """Gamma(3, 1): 768 draws know its mean to 0.06."""
    draws = load_file(finished / "draws.safetensors")["draws"]
    assert draws.shape == (3, 256, 2)
    assert bool((draws > 0.0).all())
    with (finished / "summary.csv").open() as table:
        rows = list(csv.DictReader(table))
    assert [row["name"] for row in rows] == ["rate", "shape"]
    assert {"mean", "error", "sd", "q5", "q50", "q95", "ess", "nested_rhat", "bias_mean", "bias_sd"} < set(rows[0])
    for i, row in enumerate(rows):
        values = draws[..., i].flatten()
        assert float(row["mean"]) == pytest.approx(float(values.mean()))
        assert float(row["sd"]) == pytest.approx(float(values.std()))
        assert float(row["q95"]) == pytest.approx(float(values.quantile(0.95, interpolation="nearest")))
        assert abs(float(row["mean"]) - 3.0) < 4.0 * float(row["error"]) < 1.0
    assert yaml.safe_load((finished / "config.yaml").read_text())["particles"] == 256
    assert (finished / "posterior.png").read_bytes().startswith(b"\x89PNG")
    summary = (finished / "summary.md").read_text()
    assert "| rate | " in summary
    assert "Nothing speaks against these draws." in summary
    given = target_at(f"{model}:gamma", None)
    plan = load_checkpoint(finished / "plan.safetensors")
    potential = UnconstrainedPotential(given.target, given.event_shape, given.support)
    again = potential.constrain(Tuning.restored(potential, plan).sample(3).trajectory)
    assert torch.equal(again, draws)


@pytest.mark.parametrize(("name", "shape"), [("scalar", ()), ("batch", (3,))])
def test_distributions(model, tmp_path, capsys, name, shape):
    assert main(command(f"{model}:{name}", tmp_path / "run")) == 0
    assert load_file(tmp_path / "run" / "draws.safetensors")["draws"].shape == (3, 256, *shape)
    shown = capsys.readouterr().out
    assert "| x[2] |" in shown if shape else "| x |" in shown


def test_a_potential_that_yaml_names(tmp_path):
    file, output = tmp_path / "target.yaml", tmp_path / "run"
    file.write_text("target: gaussian\ndim: 9\ncondition: 1e2\n")
    assert main(command(file, output)) == 0
    assert load_file(output / "draws.safetensors")["draws"].shape == (3, 256, 9)
    kept = yaml.safe_load((output / "config.yaml").read_text())
    assert kept["target"] == {"target": "gaussian", "dim": 9, "condition": 100.0}


def test_an_untrusted_posterior_has_a_code_of_its_own(model, tmp_path, capsys):
    assert main(command(f"{model}:modes", tmp_path / "run", "--particles", "200")) == 3
    shown = capsys.readouterr()
    assert "torchsrk: DO NOT TRUST these draws: particles remember where they were" in shown.err
    assert "Warning" not in shown.err
    assert "should NOT be trusted" in (tmp_path / "run" / "summary.md").read_text()


def test_compiled(model, tmp_path):
    assert main(command(f"{model}:known", tmp_path / "run", "--compile")) == 0


# ------------------------------------------------------------------------------------------------- stopped and resumed


def test_killed_and_resumed(model, tmp_path):
    output, whole = tmp_path / "run", tmp_path / "whole"

    def started(folder):
        return forks.Fork(forks.TORCHSRK, *command(f"{model}:gamma", folder, "--draws", "60", "--resume"))

    uncut = started(whole).ended()
    assert uncut.returncode == 0, uncut.stderr
    midway = 0
    for units in (0, 1, 10, 30):  # during tuning, after it, among the draws
        process = started(output)
        while process.running and not (
            (output / "config.yaml").exists() and len(list(output.glob("units/*.safetensors"))) >= units
        ):
            time.sleep(0.001)
        done = process.kill()
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        midway += not (output / "summary.md").exists()
    assert midway >= 2
    last = started(output).ended()
    assert last.returncode == 0, last.stderr
    assert contents(output) == contents(whole)


def test_a_finished_run_says_so_and_stays(model, finished, capsys):
    before = contents(finished)
    assert main(command(f"{model}:gamma", finished, "--resume")) == 0
    assert "is finished: nothing was drawn" in capsys.readouterr().out
    assert "holds a run" in refused(capsys, *command(f"{model}:gamma", finished))
    assert "different are: draws, seed" in refused(
        capsys, *command(f"{model}:gamma", finished, "--resume", "--seed", "3", "--draws", "4")
    )
    assert "different are: dim, target" in refused(
        capsys, *command(f"{model}:plain", finished, "--resume", "--dim", "2")
    )
    assert contents(finished) == before


def test_code_that_has_changed_is_refused(model, tmp_path, capsys):
    file, output = tmp_path / "some_model.py", tmp_path / "run"
    shutil.copy(model, file)
    assert main(command(f"{file}:known", output)) == 0
    before = contents(output)
    file.write_text(MODEL.replace("return plain(x)", "return 1.01 * plain(x)"))
    assert "a plan for another target" in refused_last(capsys, *command(f"{file}:known", output, "--resume"))
    file.write_text(MODEL + "# another word\n")
    assert main(command(f"{file}:known", output, "--resume")) == 0
    assert contents(output) == before


@pytest.mark.parametrize("unit", ["plan", "draws-2"])
def test_a_damaged_unit_is_refused(model, finished, tmp_path, capsys, unit):
    output = tmp_path / "run"
    shutil.copytree(finished, output)
    file = output / "units" / f"{unit}.safetensors"
    file.write_bytes(file.read_bytes()[:-9])
    before = contents(output)
    assert f"{file} is not a whole checkpoint" in refused_last(capsys, *command(f"{model}:gamma", output, "--resume"))
    assert contents(output) == before
    file.unlink()
    assert main(command(f"{model}:gamma", output, "--resume")) == 0
    assert contents(output) == contents(finished)


# ------------------------------------------------------------------------------------------------ what is refused


def refused_last(capsys, *arguments):
    """The error in the last line, whatever a command showed before it."""
    assert main([*arguments]) == 2
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith("torchsrk: error: ")
    return last


BAD = {
    "no module": ("nowhere:density", "there is no module nowhere"),
    "no colon": ("nowhere", "expected MODULE:NAME, FILE.py:NAME or a YAML file"),
    "no name": ("{model}:", "expected MODULE:NAME"),
    "no file": ("nowhere.py:density", "nowhere.py: there is no such file"),
    "no YAML": ("nowhere.yaml", "nowhere.yaml: there is no such file"),
    "a path without .py": ("some/model:density", "neither the name of a module"),
    "no function": ("{model}:nothing", "there is no nothing in"),
    "not callable": ("{model}:number", "expected a log density .* got <class 'int'>"),
    "a class": ("{model}:Gamma", "the class Gamma, which needs arguments"),
    "a class that asks": ("{model}:FunctionPotential", "give exactly one of energy= .* and log_density="),
    "no dim": ("{model}:plain", "dimension of its points is not known: give --dim"),
    "a shape of text": ("{model}:shapeless", "a shape is one of positive integers"),
    "too few names": ("{model}:misnamed", "it has 2 parameters, and the attribute `names` has 1"),
    "shapes of text": ("{model}:shapes_of_text", "a dict from names to the shapes of arrays"),
    "no constraint": ("{model}:unsupported", "one of torch.distributions.constraints"),
    "two dims": ("{model}:known --dim 2", r"have the shape \(3,\), and --dim is 2"),
    "dim of a distribution": ("{model}:batch --dim 3", "leave --dim out"),
    "NaN": ("{model}:nan", "finite"),
    "no one number a point": ("{model}:wide", "one number a point"),
    "flat": ("{model}:flat", "model.py:flat: "),
    "draws": ("{model}:known --draws 0", "draws: expected a number from 1"),
    "particles": ("{model}:known --particles 3", "particles: expected a number from 32"),
    "tolerance": ("{model}:known --tolerance -1", "tolerance: expected a number above 0"),
    "seed": ("{model}:known --seed -1", "seed: expected a number from 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line(model, tmp_path, capsys, name):
    target, message = BAD[name]
    target, *options = target.format(model=model).split()
    shown = refused(capsys, *command(target, tmp_path / "run", *options))
    assert re.search(message, shown)
    assert shown.count("\n") == 1
    assert not (tmp_path / "run" / "config.yaml").exists()


YAMLS = {
    "code": ("target: os:system", "expected one of mixture.* A config can't run code: give MODULE:NAME to the command"),
    "a tag": ("target: !!python/name:os.system", "tags such as"),
    "misspelt": ("target: gausian", r"did you mean gaussian\?"),
    "no target": ("dim: 3", "target: this key is missing"),
    "another's key": ("target: banana\ndim: 3", "dim: there is no such key"),
    "a value": ("target: mixture\ndim: many", "dim: expected a whole number"),
    "a list": ("target: [mixture]", "expected one of"),
}


@pytest.mark.parametrize("name", YAMLS)
def test_a_yaml_names_no_code(tmp_path, capsys, name):
    text, message = YAMLS[name]
    file = tmp_path / "target.yaml"
    file.write_text(text)
    shown = refused(capsys, *command(file, tmp_path / "run"))
    assert re.search(message, shown)
    assert str(file) in shown
    assert not (tmp_path / "run").exists()


def test_a_yaml_has_its_own_dim(tmp_path, capsys):
    (tmp_path / "target.yaml").write_text("target: mixture")
    assert "give dim in the file" in refused(capsys, *command(tmp_path / "target.yaml", tmp_path / "run", "--dim", "3"))


@pytest.mark.parametrize(
    ("name", "message"), [("failing", "KeyError: 'column'"), ("raising", "RuntimeError: there is no data")]
)
def test_an_error_of_their_code_has_a_trace_of_their_code_alone(model, tmp_path, capsys, name, message):
    assert main(command(f"{model}:{name}", tmp_path / "run")) == 2
    shown = capsys.readouterr().err
    assert shown.splitlines()[-1] == f"torchsrk: error: {model}:{name}: {message}"
    assert shown.startswith("Traceback")
    assert set(re.findall(r'File "(.*?)"', shown)) == {str(model)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def density(x:\n", "SyntaxError: "),
        ("import no_such_thing\n", "ModuleNotFoundError: No module named 'no_such_thing'"),
        ("open('no_such_file')\n", "FileNotFoundError: "),
        ("import sys\nsys.exit(0)\n", "its code ends the process"),
    ],
)
def test_a_module_that_does_not_import(tmp_path, capsys, text, message):
    (tmp_path / "some_model.py").write_text(text)
    shown = refused_last(capsys, *command(f"{tmp_path}/some_model.py:density", tmp_path / "run"))
    assert f"some_model.py:density: {message}" in shown
    assert not (tmp_path / "run").exists()


def test_after_a_failure_the_same_command_starts_afresh(model, tmp_path, capsys):
    file, output = tmp_path / "some_model.py", tmp_path / "run"
    shutil.copy(model, file)
    refused_last(capsys, *command(f"{file}:failing", output))
    file.write_text(MODEL.replace("table = 2, {}", "table = 2, {'column': 1.0}"))
    assert main(command(f"{file}:failing", output)) == 0


def test_a_report_of_a_posterior(finished, tmp_path):
    assert main(["report", str(finished), "--output", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "data:image/png" in page
    assert "<td>rate</td>" in page
    assert "<p>|" not in page


def test_help_tells_the_exit_codes(capsys):
    with pytest.raises(SystemExit):
        main(["sample", "--help"])
    shown = capsys.readouterr().out
    assert "3 done, but the draws should not be trusted" in shown
    assert "mixture|regression|gaussian|banana|non-convex" in shown
