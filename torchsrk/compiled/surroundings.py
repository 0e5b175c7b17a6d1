"""What a trace depends on beside the problem: versions, torch's settings, and that nobody has changed torch itself."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Hashable, Iterator
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from torch.nn.modules import module as modules

from ..vectors import flags_of_vectors
from .build import processor
from .fingerprint import SETTLED, root_of
from .problem import IMPORTED

_PACKAGE = Path(__file__).parent.parent
# What functions of torch are looked up in, by users and by torch's own layers and distributions.
_TORCH = ("torch", "torch.nn.functional", "torch.special", "torch.linalg", "torch.fft", "torch.functional")
# Packages whose functions torchsrk and torch take up into their own modules.
_KNOWN = SETTLED | sys.stdlib_module_names | {"tqdm", "torchsde", "safetensors", "yaml", "typing_extensions", "triton"}
# Parts of torchsrk that a step is made of and compiled by; all that another process may have loaded or not is left out.
_OF_STEPS = ("potentials.", "sde.", "integrators.", "brownian.", "compiled.", "derived")
_LOADED_LATER = ("torchsrk.compiled.solve", "torchsrk.compiled.adjoint")
_NUMBERS = (int, float, str, bool, type(None))


def surroundings() -> tuple[Hashable, ...] | None:
    """All of it; None while something is switched on or put in place that may make a step another one."""
    own = _own_source()
    if own is None or _is_something_active() or not _nothing_is_replaced():
        return None
    scipy = sys.modules.get("scipy")
    versions = (torch.__version__, torch.version.git_version, np.__version__, getattr(scipy, "__version__", None))
    return (
        own,
        str(versions),
        sys.version,
        sys.flags.optimize,
        processor(),
        flags_of_vectors(),
        os.environ.get("CC"),
        _settings(),
        _constants(),
    )


def are_as_written(kind: type) -> bool:
    """Whether a class of a package is the one that is found there, with the functions that were written for it."""
    found: Any = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    is_builtin = kind.__module__ in ("builtins", "torch._C") or kind.__module__.startswith("torch._C.")
    return (found is kind or is_builtin) and not any(map(_is_foreign, vars(kind).values()))


def _is_something_active() -> bool:
    modes = torch._C._len_torch_function_stack() + torch._C._len_torch_dispatch_stack()
    hooks = (value for name, value in vars(modules).items() if name.startswith("_global_") and isinstance(value, dict))
    return bool(
        modes
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch.is_autocast_enabled("cpu")
        or torch._C._get_tracing_state() is not None
        or any(hooks)
    )


def _settings() -> tuple[Hashable, ...]:
    return (
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
        torch.backends.mha.get_fastpath_enabled(),
        torch._C._get_flash_sdp_enabled(),
        torch._C._get_math_sdp_enabled(),
        torch._C._get_mkldnn_enabled(),
    )


@cache
def _own_source() -> str | None:
    """A digest of all of torchsrk, as it is installed; None if that can't be read, or is not what was imported."""
    digest = hashlib.sha256()
    try:
        for path in sorted(_PACKAGE.rglob("*")):
            if path.suffix in (".py", ".c", ".h"):
                if path.stat().st_mtime > IMPORTED:
                    return None
                content = path.read_bytes()
                digest.update(f"{path.relative_to(_PACKAGE)} {len(content)} ".encode() + content)
    except OSError:
        return None
    return digest.hexdigest()


def _nothing_is_replaced() -> bool:
    """Whether the functions of torch and torchsrk are their own, and not a test's or a tool's."""
    spaces: list[Any] = [vars(torch.Tensor), *(vars(sys.modules[name]) for name in _TORCH if name in sys.modules)]
    for name, module in _own_modules():
        spaces.append(vars(module))
        own = (kind for kind in vars(module).values() if isinstance(kind, type) and kind.__module__ == name)
        spaces += map(vars, own)
    return not any(_is_foreign(value) for space in spaces for value in list(space.values()))


def _is_foreign(value: Any) -> bool:
    """Whether a value is a function, or takes the place of one, that was written elsewhere."""
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, FunctionType):
        home = str(value.__globals__.get("__name__"))
        return home.partition(".")[0] not in _KNOWN and not home.startswith("namedtuple_")
    if isinstance(value, ModuleType):
        return False
    return root_of(value if isinstance(value, type) else type(value)) not in _KNOWN


def _own_modules() -> Iterator[tuple[str, ModuleType]]:
    for name, module in sorted(sys.modules.items()):
        if name.startswith("torchsrk.") and isinstance(module, ModuleType):
            yield name, module


def _constants() -> tuple[Hashable, ...]:
    """The numbers that the modules of a step have by name: some are limits, which a test or a user may have set."""
    found = []
    for name, module in _own_modules():
        if name.startswith(tuple(f"torchsrk.{part}" for part in _OF_STEPS)) and name not in _LOADED_LATER:
            named = ((key, value) for key, value in vars(module).items() if key[:2] != "__" and key != "IMPORTED")
            found.append((name, tuple((key, repr(value)) for key, value in named if _is_number(value))))
    return tuple(found)


def _is_number(value: Any) -> bool:
    return type(value) in _NUMBERS or (type(value) is tuple and all(map(_is_number, value)))
