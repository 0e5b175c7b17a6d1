"""Files that are there as a whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

_UNFINISHED = ".torchsrk-unfinished"
_KEPT_OF_NAME = 50  # characters: a name may have 255 bytes, and one that fits must still fit with more around it


def replace_file(file: Path, content: bytes) -> None:
    """Write a file in one piece: whenever the process is killed, it has the old content or the new one.

    Any number of threads, processes and machines may write to one path: the last to finish wins.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    # A name of its own for every write. A process id is not enough: threads share it, and so do machines a folder.
    unfinished = file.with_name(f".{file.name[:_KEPT_OF_NAME]}.{secrets.token_hex(8)}{_UNFINISHED}")
    try:
        with unfinished.open("xb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)


def is_unfinished(file: Path) -> bool:
    """Whether this is what a process that was killed left of a file it was writing."""
    return file.name.startswith(".") and file.name.endswith(_UNFINISHED) and file.is_file()
