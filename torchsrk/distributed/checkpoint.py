"""Sharded state in a folder: written by all ranks at once, and read by any number of them.

``torch.distributed.checkpoint`` moves the tensors. Of its formats this takes the safetensors one: the other keeps its
table of contents as a pickle, which could run code when it is read. A manifest in JSON says what belongs to a
checkpoint and replaces the one before in one piece, after all files are on the disk: what it does not name is none.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..checkpoints import CheckpointError
from ..dtensors import is_sharded
from ..files import replace_file
from .layout import Layout, even_ranges
from .together import Ranks, Together

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

_MANIFEST, _FORMAT, _DATA = "checkpoint.json", "torchsrk.sharded 1", "data-"
_DTYPES = {str(dtype): dtype for dtype in (torch.float32, torch.float64, torch.int64)}


def save_sharded(folder: Path | str, state: Mapping[str, Any]) -> None:
    """Write DTensors of one mesh, and what JSON holds: numbers, strings, None, and lists and dicts of these.

    Whenever a process or a machine is lost, the folder, which all ranks see, holds the checkpoint before or this one.

    Args:
        folder: that all ranks see.
        state: what to keep, by name.
    """
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter

    folder = Path(folder)
    tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    values = {name: value for name, value in state.items() if name not in tensors}
    layouts = {name: Layout.of(value, name) for name, value in tensors.items()}
    if not tensors or not all(map(is_sharded, tensors.values())):
        raise TypeError("a sharded checkpoint holds DTensors, at least one, and numbers: torchsrk.checkpoints the rest")
    described = {
        name: {"shape": list(x.shape), "dtype": str(x.dtype), "dim": layouts[name].dim} for name, x in tensors.items()
    }
    mesh = next(iter(layouts.values())).mesh
    assert mesh is not None
    with Together(mesh.get_group(), f"the checkpoint {folder}") as ranks:
        data = folder / f"{_DATA}{_token(ranks)}"
        data.mkdir(parents=True, exist_ok=True)
        writer = HuggingFaceStorageWriter(str(data), save_distributed=True)
        with ranks.others_may_fail("the tensors of a checkpoint"):
            dcp.save(tensors, storage_writer=writer, process_group=mesh.get_group())
        ranks.gathered(torch.zeros(1), "the files of a checkpoint")
        names = sorted(file.name for file in data.iterdir())
        digests = _digests(ranks, data, names)
        if ranks.rank == 0:
            _sync(data)
            manifest = {"format": _FORMAT, "data": data.name, "files": dict(zip(names, digests, strict=True))}
            manifest |= {"tensors": described, "values": values}
            replace_file(folder / _MANIFEST, json.dumps(manifest, indent=1).encode())
            _sync(folder)
            for old in folder.glob(f"{_DATA}*"):
                if old != data:
                    shutil.rmtree(old, ignore_errors=True)


def has_checkpoint(folder: Path | str) -> bool:
    """Whether the folder holds a whole checkpoint."""
    return (Path(folder) / _MANIFEST).is_file()


def load_sharded(folder: Path | str, mesh: DeviceMesh) -> dict[str, Any]:
    """What ``save_sharded`` wrote, cut between the ranks of a mesh, which may be others and as many as they like.

    Raises:
        CheckpointError: the folder holds no whole checkpoint.
    """
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

    folder = Path(folder)
    with Together(mesh.get_group(), f"the checkpoint {folder}") as ranks:
        manifest = _manifest(ranks, folder)
        data, files = folder / manifest["data"], manifest["files"]
        found = zip(files, _digests(ranks, data, list(files)), strict=True)
        wrong = [name for name, digest in found if digest != files[name]]
        if wrong:
            raise CheckpointError(f"{data} is not what was written: {', '.join(wrong)} was changed, or is not there")
        tensors = {}
        for name, described in manifest["tensors"].items():
            shape, dim = described["shape"], described["dim"]
            layout = Layout(mesh, dim, even_ranges(shape[dim], mesh.size()), mesh.get_local_rank())
            local = torch.empty(*shape[:dim], len(layout.own), *shape[dim + 1 :], dtype=_DTYPES[described["dtype"]])
            tensors[name] = layout.sharded(local.to(mesh.device_type))
        with ranks.others_may_fail("the tensors of a checkpoint"):
            dcp.load(tensors, storage_reader=HuggingFaceStorageReader(str(data)), process_group=mesh.get_group())
    return {**tensors, **manifest["values"]}


def _manifest(ranks: Ranks, folder: Path) -> dict[str, Any]:
    """As all ranks read it."""
    file = folder / _MANIFEST
    if not file.is_file():
        raise CheckpointError(f"there is no checkpoint in {folder}")
    content = file.read_bytes()
    mine = torch.frombuffer(bytearray(hashlib.sha256(content).digest()), dtype=torch.uint8)
    if any(not torch.equal(mine, theirs) for theirs in ranks.gathered(mine, "the manifest of a checkpoint")):
        raise CheckpointError(f"ranks read different files at {file}: the folder must be one that all of them see")
    try:
        manifest = json.loads(content)
        if manifest["format"] != _FORMAT:
            raise ValueError(f"its format is {manifest['format']!r}, not {_FORMAT!r}")
        names = [manifest["data"], *manifest["files"]]
        if any(Path(name).name != name or name in ("", ".", "..") for name in names):
            raise ValueError("it names files elsewhere")
        for name, described in manifest["tensors"].items():
            shape, dim = described["shape"], described["dim"]
            if described["dtype"] not in _DTYPES or not 0 <= dim < len(shape) or not all(s >= 0 for s in shape):
                raise ValueError(f"{name} is described as {described}")
        if not isinstance(manifest["values"], dict):
            raise ValueError("it has no values")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{file} is no manifest of a checkpoint ({error}): remove it to start afresh") from error
    return manifest


def _token(ranks: Ranks) -> str:
    """A name that no other checkpoint has, the same on all ranks."""
    mine = torch.frombuffer(bytearray(secrets.token_bytes(8)), dtype=torch.uint8)
    return bytes(ranks.gathered(mine, "the name of a checkpoint")[0].tolist()).hex()


def _digests(ranks: Ranks, data: Path, names: list[str]) -> list[str]:
    """Of all files, each read by one rank."""
    mine = torch.zeros(len(names), 32, dtype=torch.uint8)
    for place in range(ranks.rank, len(names), ranks.size):
        file = data / names[place]
        if file.is_file():
            with file.open("rb") as content:
                digest = _digest(content)
            mine[place] = torch.frombuffer(bytearray(digest), dtype=torch.uint8)
    found = ranks.summed(mine, "the digests of a checkpoint")
    return [bytes(row.tolist()).hex() for row in found]


def _digest(content: IO[bytes]) -> bytes:
    digest = hashlib.sha256()
    while piece := content.read(1 << 22):
        digest.update(piece)
    return digest.digest()


def _sync(folder: Path) -> None:
    """The names in a folder are on the disk, as their files are."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
