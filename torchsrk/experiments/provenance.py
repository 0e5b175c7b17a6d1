"""What a run's numbers may depend on besides its config: versions, commit, the user's own code; and whether a run that
goes on still has them."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from .folder import FolderError
from .imported import Imported

_PACKAGES = ("torchsrk", "torch", "torchsde", "numpy", "geomloss", "POT")


def environment(seed: int, device: torch.device, imported: Sequence[Imported] = ()) -> dict[str, Any]:
    """What the numbers may depend on besides the config."""
    return {
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}},
        "commit": _commit(),
        "imported": {code.given: dict(code.digests) for code in imported},
        "seed": seed,
        "device": str(device),
        "processor": platform.machine(),
        "threads": torch.get_num_threads(),
    }


def check_goes_on(noted: Sequence[Mapping[str, Any]], now: Mapping[str, Any], path: Path) -> None:
    """Of the run in a folder, given what it noted of the environments so far and the one in which it is to go on.

    Other code of the user's is refused: it would measure something else in what is left. Other versions are told, as
    one may well wish to go on with them.

    Raises:
        FolderError: what was imported is not what it was.
    """
    if not noted:
        return
    _check_imported(noted[-1], now, path)
    before, after = _flat_versions(noted[-1]), _flat_versions(now)
    other = [
        f"{name} {before.get(name)} -> {version}" for name, version in after.items() if before.get(name) != version
    ]
    if other:
        print(
            f"torchsrk: warning: {path} holds results of other versions, and goes on with these: {', '.join(other)}. "
            "For results of one alone give another --output, or the versions of before",
            file=sys.stderr,
        )


def _check_imported(before: Mapping[str, Any], now: Mapping[str, Any], path: Path) -> None:
    """The same files with the same contents, however they were named."""
    old, new = _files(before), _files(now)
    given = " ".join(f"--import {name}" for name in before.get("imported", {}))
    if old == new:
        return
    edited = sorted(name for name in {*old} & {*new} if old[name] != new[name])
    if edited:
        what = f"{', '.join(edited)} {'was' if len(edited) == 1 else 'were'} edited since"
    elif not old:
        what = f"it was begun without --import, and now {', '.join(sorted(new))} is imported"
    elif not new:
        what = f"it was begun with {given}, and now nothing is imported"
    else:
        what = f"it was begun with {', '.join(sorted(old))}, and now {', '.join(sorted(new))} is imported"
    raise FolderError(
        f"{path} holds results of other code: {what}. To go on would mix the results of both: give another --output, "
        f"or {'put the code back as it was' if edited else given or 'leave --import out'}"
    )


def _files(noted: Mapping[str, Any]) -> dict[str, str]:
    return {file: digest for digests in noted.get("imported", {}).values() for file, digest in digests.items()}


def _flat_versions(noted: Mapping[str, Any]) -> dict[str, Any]:
    return {**noted.get("versions", {}), "commit": noted.get("commit")}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # one of an extra
        return None


def _commit() -> str | None:
    """Of the source tree, if this file is in a repository; marked where the tree was changed."""
    if _git("ls-files", "--error-unmatch", Path(__file__).name) is None:  # installed into somebody's repository
        return None
    return _git("describe", "--always", "--dirty", "--abbrev=40")


def _git(*arguments: str) -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
