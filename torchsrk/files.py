"""Files that are there as a whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

_UNFINISHED = ".torchsrk-unfinished"


def replace_file(file: Path, content: bytes) -> None:
    """Write a file in one piece: whenever the process is killed, it has the old content or the new one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f".{file.name}.{os.getpid()}{_UNFINISHED}")
    try:
        with unfinished.open("wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)


def is_unfinished(file: Path) -> bool:
    """Whether this is what a process that was killed left of a file it was writing."""
    return file.name.startswith(".") and file.name.endswith(_UNFINISHED) and file.is_file()
