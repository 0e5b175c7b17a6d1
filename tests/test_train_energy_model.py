"""The energy model example: both schemes train, and a killed run ends with the same numbers."""

import csv
import math
import shutil
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.forks import Fork
from torchsrk.metrics import energy_distance_squared
from torchsrk.potentials import FunctionPotential

SCRIPTS = Path(__file__).parent.parent / "scripts"


def start(output, *arguments):
    return Fork(SCRIPTS / "train_energy_model.py", "--quick", "--output", str(output), *arguments)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    done = start(folder).ended()
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_both_schemes_train(unbroken, monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    from train_energy_model import EnergyNetwork, GridDensity, pinwheel

    folder, shown = unbroken
    assert "Euler-Maruyama" in shown
    torch.manual_seed(0)
    untrained = GridDensity(EnergyNetwork(32), 100).draw(300, seed=0)
    before = float(energy_distance_squared(untrained, pinwheel(1000, seed=1).double()))
    with (folder / "scores.csv").open(encoding="utf-8") as table:
        rows = list(csv.DictReader(table))
    assert sorted({row["scheme"] for row in rows}) == ["em", "srk-ld"]
    assert len(rows) == 4
    for row in rows:
        for source in ("persistent", "fresh", "exact"):
            assert float(row[source]) < before / 5
    for name in ("scores.png", "models.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")


def test_killed_and_resumed(unbroken, tmp_path, monkeypatch):
    """With the last model and without its scores; the trainings before are there."""
    folder, shown = unbroken
    written = sorted(folder.glob("units/*"), key=lambda file: file.stat().st_mtime_ns)
    assert len(written) == 8  # of four trainings: a model each, and its scores
    (tmp_path / "units").mkdir()
    shutil.copy(folder / "config.yaml", tmp_path)
    for file in written[:-2]:
        shutil.copy(file, tmp_path / "units")
    killed = start(tmp_path, "--resume")
    while len(list(tmp_path.glob("units/*.safetensors"))) < 7 and killed.running:
        time.sleep(0.01)
    killed.kill()
    assert len(list(tmp_path.glob("units/*.safetensors"))) == 7

    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.setattr(sys, "argv", ["train_energy_model.py", "--quick", "--output", str(tmp_path)])
    from train_energy_model import main

    with pytest.raises(SystemExit, match="holds a run: --resume goes on with it"):
        main()
    done = start(tmp_path, "--resume").ended()
    assert done.returncode == 0, done.stderr
    for file in (folder / "scores.csv", *written):
        assert (tmp_path / file.relative_to(folder)).read_bytes() == file.read_bytes(), file.name
    assert done.stdout.replace(str(tmp_path), "") == shown.replace(str(folder), "")


def test_grid_density_of_a_normal(monkeypatch):
    """Normaliser in closed form; moments of draws at a significance of 1e-5."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    from train_energy_model import GridDensity

    grid = GridDensity(FunctionPotential(lambda x: 2.0 * x.square().sum(-1)), 200)
    assert grid.log_normaliser == pytest.approx(math.log(math.pi / 2), abs=1e-6)
    draws = grid.draw(20_000, seed=0)
    assert (draws.mean(0).abs() < 4.5 * 0.5 / 20_000**0.5).all()
    assert ((draws.square().mean(0) - 0.25).abs() < 4.5 * 0.25 * (2 / 20_000) ** 0.5).all()
