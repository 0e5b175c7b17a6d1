"""Runs: what a folder holds, that a killed one ends with the same bytes, and that nothing is overwritten."""

import csv
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
import yaml
from safetensors.torch import load_file

from tests import forks
from torchsrk.cli import main
from torchsrk.experiments.config import ConfigError
from torchsrk.experiments.folder import FolderError, RunFolder
from torchsrk.experiments.runs import load_config, resolved

pytestmark = pytest.mark.usefixtures("plain_figures")
TEXT = """
experiment: asymptotic
description: a small one
compile: false
settings:
  panels: [{against: step_size, dims: [2], step_sizes: [0.5, 1.0, 1.5]}]
  particles: 300
  repeats: 2
  time: 8
quick: {particles: 100}
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    file = tmp_path_factory.mktemp("config") / "small.yaml"
    file.write_text(TEXT, encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def unbroken(config, tmp_path_factory):
    output = tmp_path_factory.mktemp("unbroken") / "run"
    assert main(["run", str(config), "--output", str(output)]) == 0
    return output


def contents(folder):
    """All files that a run's config determines."""
    apart = {".lock", "provenance.json"}
    files = [file for file in folder.rglob("*") if file.is_file() and file.name not in apart]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def refused(capsys, *arguments):
    """The error of a command that must fail, in one line."""
    assert main([*arguments]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("torchsrk: error: ")
    assert "Traceback" not in shown
    return shown


def test_a_folder_holds_everything(unbroken):
    assert yaml.safe_load((unbroken / "config.yaml").read_text())["settings"]["particles"] == 100
    (provenance,) = json.loads((unbroken / "provenance.json").read_text())
    assert provenance["versions"]["torch"]
    assert {"commit", "seed", "device"} <= set(provenance)
    with (unbroken / "errors.csv").open() as table:
        rows = list(csv.DictReader(table))
    assert len(rows) == 6
    assert all(float(row["standard_error"]) > 0 for row in rows)
    assert (unbroken / "asymptotic.png").read_bytes().startswith(b"\x89PNG")
    samples = load_file(unbroken / "samples.safetensors")
    assert len(samples) == 6
    assert all(cloud.shape == (100, 2) for cloud in samples.values())
    assert "holds: d = 2: SRK-LD's W2² is below Euler-Maruyama's at 3 of 3" in (unbroken / "summary.md").read_text()


def test_progress_is_nested_on_a_terminal_and_lines_elsewhere(config, tmp_path, capsys, monkeypatch):
    assert main(["run", str(config), "--output", str(tmp_path / "lines")]) == 0
    shown = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in shown[:2]] == ["[1/6] em-d2-h0.5", "[2/6] srk-ld-d2-h0.5"]
    assert len(shown) == 6
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["run", str(config), "--output", str(tmp_path / "bars")]) == 0
    shown = capsys.readouterr().err
    assert "srk-ld-d2-h1.5: 100%" in shown
    assert re.search(r"6/6 \[.*unit/s\]", shown)
    assert re.search(r"0/2 \[.*repeat/s\]", shown)


def test_the_resolved_config_gives_the_same_run(unbroken, tmp_path):
    again = tmp_path / "again.yaml"
    shutil.copy(unbroken / "config.yaml", again)
    assert main(["run", str(again), "--output", str(tmp_path / "run")]) == 0
    assert contents(tmp_path / "run") == contents(unbroken)


@pytest.mark.long
def test_killed_at_six_moments(config, tmp_path):
    """Processes that start within milliseconds, so that kills meet the run itself and not the import of torch."""
    output, whole = tmp_path / "run", tmp_path / "whole"
    command = ["run", str(config), "--settings.time", "20", "--output"]

    def started(*arguments):
        return forks.Fork(forks.TORCHSRK, *command, *arguments)

    started(str(tmp_path / "first")).kill()  # the server itself takes a while to start
    start = time.perf_counter()
    done = started(str(whole)).ended()
    assert done.returncode == 0, done.stderr
    length = time.perf_counter() - start
    moments, midway = random.Random(0), 0
    for attempt in range(6):
        # By turns at any moment, and right after a unit: so that some kills are in the middle on any machine.
        before = len(list(output.glob("units/*.safetensors")))  # whole ones: some more are being written
        if attempt % 2 and before == 6:
            shutil.rmtree(output)
            before = 0
        deadline = time.perf_counter() + (60.0 if attempt % 2 else moments.uniform(0.0, 0.9) * length)
        process = started(str(output), "--resume")
        while process.running and time.perf_counter() < deadline:
            if attempt % 2 and len(list(output.glob("units/*.safetensors"))) > before:
                break
            time.sleep(0.005)
        done = process.kill()
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        midway += 0 < len(list(output.glob("units/*.safetensors"))) < 6
        if done.returncode == 0:  # done before its time: from the start again
            assert contents(output) == contents(whole)
            shutil.rmtree(output)
    assert midway > 1
    done = started(str(output), "--resume").ended()
    assert done.returncode == 0, done.stderr
    assert contents(output) == contents(whole)


def test_nothing_is_overwritten(config, unbroken, tmp_path, capsys):
    before = contents(unbroken)
    assert "holds a run: --resume goes on with it" in refused(capsys, "run", str(config), "--output", str(unbroken))
    shown = refused(capsys, "run", str(config), "--output", str(unbroken), "--resume", "--settings.particles", "50")
    assert "different are: settings.particles" in shown
    assert contents(unbroken) == before
    (tmp_path / "letter.txt").write_text("dear")
    assert "no run's" in refused(capsys, "run", str(config), "--output", str(tmp_path))
    assert "is a file" in refused(capsys, "run", str(config), "--output", str(tmp_path / "letter.txt"))
    assert os.listdir(tmp_path) == ["letter.txt"]


def test_one_run_at_a_time(tmp_path):
    with (
        RunFolder(tmp_path / "run", "a: 1\n", resume=False),
        pytest.raises(FolderError, match="another run is writing"),
        RunFolder(tmp_path / "run", "a: 1\n", resume=True),
    ):
        pass
    with RunFolder(tmp_path / "run", "a: 1\n", resume=True):
        pass


def test_what_a_killed_write_left_is_cleared(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".config.yaml.123.torchsrk-unfinished").write_text("a")
    with RunFolder(tmp_path / "run", "a: 1\n", resume=False) as folder:
        assert sorted(file.name for file in folder.path.iterdir()) == [".lock", "config.yaml"]


@pytest.mark.parametrize("damage", ["cut", "empty", "swapped", "foreign", "other seed"])
def test_a_damaged_unit_is_refused(config, unbroken, tmp_path, capsys, damage):
    output = tmp_path / "run"
    shutil.copytree(unbroken, output)
    first, second = sorted((output / "units").iterdir())[:2]
    if damage == "cut":
        first.write_bytes(first.read_bytes()[:-9])
    elif damage == "empty":
        first.write_bytes(b"")
    elif damage == "swapped":
        shutil.copy(second, first)
    elif damage == "foreign":
        first.write_bytes(b"\x80\x04cos\nsystem\n(S'touch ran'\ntR.")
    else:
        other = tmp_path / "other"
        assert main(["run", str(config), "--output", str(other), "--seed", "1"]) == 0
        shutil.copy(other / "units" / first.name, first)
        capsys.readouterr()
    before = contents(output)
    start = time.process_time()
    shown = refused(capsys, "run", str(config), "--output", str(output), "--resume")
    assert time.process_time() - start < 2
    assert str(first) in shown
    assert contents(output) == before


def test_print_config_and_overrides(config, tmp_path, capsys):
    command = ["run", str(config), "--print_config", "--profile", "full", "--settings.repeats", "7", "--seed=3"]
    assert main(command) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert (shown["settings"]["particles"], shown["settings"]["repeats"], shown["seed"]) == (300, 7, 3)
    assert shown["settings"]["time"] == 8.0
    again = tmp_path / "again.yaml"
    again.write_text(yaml.safe_dump(shown))
    assert resolved(load_config(again, {})) == resolved(
        load_config(config, {"profile": "full", "seed": 3, "settings": {"repeats": 7}})
    )


WRONG = {
    "experiment": ("experiment: asymtotic\ndescription: a\nsettings: {}", r"experiment: .*did you mean asymptotic\?"),
    "no experiment": ("description: a", "experiment: expected one of"),
    "class path": ("experiment: os.system\ndescription: a", "experiment: expected one of"),
    "settings": (TEXT.replace("dims", "dimensions"), r"settings.panels\[0\].dimensions: there is no such key"),
    "quick": (TEXT.replace("quick: {p", "quick: {q"), r"quick.qarticles: there is no such key \(did you mean part"),
    "quick as a list": (TEXT.replace("quick: {particles: 100}", "quick: [1]"), "quick: expected `key: value` lines"),
    "settings as text": ("experiment: asymptotic\ndescription: a\nsettings: all", "settings: expected `key: value`"),
    "paper": (TEXT + "paper: {particles: none}", "settings.particles: expected a whole number"),
    "device": (TEXT + "device: tpu", "device: expected one of auto, cpu, cuda"),
    "seed": (TEXT + "seed: -1", "seed: expected a number from 0"),
    "profile": (TEXT + "profile: slow", "profile: expected one of quick, full, paper"),
    "misspelt experiment": (TEXT.replace("experiment", "experimet"), r"experimet: .*did you mean experiment\?"),
    "misspelt quick": (TEXT.replace("quick", "quik"), r"quik: .*did you mean quick\?"),
    "twice": (TEXT.replace("1.0", "0.5"), "without repetitions"),
    "nearly twice": (TEXT.replace("1.0", "0.50000001"), "without repetitions"),
    "falling": (TEXT.replace("1.0", "0.1"), r"panels\[0\].step_sizes: expected rising ones"),
    "octal": (TEXT.replace("300", "010"), "010 is no decimal number"),
    "minutes": (TEXT.replace("300", "1:30"), "1:30 is no decimal number"),
    "unknown key": (TEXT + "deivce: cpu", r"deivce: there is no such key \(did you mean device\?\)"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_config_is_refused_before_anything_is_written(tmp_path, capsys, name):
    text, message = WRONG[name]
    file = tmp_path / "wrong.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        load_config(file, {})
    assert str(file) in refused(capsys, "run", str(file), "--output", str(tmp_path / "run"))
    assert os.listdir(tmp_path) == ["wrong.yaml"]


def test_a_refused_folder_is_left_alone(config, tmp_path, capsys):
    """A config.yaml of somebody else's, and hidden files that look a little like ours."""
    folder = tmp_path / "theirs"
    (folder / "sub").mkdir(parents=True)
    files = [folder / name for name in ("config.yaml", ".notes.2024", "sub/.libfoo.so.1")]
    for file in files:
        file.write_text("a: 2020-13-45\n")
    (folder / ".cache.2").mkdir()
    for resume in ([], ["--resume"]):
        assert str(folder) in refused(capsys, "run", str(config), "--output", str(folder), *resume)
    files[0].unlink()
    assert "no run's" in refused(capsys, "run", str(config), "--output", str(folder))
    assert sorted(file.name for file in folder.rglob("*")) == [".cache.2", ".libfoo.so.1", ".notes.2024", "sub"]


def test_provenance_tells_every_environment(tmp_path):
    for environment in ({"torch": "1"}, {"torch": "1"}, {"torch": "2"}):
        with RunFolder(tmp_path / "run", "a: 1\n", resume=True) as folder:
            folder.note_environment(environment)
    assert json.loads((tmp_path / "run" / "provenance.json").read_text()) == [{"torch": "1"}, {"torch": "2"}]
    for damaged in ("{", "{}"):
        (tmp_path / "run" / "provenance.json").write_text(damaged)
        with (
            RunFolder(tmp_path / "run", "a: 1\n", resume=True) as folder,
            pytest.raises(FolderError, match="not what a run wrote"),
        ):
            folder.note_environment({})


def test_what_the_system_refuses_is_one_line(config, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert "file" in refused(capsys, "run", str(config), "--output", str(tmp_path / "file" / "below"))
    assert "too long" in refused(capsys, "run", str(config), "--output", str(tmp_path / ("a" * 300)))
    assert "a" * 300 in refused(capsys, "run", "a" * 300)
    panels = "[{against: step_size, dims: [10000], step_sizes: [0.5]}]"
    huge = ["--settings.particles", "1000000000", "--settings.panels", panels, "--output", str(tmp_path / "huge")]
    assert "can't allocate memory" in refused(capsys, "run", str(config), *huge)
    far = ["--settings.dim", "10000", "--output", str(tmp_path / "far")]
    assert "quadrature would take" in refused(capsys, "run", "wall_time", *far)


def test_a_closed_pipe_and_a_terminal_of_few_letters():
    command = f"{sys.executable} -m torchsrk.cli list"
    closed = subprocess.run(f"{command} | true", shell=True, capture_output=True, text=True)
    assert closed.stderr == ""
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    plain = subprocess.run(command.split(), env=environment, capture_output=True, text=True)
    assert (plain.returncode, plain.stderr) == (0, "")
    assert "W2\\xb2" in plain.stdout


def test_list(capsys):
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("fig1a ") for line in lines)
    assert all(len(line.split(maxsplit=1)) == 2 for line in lines)


def test_wrong_commands(capsys):
    with pytest.raises(SystemExit):
        main(["list", "--more"])
    capsys.readouterr()
    assert "there is no such file" in refused(capsys, "run", "no_such_config")


def test_cases_that_share_a_name_are_refused(config, tmp_path, capsys):
    """Rather than one measured for both: names have six digits of a step size."""
    panels = ", ".join(f"{{against: step_size, dims: [2], step_sizes: [{h}, 1.0]}}" for h in (0.5, 0.50000001))
    error = refused(capsys, "run", str(config), "--output", str(tmp_path / "out"), "--settings.panels", f"[{panels}]")
    assert "em-d2-h0.5: the name of two cases, ('em', 2, 0.5) and ('em', 2, 0.50000001)" in error
    assert not (tmp_path / "out").exists()
