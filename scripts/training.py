"""What the training examples share: their options, and a loop that can be killed at any moment and resumed."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from tqdm import tqdm

from torchsrk.checkpoints import CheckpointError, load_checkpoint, save_checkpoint


class Stateful(Protocol):
    """A module, an optimiser, a sampler with persistent chains, …"""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Any) -> Any: ...


class History:
    """Numbers that a training leaves behind, such as its losses."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def state_dict(self) -> dict[str, Any]:
        return {"values": self.values}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.values = list(state["values"])


def parse_options(description: str | None, output: str) -> argparse.Namespace:
    """--quick, --seed, --output and --resume; an output folder that holds another run is refused."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small version, to see that it runs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path(output), help="folder for figures, tables and checkpoints")
    parser.add_argument("--resume", action="store_true", help="go on with the run in the output folder")
    options = parser.parse_args()
    if not 0 <= options.seed < 2**63:
        parser.error(f"--seed is 0 or more, and below 2**63; got {options.seed}")
    if not options.resume and any(options.output.glob("*.safetensors")):
        parser.error(f"{options.output} holds a run: --resume goes on with it, another --output starts a new one")
    return options


def train(
    update: Callable[[int], float],
    *,
    updates: int,
    state: Mapping[str, Stateful],
    file: Path,
    settings: Mapping[str, Any],
    label: str,
    save_every: int = 200,
) -> list[float]:
    """Call update(k) for k = 0 … updates - 1 and return what it gave, the losses.

    ``state`` is saved to ``file`` every so often and at the end. Where the file is there already, its run is gone on
    with, if its settings are these; so update(k) must depend on the state and on k alone.
    """
    losses = History()
    parts = {**state, "losses": losses}
    done = _restore(file, parts, dict(settings)) if file.exists() else 0
    with tqdm(total=updates, initial=done, desc=label, unit="update", mininterval=1.0) as bar:
        for k in range(done, updates):
            losses.values.append(update(k))
            bar.update()
            if (k + 1) % save_every == 0 or k + 1 == updates:
                bar.set_postfix_str(f"loss {losses.values[-1]:.4g}", refresh=False)
                saved = {name: part.state_dict() for name, part in parts.items()}
                save_checkpoint(file, {"settings": dict(settings), "updates": k + 1, "state": saved})
    return losses.values


def remember(compute: Callable[[], dict[str, Any]], *, file: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What compute() gives, tensors and numbers; kept in a file, so that a resumed run need not do it again."""
    if file.exists():
        return _read(file, dict(settings))["result"]
    result = compute()
    save_checkpoint(file, {"settings": dict(settings), "result": result})
    return result


def _restore(file: Path, parts: Mapping[str, Stateful], settings: dict[str, Any]) -> int:
    """Load what the file holds into the parts; returns how many updates it had made."""
    saved = _read(file, settings)
    for name, part in parts.items():
        part.load_state_dict(saved["state"][name])
    return int(saved["updates"])


def _read(file: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """A checkpoint, if it is whole and of a run with these settings; else the end, with a word on why."""
    try:
        saved = load_checkpoint(file)
    except CheckpointError as error:
        raise SystemExit(str(error)) from None
    before = saved.get("settings", {})
    if before != settings:
        differing = ", ".join(
            f"{key} was {before.get(key)!r} and is {settings.get(key)!r}"
            for key in sorted({*before, *settings})
            if before.get(key) != settings.get(key)
        )
        raise SystemExit(f"{file} is of a run with other settings ({differing}): choose another --output")
    return saved
