"""State dicts come back as they were, and nothing but a whole checkpoint is read as one."""

import math
import os
import pickle
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from tests.forks import Fork
from torchsrk.checkpoints import CheckpointError, _digest, load_checkpoint, save_checkpoint
from torchsrk.files import is_unfinished, replace_file


def trained():
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(3)).sum().backward()
    optimizer.step()
    return model, optimizer


def test_module_and_optimiser(tmp_path):
    model, optimizer = trained()
    save_checkpoint(tmp_path / "a", {"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    other, other_optimizer = trained()
    saved = load_checkpoint(tmp_path / "a")
    other.load_state_dict(saved["model"])
    other_optimizer.load_state_dict(saved["optimizer"])
    for owner, its_optimizer in ((model, optimizer), (other, other_optimizer)):
        owner(torch.arange(3.0)).square().sum().backward()
        its_optimizer.step()
    assert torch.equal(model.weight, other.weight)
    assert other_optimizer.state_dict()["param_groups"] == optimizer.state_dict()["param_groups"]


def test_everything_comes_back_as_it_was(tmp_path):
    tied = torch.arange(4.0)
    state = {
        "tensors": [
            tied,
            tied,
            tied[::2],
            torch.tensor(3),
            torch.empty(0, 2),
            torch.tensor([True]),
            torch.ones(2).bfloat16(),
        ],
        "numbers": (1, 2**64 - 1, 0.1, -math.inf, 1e-320, True, None, "é\n"),
        3: {"nested": OrderedDict(a=())},
        "empty": {},
    }
    save_checkpoint(tmp_path / "a", state)
    loaded = load_checkpoint(tmp_path / "a")
    assert list(loaded) == list(state)
    assert loaded["numbers"] == state["numbers"]
    assert [type(number) for number in loaded["numbers"]] == [type(number) for number in state["numbers"]]
    assert loaded[3] == state[3]
    for ours, theirs in zip(loaded["tensors"], state["tensors"], strict=True):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)
    assert os.listdir(tmp_path) == ["a"]


def test_same_state_same_bytes(tmp_path):
    for name in "ab":
        save_checkpoint(tmp_path / name, {"x": torch.arange(3.0), "more": [torch.ones(2, 2), 0.5]})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"a": {"b": [object()]}}, r"state\['a'\]\['b'\]\[0\] is a object"),
        ({"a": {0.5: 1}}, "neither strings nor integers"),
        ({"f": print}, "builtin_function"),
    ],
)
def test_what_a_checkpoint_does_not_hold(tmp_path, state, message):
    save_checkpoint(tmp_path / "a", {"x": 1})
    with pytest.raises(TypeError, match=message):
        save_checkpoint(tmp_path / "a", state)
    assert load_checkpoint(tmp_path / "a") == {"x": 1}
    assert os.listdir(tmp_path) == ["a"]


class Danger:
    def __reduce__(self):
        return (os.mkdir, ("ran",))


@pytest.mark.parametrize("kept", [0, 1, 7, 8, 100, -1])
def test_a_file_cut_short_is_refused(tmp_path, kept):
    save_checkpoint(tmp_path / "a", {"x": torch.ones(100)})
    whole = (tmp_path / "a").read_bytes()
    (tmp_path / "a").write_bytes(whole[:kept])
    with pytest.raises(CheckpointError, match="not a whole checkpoint"):
        load_checkpoint(tmp_path / "a")


def test_a_changed_bit_is_refused(tmp_path):
    save_checkpoint(tmp_path / "a", {"x": torch.ones(100)})
    content = bytearray((tmp_path / "a").read_bytes())
    content[-20] ^= 1
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(CheckpointError, match="not what was written"):
        load_checkpoint(tmp_path / "a")


@pytest.mark.parametrize(
    "tree",
    [
        "{}",
        "{",
        '{"tensor": "no such"}',
        '{"dict": 3}',
        '{"dict": [[1]]}',
        '{"code": "x"}',
        '{"a": 1, "b": 2}',
        "5",
        "[" * 10**5,
    ],
)
def test_a_damaged_tree_is_refused(tmp_path, tree):
    tensors = {"0": torch.ones(1)}
    save_file(tensors, tmp_path / "a", metadata={"torchsrk.checkpoint": f"{_digest(tree, tensors)} {tree}"})
    with pytest.raises(CheckpointError, match="not a whole checkpoint"):
        load_checkpoint(tmp_path / "a")


def test_others_files_are_refused_and_run_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_file({"x": torch.ones(1)}, "foreign")
    with pytest.raises(CheckpointError, match="no checkpoint of torchsrk"):
        load_checkpoint("foreign")
    (tmp_path / "pickle").write_bytes(pickle.dumps(Danger()))
    torch.save({"x": Danger()}, "torch")
    for name in ("pickle", "torch"):
        with pytest.raises(CheckpointError, match="not a whole checkpoint"):
            load_checkpoint(name)
    assert not (tmp_path / "ran").exists()
    with pytest.raises(CheckpointError, match="is not a file"):
        load_checkpoint(tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no checkpoint"):
        load_checkpoint("missing")


@pytest.mark.slow
def test_killed_while_writing(tmp_path):
    """Whenever the writer is killed, the file is one of the states it wrote."""
    code = """
import sys, torch
from torchsrk.checkpoints import save_checkpoint
k = 0
while True:
    save_checkpoint(sys.argv[1], {"k": k, "x": torch.full((200_000,), float(k))})
    k += 1
"""
    file = tmp_path / "a"
    writer = Fork(code, str(file))
    while not file.exists() and writer.running:
        time.sleep(0.01)
    for _ in range(20):
        saved = load_checkpoint(file)
        assert (saved["x"] == saved["k"]).all()
    writer.kill()
    saved = load_checkpoint(file)
    assert (saved["x"] == saved["k"]).all()


def test_threads_that_save_to_one_path(tmp_path):
    """Eight threads save while another loads: what is there is always one of the states, whole."""
    file, kept = tmp_path / "a", 50

    def save(writer):
        for k in range(kept):
            number = float(kept * writer + k)
            save_checkpoint(file, {"number": number, "x": torch.full((2000,), number)})

    save_checkpoint(file, {"number": -1.0, "x": torch.full((2000,), -1.0)})
    with ThreadPoolExecutor(8) as pool:
        writers = [pool.submit(save, writer) for writer in range(8)]
        loads = 0
        while not all(writer.done() for writer in writers):
            saved = load_checkpoint(file)
            assert (saved["x"] == saved["number"]).all()
            loads += 1
        for writer in writers:
            writer.result()
    assert loads > 10
    assert load_checkpoint(file)["number"] % kept == kept - 1  # some writer's last
    assert os.listdir(tmp_path) == ["a"]


def test_unfinished_files_are_known_by_their_names(tmp_path, monkeypatch):
    names = []

    def killed(descriptor):
        names.append({file.name for file in tmp_path.iterdir() if is_unfinished(file)})
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", killed)
    for name in ("a", "a", "é" * 120):  # the last is as long as a file system allows, less a few bytes
        with pytest.raises(KeyboardInterrupt):
            replace_file(tmp_path / name, b"content")
    assert [len(unfinished) for unfinished in names] == [1, 1, 1]
    assert names[0] != names[1]
    assert os.listdir(tmp_path) == []
