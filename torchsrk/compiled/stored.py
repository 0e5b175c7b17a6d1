"""Programs on disk, beside their libraries: another process takes one up without tracing.

A file says in JSON what a program needs beside its library: what torch computes before a run, from which tensors, and
the step's numbers. To read one runs nothing; the folder and the file are the user's own, as libraries are. A program
from here is held against eager steps before it is used, as any other one, and is traced anew if it does not hold.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from . import build
from .build import CannotBuild
from .lasting import Lasting, lasting
from .literals import Literals
from .lowering import StepCode
from .problem import Key, Problem
from .steps import CompiledSteps, Program
from .stored_graph import CannotStore, formulas_from_data, formulas_to_data, graph_from_data, graph_to_data

_LARGEST = 1 << 24  # bytes of a file, beyond which tracing is not much slower than reading
_MOST_READ = 1 << 12  # numbers that a step has read out of a tensor
_REJECTED: set[str] = set()  # names of programs that were not what their problems are


def find(problem: Problem, key: Key) -> CompiledSteps | None:
    """The problem's program, if it is on disk."""
    name = lasting(problem)
    for file in () if name is None else _files(name, problem.step_size):
        if file.stem not in _REJECTED:
            with suppress(CannotStore, CannotBuild, KeyError, IndexError, TypeError, ValueError, AttributeError):
                program = _read(file, problem, key, name)  # type: ignore[arg-type]
                if program is not None and program.is_current(key) and program.serves(problem.step_size):
                    return program
    return None


def keep(problem: Problem, steps: Program, key: Key) -> None:
    """Keep a program that has been held against eager steps for the processes to come, if it can be."""
    if not isinstance(steps, CompiledSteps) or steps.is_stored:
        return
    steps.is_stored = True  # or can't be
    name = lasting(problem)
    if name is None or problem.key().form != key.form:
        return
    with suppress(CannotStore, CannotBuild, OSError):
        general, special = _files(name, problem.step_size)
        try:
            data = _data(steps, steps.literals, key, name)
        except CannotStore:  # a function of the user's own that makes numbers of the step size, say
            data = _data(steps, steps.literals.for_one_step_size(problem.step_size), key, name)
        _write(general if data["literals"]["known"] else special, data)


def reject(steps: Program) -> bool:
    """Take a program from disk out of use, as it is not what its problem is; False if it was made in this process."""
    if steps.stored_as is None:
        return False
    _REJECTED.add(steps.stored_as)
    with suppress(OSError, CannotBuild):
        (build.cache_folder() / f"{steps.stored_as}.json").unlink(missing_ok=True)
    return True


def _files(name: Lasting, step_size: float) -> tuple[Path, Path]:
    """Where a program for all step sizes is, and one for this."""
    special = hashlib.sha256(f"{name.name} {step_size!r}".encode()).hexdigest()[:32]
    folder = build.cache_folder()
    return folder / f"{name.name}.json", folder / f"{special}.json"


def _data(steps: CompiledSteps, literals: Literals, key: Key, name: Lasting) -> dict[str, Any]:
    code, places = steps.code, {id(tensor): place for place, tensor in enumerate(name.tensors)}
    reads = [(places.get(id(tensor)), then) for tensor, then in steps.reads(key)]
    if any(place is None or then.numel() > _MOST_READ for place, then in reads):
        raise CannotStore("a tensor that has no place, or of which too many numbers were read")
    memories = {tensor.untyped_storage().data_ptr() for tensor in name.tensors}
    constants = [
        _made_within(tensor, memories) if id(tensor) not in places else places[id(tensor)]
        for tensor in steps.constants(key)
    ]
    wanted = (*code.uniforms, *code.tables, *code.checks)
    return {
        "library": Path(steps.library._name).stem,
        "graph": graph_to_data(steps.traced, wanted),
        "counts": [len(code.uniforms), len(code.tables)],
        "code": [code.source, code.workspace, code.longest_sum, code.groups, list(code.headers), code.one_by_one],
        "bounds": code.bounds,
        "constants": constants,
        "reads": [[place, *_told(then)] for place, then in reads],
        "literals": {
            "values": literals.values,
            "formulas": formulas_to_data(literals.functions),
            "known": literals.known,
        },
    }


def _read(file: Path, problem: Problem, key: Key, name: Lasting) -> CompiledSteps | None:
    content = build.read_own(file)
    if content is None or content[:64] != hashlib.sha256(content[65:]).hexdigest().encode():
        return None
    data = json.loads(content[65:])
    told = (name.tensors[place] if isinstance(place, int) else _tensor(*place) for place in data["constants"])
    constants = [*problem.first_places(), *told]
    traced, wanted = graph_from_data(data["graph"], constants)
    reads = [(name.tensors[place], _tensor(*told)) for place, *told in data["reads"]]
    if any(tensor.shape != then.shape or tensor.dtype != then.dtype for tensor, then in reads):
        return None
    library = _library(data["library"])
    if library is None:
        return None
    uniforms, tables = data["counts"]
    source, workspace, longest_sum, groups, headers, one_by_one = data["code"]
    values = tuple(map(float, data["literals"]["values"]))
    code = StepCode(
        source,
        workspace,
        values,
        uniforms=tuple(wanted[:uniforms]),
        tables=tuple(wanted[uniforms : uniforms + tables]),
        checks=tuple(wanted[uniforms + tables :]),
        bounds=tuple((number, size, from_the_end) for number, size, from_the_end in data["bounds"]),
        longest_sum=longest_sum,
        groups=groups,
        headers=tuple(headers),
        one_by_one=one_by_one,
    )
    literals = Literals(values, formulas_from_data(data["literals"]["formulas"]), bool(data["literals"]["known"]))
    steps = CompiledSteps(code, library, replace(traced, reads=tuple(reads)), literals, problem, key)
    steps.stored_as, steps.is_stored = file.stem, True
    return steps


def _library(name: str) -> ctypes.CDLL | None:
    if len(name) != 32 or not set(name) <= set("0123456789abcdef"):
        return None
    library = build.load_kept(name)
    return None if library is None else declared(library)


def declared(library: ctypes.CDLL) -> ctypes.CDLL:
    """A library whose ``torchsrk_run`` takes a struct that says all, the number of threads and who they are."""
    library.torchsrk_run.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    library.torchsrk_run.restype = ctypes.c_int
    return library


def _write(file: Path, data: dict[str, Any]) -> None:
    """In one piece, after the digest of what follows."""
    content = json.dumps(data).encode()
    if len(content) > _LARGEST:
        return
    with tempfile.NamedTemporaryFile(dir=file.parent, prefix="build-", delete=False) as made:  # for this user alone
        made.write(hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
    try:
        os.replace(made.name, file)
        _REJECTED.discard(file.stem)
    except OSError:
        os.unlink(made.name)
        raise


def _made_within(tensor: Tensor, memories: set[int]) -> list[Any]:
    """A tensor that a step makes of what its name tells, by its values: one in the memory of another that is read where
    it is, as ``data`` gives it, has the values of this process alone."""
    is_plain = type(tensor) is Tensor and tensor.layout == torch.strided and tensor.device.type == "cpu"
    if not is_plain or tensor.numel() > _MOST_READ or tensor.untyped_storage().data_ptr() in memories:
        raise CannotStore("a tensor that has no place")
    return _told(tensor)


def _told(x: Tensor) -> list[Any]:
    content = bytes(x.detach().contiguous().reshape(-1).view(torch.uint8).tolist()).hex()
    return [list(x.shape), str(x.dtype)[6:], content]


def _tensor(shape: list[int], dtype: str, content: str) -> Tensor:
    kind = getattr(torch, dtype)
    if not isinstance(kind, torch.dtype):
        raise CannotStore(f"no dtype is named {dtype}")
    data = torch.tensor(list(bytes.fromhex(content)), dtype=torch.uint8)
    return data.view(kind).reshape(shape) if data.numel() else torch.empty(shape, dtype=kind)
