"""The neural SDE example: what its tables say, and that a killed run ends with the same bytes."""

import csv
import time
from pathlib import Path

import pytest

from tests.forks import Fork
from torchsrk.checkpoints import load_checkpoint

SCRIPT = Path(__file__).parent.parent / "scripts" / "train_neural_sde.py"


def start(output: Path, *arguments: str) -> Fork:
    return Fork(SCRIPT, "--quick", "--output", str(output), *arguments)


def table(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8") as rows:
        return list(csv.DictReader(rows))


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An unbroken run."""
    folder = tmp_path_factory.mktemp("unbroken")
    done = start(folder).ended()
    assert done.returncode == 0, done.stderr
    assert f"figure: {folder / 'neural_sde.png'}" in done.stdout
    return folder


def test_the_fit_comes_near_the_truth(output):
    untrained, *_, trained = table(output / "training.csv")
    for error in ("drift_error", "diffusion_error"):
        assert float(trained[error]) < 0.4 * float(untrained[error])
    assert float(trained["loss"]) < float(untrained["loss"])
    assert (output / "neural_sde.png").read_bytes().startswith(b"\x89PNG")


def test_gradients_are_torchsdes(output):
    differences = {}
    for row in table(output / "gradients.csv"):
        differences.setdefault(row["torchsde_method"], []).append(float(row["difference"]))
    assert max(differences["euler"]) < 1e-12
    for method in ("milstein", "srk"):
        coarse, _, fine = differences[method]
        assert fine < coarse / 2  # of an order 1 at a quarter of the step, with room for chance
    assert max(differences["srk"]) < 0.2


def test_recomputation_saves_memory(output):
    rows = {(row["backward"], row["steps"]): row for row in table(output / "memory.csv")}
    plain, recomputed = rows["plain", "300"], rows["recomputed", "300"]
    assert float(recomputed["peak_mb"]) < float(plain["peak_mb"]) / 5
    assert float(recomputed["gradient_norm"]) == pytest.approx(float(plain["gradient_norm"]), rel=1e-5)


def test_a_killed_run_ends_with_the_same_bytes(output, tmp_path):
    model = "units/model.safetensors"
    checkpoint = tmp_path / model
    killed = start(tmp_path)
    while not checkpoint.exists() and killed.running:
        time.sleep(0.01)
    killed.kill()
    stopped, whole = (load_checkpoint(folder / model)["result"]["updates"] for folder in (tmp_path, output))
    assert 0 < stopped < whole
    done = start(tmp_path, "--resume").ended()
    assert done.returncode == 0, done.stderr
    for name in (model, "training.csv", "gradients.csv"):
        assert (tmp_path / name).read_bytes() == (output / name).read_bytes(), name
