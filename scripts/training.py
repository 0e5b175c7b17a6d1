"""What the training examples share: their options, and a loop that can be killed at any moment and resumed."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from tqdm import tqdm

from torchsrk.checkpoints import CheckpointError
from torchsrk.experiments.config import plain, to_yaml
from torchsrk.experiments.folder import FolderError, RunFolder


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
    """--quick, --seed, --output and --resume."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small version, to see that it runs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path(output), help="folder for figures, tables and checkpoints")
    parser.add_argument("--resume", action="store_true", help="go on with the run in the output folder")
    options = parser.parse_args()
    if not 0 <= options.seed < 2**63:
        parser.error(f"--seed is 0 or more, and below 2**63; got {options.seed}")
    return options


@contextmanager
def run_folder(options: argparse.Namespace, settings: Any) -> Iterator[RunFolder]:
    """The output folder, held for one run of these settings; what can't be gone on with ends the script, with a word
    on why."""
    config = to_yaml({"seed": options.seed, "settings": plain(settings)})
    try:
        with RunFolder(options.output, config, options.resume) as folder:
            yield folder
    except (FolderError, CheckpointError) as error:
        raise SystemExit(str(error)) from None


def train(
    update: Callable[[int], float],
    *,
    updates: int,
    state: Mapping[str, Stateful],
    folder: RunFolder,
    unit: str,
    save_every: int = 200,
) -> list[float]:
    """Call update(k) for k = 0 … updates - 1 and return what it gave, the losses.

    ``state`` is saved as a unit of the folder every so often and at the end, and gone on with where it is there
    already; so update(k) must depend on the state and on k alone.
    """
    losses = History()
    parts = {**state, "losses": losses}
    done = _restore(folder.load(unit), parts) if folder.is_done(unit) else 0
    with tqdm(total=updates, initial=done, desc=unit, unit="update", mininterval=1.0) as bar:
        for k in range(done, updates):
            losses.values.append(update(k))
            bar.update()
            if (k + 1) % save_every == 0 or k + 1 == updates:
                bar.set_postfix_str(f"loss {losses.values[-1]:.4g}", refresh=False)
                saved = {name: part.state_dict() for name, part in parts.items()}
                folder.save(unit, {"updates": k + 1, "state": saved})
    return losses.values


def _restore(saved: Mapping[str, Any], parts: Mapping[str, Stateful]) -> int:
    """Load what was saved into the parts; returns how many updates had been made."""
    for name, part in parts.items():
        part.load_state_dict(saved["state"][name])
    return int(saved["updates"])
