"""The loop that the training examples share: stopped anywhere it ends as if it had not been."""

import sys
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from torch import nn

from torchsrk.checkpoints import CheckpointError, load_checkpoint

SETTINGS = {"rate": 0.1, "sizes": (1, 2)}


@pytest.fixture(autouse=True)
def _scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "scripts"))


def run(output, updates=10, stop_at=None, settings=SETTINGS):
    """A small training whose batches depend on the update alone; returns its losses."""
    from training import run_folder, train

    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    def update(k):
        if k == stop_at:
            raise KeyboardInterrupt
        x = torch.randn(5, 3, generator=torch.Generator().manual_seed(k))
        loss = (model(x) - x.sum(-1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    state = {"model": model, "optimizer": optimizer}
    with run_folder(Namespace(output=output, seed=0, resume=True), settings) as folder:
        return train(update, updates=updates, state=state, folder=folder, unit="a", save_every=3)


def kept(output):
    return output / "units" / "a.safetensors"


@pytest.mark.parametrize("stop_at", [0, 2, 3, 7, 9])
def test_stopped_and_resumed(tmp_path, stop_at):
    losses = run(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", stop_at=stop_at)
    assert run(tmp_path / "stopped") == losses
    assert kept(tmp_path / "stopped").read_bytes() == kept(tmp_path / "whole").read_bytes()
    assert run(tmp_path / "whole", stop_at=0) == losses  # nothing is left to do
    assert load_checkpoint(kept(tmp_path / "whole"))["result"]["updates"] == 10


def test_other_settings_are_refused(tmp_path):
    run(tmp_path)
    before = kept(tmp_path).read_bytes()
    with pytest.raises(SystemExit, match=r"different are: settings\.rate\. Give another --output"):
        run(tmp_path, settings=SETTINGS | {"rate": 0.2})
    with pytest.raises(SystemExit, match=r"different are: settings\.more"):
        run(tmp_path, settings=SETTINGS | {"more": 1})
    assert kept(tmp_path).read_bytes() == before


def test_half_a_checkpoint_is_refused_and_left_alone(tmp_path):
    run(tmp_path)
    kept(tmp_path).write_bytes(kept(tmp_path).read_bytes()[:-5])
    with pytest.raises(SystemExit, match="not a whole checkpoint"):
        run(tmp_path)
    with pytest.raises(CheckpointError):
        load_checkpoint(kept(tmp_path))


def test_options_are_checked(tmp_path, monkeypatch, capsys):
    from training import parse_options

    monkeypatch.setattr(sys, "argv", ["script", "--output", str(tmp_path), "--seed", "-1"])
    with pytest.raises(SystemExit):
        parse_options("what it does", "results/x")
    assert "--seed is 0 or more, and below 2**63; got -1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("there", "message"), [("config.yaml", "holds a run: --resume goes on"), ("a.txt", "no run's")]
)
def test_what_a_folder_holds_is_left_alone(tmp_path, there, message):
    from training import run_folder

    (tmp_path / there).touch()
    options = Namespace(output=tmp_path, seed=0, resume=False)
    with pytest.raises(SystemExit, match=message), run_folder(options, SETTINGS):
        pass
    assert [file.name for file in tmp_path.iterdir()] == [there]
