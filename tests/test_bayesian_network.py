"""The Bayesian networks' script: its numbers mean what they say, and a killed run ends as if it had not been."""

import csv
import math
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch

from tests.forks import Fork

SCRIPTS = Path(__file__).parent.parent / "scripts"


def start(output: Path, *arguments: str) -> Fork:
    return Fork(SCRIPTS / "bayesian_network.py", "--quick", "--output", str(output), *arguments)


def read(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8") as table:
        return list(csv.DictReader(table))


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("unbroken")
    done = start(output).ended()
    assert done.returncode == 0, done.stderr
    assert "reliability.png" in done.stdout
    return output


def test_figures(unbroken):
    for name in ("reliability", "oracle_noise"):
        assert (unbroken / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert read(unbroken / f"{name}.csv")


def test_oracle_variance_is_its_closed_form(unbroken):
    """At a significance of 1e-6, and it falls as one over the batch size."""
    rows = read(unbroken / "oracle_variance.csv")
    for row in rows:
        apart = float(row["variance"]) - float(row["closed_form"])
        assert abs(apart) < 4.9 * float(row["variance_error"])
    large, small = rows
    assert float(small["variance"]) > 2 * float(large["variance"])
    ratio = float(small["closed_form"]) / float(large["closed_form"])
    assert ratio == pytest.approx(int(large["batch_size"]) / int(small["batch_size"]))


def test_oracle_heats_the_chains(unbroken):
    """More with smaller batches, and Euler-Maruyama more than SRK-LD at an equal step: by four standard errors."""
    heat = {
        (row["scheme"], row["step_size"], row["batch_size"]): (
            float(row["oracle_heat"]),
            float(row["oracle_heat_error"]),
        )
        for row in read(unbroken / "oracle_noise.csv")
    }
    for step_size in {key[1] for key in heat}:
        em, em_error = heat["em", step_size, "16"]
        srk, srk_error = heat["srk-ld", step_size, "16"]
        assert srk > 4 * srk_error
        assert em - srk > 4 * math.hypot(em_error, srk_error)
        assert heat["em", step_size, "exact"] == (0.0, 0.0)


def test_predictions_are_better_than_chance(unbroken):
    rows = read(unbroken / "predictions.csv")
    assert len(rows) == 8
    for row in rows:
        chance = {"digits": 10, "diabetes": 2}[row["data"]]
        assert float(row["accuracy"]) > {"digits": 0.8, "diabetes": 0.65}[row["data"]]
        assert float(row["nll"]) < math.log(chance)
        assert 0 < float(row["ece"]) < 0.4


def test_killed_and_resumed(unbroken, tmp_path):
    """In the last quarter: what comes before is there."""
    written = sorted(unbroken.glob("units/*"), key=lambda file: file.stat().st_mtime_ns)
    names = [file.relative_to(unbroken) for file in (*unbroken.glob("*.csv"), *written)]
    most = 3 * len(written) // 4
    (tmp_path / "units").mkdir()
    shutil.copy(unbroken / "config.yaml", tmp_path)
    for file in written[:most]:
        shutil.copy(file, tmp_path / "units")
    process = start(tmp_path, "--resume")
    while len(list(tmp_path.glob("units/*.safetensors"))) < most + 3 and process.running:
        time.sleep(0.005)
    assert process.kill().returncode == -signal.SIGKILL
    assert most + 3 <= len(list(tmp_path.glob("units/*.safetensors"))) < len(written)

    resumed = start(tmp_path, "--resume").ended()
    assert resumed.returncode == 0, resumed.stderr
    for name in names:
        assert (tmp_path / name).read_bytes() == (unbroken / name).read_bytes(), name


def test_unit_variance_is_that_of_single_gradients(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    from bayesian.network_posterior import make_tasks, unit_variance

    for task in make_tasks(30, 5, seed=0):
        x = task.draw_prior(3, seed=1)
        gradient = torch.func.grad(lambda *observation, task=task: task.losses(*observation).sum())
        single = torch.func.vmap(torch.func.vmap(gradient, (None, 0, 0)), (0, None, None))
        each = single(x, task.inputs.unsqueeze(1), task.labels)
        expected = len(task.labels) ** 2 * each.var(1, correction=0).mean(-1)
        torch.testing.assert_close(unit_variance(task, x), expected, rtol=1e-4, atol=0.0)


def test_calibration(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    from bayesian.calibration import calibration_error

    probabilities = torch.tensor([[0.75, 0.25]]).expand(8, 2)
    assert float(calibration_error(probabilities, torch.tensor([0, 0, 0, 1] * 2))) == 0.0
    assert float(calibration_error(probabilities, torch.ones(8, dtype=torch.long))) == 0.75
