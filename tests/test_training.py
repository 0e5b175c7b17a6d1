"""The loop that the training examples share: stopped anywhere it ends as if it had not been."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from torchsrk.checkpoints import CheckpointError, load_checkpoint

SETTINGS = {"rate": 0.1, "sizes": (1, 2)}


@pytest.fixture(autouse=True)
def _scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "scripts"))


def run(file, updates=10, stop_at=None, settings=SETTINGS):
    """A small training whose batches depend on the update alone; returns its losses."""
    from training import train

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
    return train(update, updates=updates, state=state, file=file, settings=settings, label="a", save_every=3)


@pytest.mark.parametrize("stop_at", [0, 2, 3, 7, 9])
def test_stopped_and_resumed(tmp_path, stop_at):
    losses = run(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", stop_at=stop_at)
    assert run(tmp_path / "stopped") == losses
    assert (tmp_path / "stopped").read_bytes() == (tmp_path / "whole").read_bytes()
    assert run(tmp_path / "whole", stop_at=0) == losses  # nothing is left to do
    assert load_checkpoint(tmp_path / "whole")["updates"] == 10


def test_other_settings_are_refused(tmp_path):
    run(tmp_path / "a")
    before = (tmp_path / "a").read_bytes()
    with pytest.raises(SystemExit, match=r"rate was 0\.1 and is 0\.2.*choose another --output"):
        run(tmp_path / "a", settings=SETTINGS | {"rate": 0.2})
    with pytest.raises(SystemExit, match="more was None and is 1"):
        run(tmp_path / "a", settings=SETTINGS | {"more": 1})
    assert (tmp_path / "a").read_bytes() == before


def test_half_a_checkpoint_is_refused_and_left_alone(tmp_path):
    run(tmp_path / "a")
    (tmp_path / "a").write_bytes((tmp_path / "a").read_bytes()[:-5])
    with pytest.raises(SystemExit, match="not a whole checkpoint"):
        run(tmp_path / "a")
    with pytest.raises(CheckpointError):
        load_checkpoint(tmp_path / "a")


def test_remembered_results(tmp_path):
    from training import remember

    calls = []

    def compute():
        calls.append(1)
        return {"x": torch.ones(2), "y": 0.5}

    for _ in range(2):
        result = remember(compute, file=tmp_path / "a", settings={"n": 1})
        assert torch.equal(result["x"], torch.ones(2))
    assert calls == [1]
    with pytest.raises(SystemExit, match="n was 1 and is 2"):
        remember(compute, file=tmp_path / "a", settings={"n": 2})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((), "holds a run: --resume goes on with it"), (("--seed", "-1"), "--seed is 0 or more, and below 2**63; got -1")],
)
def test_options_are_checked(tmp_path, monkeypatch, capsys, arguments, message):
    from training import parse_options

    (tmp_path / "a.safetensors").touch()
    monkeypatch.setattr(sys, "argv", ["script", "--output", str(tmp_path), *arguments])
    with pytest.raises(SystemExit):
        parse_options("what it does", "results/x")
    assert message in capsys.readouterr().err
