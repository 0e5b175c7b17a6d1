"""The folder of a run: one run at a time, nothing overwritten, and every finished unit kept."""

from __future__ import annotations

import csv
import fcntl
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from ..checkpoints import CheckpointError, load_checkpoint, save_checkpoint
from ..files import is_unfinished, replace_file
from .base import Result, Row

_CONFIG, _LOCK = "config.yaml", ".lock"


class FolderError(RuntimeError):
    """A folder that can't be written to; nothing in it was changed."""


class RunFolder:
    """Where a run writes. As a context it holds the folder's lock, which ends with the process, however that ends.

    Args:
        path: made if it is not there.
        config: the resolved config, as text.
        resume: go on with the run in the folder, which must have the same config.
    """

    def __init__(self, path: Path, config: str, resume: bool) -> None:
        self.path, self._config, self._resume = path, config, resume
        self._lock: Any = None

    def __enter__(self) -> RunFolder:
        if self.path.exists() and not self.path.is_dir():
            raise FolderError(f"{self.path} is a file: give another --output")
        holds_run = (self.path / _CONFIG).exists()
        if not holds_run and self.path.exists() and any(map(_is_foreign, self.path.iterdir())):
            raise FolderError(f"{self.path} holds files that are no run's: give another --output")
        if holds_run and not self._resume:
            raise FolderError(f"{self.path} holds a run: --resume goes on with it, another --output starts a new one")
        self.path.mkdir(parents=True, exist_ok=True)
        self._take_lock()
        for left in filter(is_unfinished, self.path.rglob(".*")):
            left.unlink()
        if holds_run:
            self._check_config()
        else:
            replace_file(self.path / _CONFIG, self._config.encode())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.close()

    def _take_lock(self) -> None:
        self._lock = (self.path / _LOCK).open("a")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise FolderError(f"another run is writing to {self.path}: wait for it, or give another --output") from None

    def _check_config(self) -> None:
        before = (self.path / _CONFIG).read_text(encoding="utf-8", errors="replace")
        if before == self._config:
            return
        self._lock.close()
        changed = ", ".join(_changed_keys(before, self._config)) or "its form"
        raise FolderError(
            f"{self.path} holds a run of another config; different are: {changed}. Give another --output, or the "
            f"config of {self.path / _CONFIG}"
        )

    def remember(self, unit: str, compute: Callable[[], Result]) -> Result:
        """The unit's result: from its file, or computed and put there."""
        file = self.path / "units" / f"{unit}.safetensors"
        if not file.exists():
            save_checkpoint(file, {"unit": unit, "config": self._config, "result": compute()})
        # Read back even if just computed: what is concluded can't depend on where a run was cut.
        saved = load_checkpoint(file)
        if saved.get("unit") != unit or saved.get("config") != self._config:
            raise CheckpointError(f"{file} belongs to another unit or another run: remove it to measure it again")
        result: Result = saved["result"]
        return result

    def is_done(self, unit: str) -> bool:
        return (self.path / "units" / f"{unit}.safetensors").exists()

    def write_text(self, name: str, text: str) -> Path:
        replace_file(self.path / name, text.encode())
        return self.path / name

    def write_table(self, name: str, rows: Sequence[Row]) -> Path:
        out = io.StringIO()
        writer = csv.DictWriter(out, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return self.write_text(f"{name}.csv", out.getvalue())

    def write_figure(self, name: str, draw: Callable[[Any], None]) -> Path:
        picture = io.BytesIO()
        draw(picture)
        replace_file(self.path / f"{name}.png", picture.getvalue())
        return self.path / f"{name}.png"


def _is_foreign(entry: Path) -> bool:
    return entry.name != _LOCK and not is_unfinished(entry)


def _changed_keys(before: str, now: str) -> list[str]:
    try:
        old, new = (_flat(yaml.safe_load(text)) for text in (before, now))
    except yaml.YAMLError:
        return []
    return sorted(key for key in {*old, *new} if old.get(key) != new.get(key))


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {prefix.removesuffix("."): value}
    return {key: part for name, inner in value.items() for key, part in _flat(inner, f"{prefix}{name}.").items()}
