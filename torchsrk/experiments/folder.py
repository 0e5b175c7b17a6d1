"""The folder of a run: one run at a time, nothing overwritten, and every finished unit kept."""

from __future__ import annotations

import csv
import fcntl
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from ..checkpoints import CheckpointError, load_checkpoint, save_checkpoint
from ..extras import MissingPackageError
from ..files import is_unfinished, replace_file
from .base import Result, Row
from .config import ConfigError, parse_yaml

_CONFIG, _LOCK, _PROVENANCE = "config.yaml", ".lock", "provenance.json"


class FolderError(RuntimeError):
    """A folder that can't be written to; nothing in it was changed."""


class RunFolder:
    """Where a run writes. As a context it holds the folder's lock, which ends with the process, however that ends.

    Args:
        path: made if it is not there.
        config: the resolved config, as text.
        resume: go on with the run in the folder, which must have the same config.
        device: where the tensors of results are put.
        leads: of several processes that run one run, the first to enter holds the lock for all.
    """

    def __init__(
        self, path: Path, config: str, resume: bool, device: torch.device | str = "cpu", leads: bool = True
    ) -> None:
        self.path, self._config, self._resume, self._device = path, config, resume, device
        self._leads = leads
        self._lock: Any = io.BytesIO()

    def __enter__(self) -> RunFolder:
        if not self._leads:
            self._check_config()
            return self
        self._refuse_foreign()
        self.path.mkdir(parents=True, exist_ok=True)
        self._take_lock()
        try:
            self._refuse_foreign()  # another run may have begun in between
            for left in filter(is_unfinished, (*self.path.iterdir(), *self.path.glob("units/*"))):
                left.unlink()
            if not self._file(_CONFIG).exists():
                replace_file(self._file(_CONFIG), self._config.encode())
        except BaseException:
            self._lock.close()
            raise
        return self

    def _refuse_foreign(self) -> None:
        """Leave alone what is not this run's."""
        if self.path.exists() and not self.path.is_dir():
            raise FolderError(f"{self.path} is a file: give another --output")
        if self._file(_CONFIG).exists():
            if not self._resume:
                raise FolderError(
                    f"{self.path} holds a run: --resume goes on with it, another --output starts a new one"
                )
            self._check_config()
        elif self.path.exists() and any(map(_is_foreign, self.path.iterdir())):
            raise FolderError(f"{self.path} holds files that are no run's: give another --output")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.close()

    def _take_lock(self) -> None:
        self._lock = (self.path / _LOCK).open("a")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise FolderError(f"another run is writing to {self.path}: wait for it, or give another --output") from None

    def _check_config(self) -> None:
        before = self._file(_CONFIG).read_text(encoding="utf-8", errors="replace")
        if before != self._config:
            changed = ", ".join(_changed_keys(before, self._config)) or "its form"
            raise FolderError(
                f"{self.path} holds a run of another config; different are: {changed}. Give another --output, or the "
                f"config of {self._file(_CONFIG)}"
            )

    def remember(self, unit: str, compute: Callable[[], Result]) -> Result:
        """The unit's result: from its file, or computed and put there."""
        if not self.is_done(unit):
            self.save(unit, compute())
        # Read back even if just computed: what is concluded can't depend on where a run was cut.
        return self.load(unit)

    def save(self, unit: str, result: Result) -> None:
        """Replace what is kept of a unit: its result, or how far a long one has come."""
        save_checkpoint(self._unit(unit), {"unit": unit, "config": self._config, "result": result})

    def load(self, unit: str) -> Result:
        """What is kept of a unit, if it is this run's."""
        file = self._unit(unit)
        saved = load_checkpoint(file, self._device)
        result = saved.get("result")
        if saved.get("unit") != unit or saved.get("config") != self._config or not isinstance(result, dict):
            raise CheckpointError(f"{file} belongs to another unit or another run: remove it to measure it again")
        return result

    def abandon(self) -> None:
        """Hold no run any more, as nothing was measured: the next one needs no --resume."""
        for name in (_CONFIG, _PROVENANCE):
            self._file(name).unlink(missing_ok=True)

    def is_done(self, unit: str) -> bool:
        return self._unit(unit).exists()

    def _unit(self, unit: str) -> Path:
        return self._file("units") / f"{unit}.safetensors"

    def _file(self, name: str) -> Path:
        return self.path / name

    def note_environment(self, environment: Mapping[str, Any]) -> None:
        """Keep what results may depend on besides the config: an entry for every environment that a run went on in."""
        before = self.environments()
        if before[-1:] != [environment]:
            content = json.dumps([*before, environment], indent=2) + "\n"
            replace_file(self._file(_PROVENANCE), content.encode())

    def environments(self) -> list[dict[str, Any]]:
        """Those that the run has noted, from its begin on."""
        file = self._file(_PROVENANCE)
        try:
            noted = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
        except ValueError:
            noted = None
        if not isinstance(noted, list) or not all(isinstance(entry, dict) for entry in noted):
            raise FolderError(f"{file} is not what a run wrote: remove it to go on")
        return noted

    def write(self, name: str, content: bytes) -> Path:
        replace_file(self._file(name), content)
        return self._file(name)

    def write_table(self, name: str, rows: Sequence[Any]) -> Path:
        """As CSV, a line for each row or dataclass."""
        told: list[Row] = [row if isinstance(row, dict) else asdict(row) for row in rows]
        out = io.StringIO()
        writer = csv.DictWriter(out, fieldnames=list(told[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(told)
        return self.write(f"{name}.csv", out.getvalue().encode())

    def write_figure(self, name: str, draw: Callable[[Any], None]) -> Path:
        picture = io.BytesIO()
        draw(picture)
        return self.write(f"{name}.png", picture.getvalue())


def _is_foreign(entry: Path) -> bool:
    return entry.name != _LOCK and not is_unfinished(entry)


def _changed_keys(before: str, now: str) -> list[str]:
    try:
        old, new = (_flat(parse_yaml(text, _CONFIG)) for text in (before, now))
    except (ConfigError, MissingPackageError):
        return []
    return sorted(key for key in {*old, *new} if old.get(key) != new.get(key))


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {prefix.removesuffix("."): value}
    return {key: part for name, inner in value.items() for key, part in _flat(inner, f"{prefix}{name}.").items()}
