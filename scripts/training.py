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
    if options.seed < 0:
        parser.error(f"--seed is 0 or more; got {options.seed}")
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


def _restore(file: Path, parts: Mapping[str, Stateful], settings: dict[str, Any]) -> int:
    """Load what the file holds into the parts; returns how many updates it had made."""
    try:
        saved = load_checkpoint(file)
    except CheckpointError as error:
        raise SystemExit(str(error)) from None
    if saved["settings"] != settings:
        changed = {key: (saved["settings"].get(key), value) for key, value in settings.items()}
        differing = ", ".join(f"{key} was {was!r} and is {now!r}" for key, (was, now) in changed.items() if was != now)
        raise SystemExit(f"{file} is of a run with other settings ({differing}): choose another --output")
    for name, part in parts.items():
        part.load_state_dict(saved["state"][name])
    return int(saved["updates"])
