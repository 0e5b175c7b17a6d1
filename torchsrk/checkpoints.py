"""Nested state in one safetensors file: written in one piece, and read without running anything in it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .files import replace_file

_KEY = "torchsrk.checkpoint"  # one entry of metadata: safetensors writes several in any order


class CheckpointError(ValueError):
    """A file that is not a whole checkpoint."""


def save_checkpoint(file: Path | str, state: Mapping[str, Any]) -> None:
    """Write tensors, numbers, strings and None, nested in dicts, lists and tuples, such as state dicts.

    The file is replaced as a whole: whenever a process is killed, the file holds the old state or the new one.
    """
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    tree = json.dumps(_encoded(state, tensors, where="state"))
    replace_file(Path(file), save(tensors, metadata={_KEY: f"{_digest(tree, tensors)} {tree}"}))


def load_checkpoint(file: Path | str, device: torch.device | str = "cpu") -> dict[str, Any]:
    """What ``save_checkpoint`` wrote; a CheckpointError for a file that is cut short, damaged or another's.

    Args:
        file: its path.
        device: where tensors are put.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    if not Path(file).exists():
        raise FileNotFoundError(f"there is no checkpoint {file}")
    if not Path(file).is_file():
        raise CheckpointError(f"{file} is not a file: remove it to start afresh")
    try:
        # Read at once: safetensors' own reader opens the path twice, and between the two another may replace the file.
        content = Path(file).read_bytes()
        tensors, metadata = load(content), _metadata(content)
        if _KEY not in metadata:
            raise CheckpointError(f"{file} is a safetensors file, but no checkpoint of torchsrk")
        digest, _, tree = metadata[_KEY].partition(" ")
        if digest != _digest(tree, tensors):
            raise ValueError("its content is not what was written")
        state = _decoded(json.loads(tree), lambda name: tensors[name].to(device))
        if not isinstance(state, dict):
            raise TypeError("it holds no dict")
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(
            f"{file} is not a whole checkpoint ({error}): it was cut short, damaged, or made by something else. Remove "
            "it to start afresh."
        ) from error
    return state


def _metadata(content: bytes) -> dict[str, str]:
    """What a safetensors file says beside its tensors: its first eight bytes are the length of a header in JSON."""
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]).get("__metadata__", {})


def _digest(tree: str, tensors: Mapping[str, Tensor]) -> str:
    """Of all that a file holds: one with a changed bit among its numbers still reads as a safetensors file."""
    digest = hashlib.sha256(tree.encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _encoded(value: Any, tensors: dict[str, Tensor], where: str) -> Any:
    """The value as JSON, its tensors put aside. Containers are tagged: JSON knows no tuples and no integer keys."""
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().contiguous().clone()  # safetensors refuses tensors that share their storage
        return {"tensor": name}
    if isinstance(value, Mapping):
        if not all(isinstance(key, (str, int)) for key in value):
            raise TypeError(f"{where} has keys that are neither strings nor integers: {list(value)}")
        return {"dict": [[key, _encoded(part, tensors, f"{where}[{key!r}]")] for key, part in value.items()]}
    if isinstance(value, (list, tuple)):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [_encoded(part, tensors, f"{where}[{i}]") for i, part in enumerate(value)]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{where} is a {type(value).__name__}: a checkpoint holds tensors, numbers, strings and None")


def _decoded(value: Any, tensor: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensor(content)
    if kind == "dict":
        return {key: _decoded(part, tensor) for key, part in content}
    if kind in ("list", "tuple"):
        parts = [_decoded(part, tensor) for part in content]
        return tuple(parts) if kind == "tuple" else parts
    raise ValueError(f"unknown kind {kind!r}")
