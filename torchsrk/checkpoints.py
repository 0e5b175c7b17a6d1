"""Nested state in one safetensors file: written in one piece, and read without running anything in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .files import replace_file

_KEY = "torchsrk.checkpoint"


class CheckpointError(ValueError):
    """A file that is not a whole checkpoint."""


def save_checkpoint(file: Path | str, state: Mapping[str, Any]) -> None:
    """Write tensors, numbers, strings and None, nested in dicts, lists and tuples, such as state dicts.

    The file is replaced as a whole: whenever a process is killed, the file holds the old state or the new one.
    """
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    tree = _encoded(state, tensors, where="state")
    replace_file(Path(file), save(tensors, metadata={_KEY: json.dumps(tree)}))


def load_checkpoint(file: Path | str, device: torch.device | str = "cpu") -> dict[str, Any]:
    """What ``save_checkpoint`` wrote; a CheckpointError for a file that is cut short, damaged or another's."""
    from safetensors import SafetensorError, safe_open

    if not Path(file).is_file():
        raise FileNotFoundError(f"there is no checkpoint {file}")
    try:
        with safe_open(file, framework="pt", device=str(device)) as opened:
            metadata = opened.metadata() or {}
            if _KEY not in metadata:
                raise CheckpointError(f"{file} is a safetensors file, but no checkpoint of torchsrk")
            state = _decoded(json.loads(metadata[_KEY]), opened.get_tensor)
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(
            f"{file} is not a whole checkpoint ({error}): it was cut short, damaged, or made by something else. Remove "
            "it to start afresh."
        ) from error
    return state


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
