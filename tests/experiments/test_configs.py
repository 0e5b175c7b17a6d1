"""Every shipped config is right in both profiles, and its quick run finds what it says."""

import pytest
import torch
import yaml

from torchsrk.cli import CONFIGS
from torchsrk.experiments import NAMES
from torchsrk.experiments.runs import execute, load_config, resolved

FILES = sorted(CONFIGS.glob("*.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
@pytest.mark.parametrize("profile", ["quick", "full", "paper"])
def test_both_profiles_are_right(file, profile, tmp_path):
    config = load_config(file, {"profile": profile})
    again = tmp_path / "again.yaml"
    again.write_text(resolved(config), encoding="utf-8")
    assert resolved(load_config(again, {})) == resolved(config)
    assert len(config.description) <= 120


def test_every_experiment_has_a_config():
    assert {yaml.safe_load(file.read_text(encoding="utf-8"))["experiment"] for file in FILES} == set(NAMES)


@pytest.fixture
def _one_thread():
    """Small matrices are not worth sharing out; beside other work a second thread makes them many times slower."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# A ratio of times is for a quiet machine to tell; what wall_time finds besides has room for a busy one.
CLOCKED = "a step of SRK-LD takes"
# The first look has no quick profile, and exact W2² takes thrice as long at its own size.
SMALLER = {"quickstart": {"settings": {"particles": 500}}}
LONG = ("srk_id_dims", "fig1c", "w2_traces")
CASES = [pytest.param(file, marks=[pytest.mark.long] * (file.stem in LONG), id=file.stem) for file in FILES]


@pytest.mark.usefixtures("_one_thread")
@pytest.mark.parametrize("file", CASES)
def test_quick_findings_hold(file, tmp_path):
    conclusion = execute(load_config(file, SMALLER.get(file.stem, {})), tmp_path / "run", resume=False)
    assert conclusion.findings
    missed = [finding.text for finding in conclusion.findings if not finding.holds]
    assert [text for text in missed if not text.startswith(CLOCKED)] == []
    assert all((tmp_path / "run" / f"{name}.csv").is_file() for name in conclusion.tables)
    assert all((tmp_path / "run" / f"{name}.png").is_file() for name in conclusion.figures)
