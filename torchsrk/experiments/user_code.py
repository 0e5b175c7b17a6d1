"""Targets in the user's own code: found by name, run on purpose, and told from what fails in this package."""

from __future__ import annotations

import inspect
import math
import os
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from operator import attrgetter
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from torch import nn
from torch.distributions import Distribution, Independent, constraints

from ..diagnostics.draws import named
from ..distributions import DiffusionDistribution
from .imported import Imported

_NOT_THEIRS = {"torchsrk", "torch", "tqdm", "safetensors", *sys.stdlib_module_names}


class TargetError(ValueError):
    """A target that can't be sampled; ``trace`` tells where in the user's code, if that is what failed."""

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message)
        self.trace = trace


@dataclass(frozen=True)
class Given:
    """A target, the shape and support of its points where it does not say them itself, and names of its parameters."""

    target: Any
    event_shape: tuple[int, ...] | None = None
    support: constraints.Constraint | None = None
    names: tuple[str, ...] | None = None


def target_at(spec: str, dim: int | None) -> Given:
    """What MODULE:NAME or FILE.py:NAME stands for; the module is imported, which runs it.

    A Potential, a torch distribution and an ``nn.Module`` are targets as they are. A function or class that needs no
    argument makes one, and is called; any other function is a log density, up to a constant, of points
    (..., *event_shape). Its attributes ``event_shape`` or ``dim``, ``support`` and ``names`` are read where it has
    them. A batch of distributions is one of independent entries.
    """
    with users_code(spec):
        thing = _found(spec)
        if _makes_a_target(thing):
            thing = thing()
    if isinstance(thing, DiffusionDistribution):
        raise TargetError(f"{spec}: this is a sampler already: name the target that it was made for")
    if isinstance(thing, Distribution):
        if dim is not None:
            raise TargetError(f"{spec}: a distribution has its own shape: leave --dim out")
        rank = len(thing.batch_shape)
        return Given(Independent(thing, rank) if rank else thing, names=_names(spec, thing))
    if isinstance(thing, type) or not callable(thing):
        given = f"the class {thing.__name__}, which needs arguments" if isinstance(thing, type) else repr(type(thing))
        raise TargetError(
            f"{spec}: expected a log density (a function of points), a Potential, a torch distribution, or a function "
            f"without arguments that makes one; got {given}"
        )
    return Given(thing, _event_shape(spec, thing, dim), _support(spec, thing), _names(spec, thing))


@contextmanager
def users_code(spec: str) -> Iterator[None]:
    """What fails within, as a TargetError: with a trace if it failed in code that is neither torch's nor ours."""
    try:
        yield
    except TargetError:
        raise
    except SystemExit:
        raise TargetError(f"{spec}: its code ends the process: guard it with `if __name__ == '__main__'`") from None
    except Exception as error:
        text = " ".join(str(error).split())
        trace = error.__traceback__
        while trace is not None and not _is_theirs(trace.tb_frame):
            trace = trace.tb_next
        if trace is not None or isinstance(error, SyntaxError):
            shown = "".join(traceback.format_exception(type(error), error, trace))
            raise TargetError(f"{spec}: {type(error).__name__}: {text}", shown) from error
        if isinstance(error, (ValueError, TypeError, RuntimeError)):
            raise TargetError(f"{spec}: {text}") from error
        raise


def _is_theirs(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] not in _NOT_THEIRS


# ------------------------------------------------------------------------------------------------------- by name


def _found(spec: str) -> Any:
    where, _, name = spec.rpartition(":")
    if not where or not all(part.isidentifier() for part in name.split(".")):
        raise TargetError(f"{spec}: expected MODULE:NAME, FILE.py:NAME or a YAML file")
    module = _module(where)
    try:
        return attrgetter(name)(module)
    except AttributeError:
        raise TargetError(f"{spec}: there is no {name} in {where}") from None


def import_code(where: str) -> Imported:
    """Run a module, or a FILE.py, of the user's own: what it registers can then be named in configs."""
    with users_code(where):
        return Imported.of(where, _module(where))


def _module(where: str) -> ModuleType:
    return _module_in(Path(where)) if where.endswith(".py") else _module_named(where)


def _module_named(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise TargetError(f"{name} is neither the name of a module, such as my.model, nor a file that ends with .py")
    sys.path.insert(0, os.getcwd())  # as `python -m` has it
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):  # one that the module itself wants
            raise
        raise TargetError(f"there is no module {name} in this folder or among the installed ones") from None


def _module_in(file: Path) -> ModuleType:
    if not file.is_file():
        raise TargetError(f"{file}: there is no such file")
    sys.path.insert(0, str(file.resolve().parent))  # as `python FILE` has it
    # A name of its own: a file may be called as a module is that everybody imports.
    spec = spec_from_file_location(f"torchsrk_target_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _makes_a_target(thing: Any) -> bool:
    """Whether it is a function or class that can be called without arguments and takes no points."""
    if isinstance(thing, (nn.Module, Distribution)) or not callable(thing):
        return False
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):  # written in C, and does not tell
        return False
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [p for p in parameters if p.kind in by_place and p.default is p.empty]
    takes_any = any(p.kind is p.VAR_POSITIONAL for p in parameters)  # points too, if it is a function
    return not needed and (isinstance(thing, type) or not takes_any)


# --------------------------------------------------------------------------------------------- what it says of itself


def _event_shape(spec: str, target: Any, dim: int | None) -> tuple[int, ...]:
    own = getattr(target, "event_shape", None)
    if own is None and getattr(target, "dim", None) is not None:
        own = (target.dim,)
    if own is None and dim is None:
        raise TargetError(
            f"{spec}: the dimension of its points is not known: give --dim, or the function an attribute `dim` or "
            "`event_shape`"
        )
    shape = (dim,) if own is None else own
    if not isinstance(shape, Sequence) or not all(isinstance(n, int) and n > 0 for n in shape):
        raise TargetError(f"{spec}: a shape is one of positive integers, such as (20,) or (); got {own!r}")
    if dim is not None and tuple(shape) != (dim,):
        raise TargetError(f"{spec}: its points have the shape {tuple(shape)}, and --dim is {dim}: leave it out")
    return tuple(shape)


def _support(spec: str, target: Any) -> constraints.Constraint | None:
    support = getattr(target, "support", None)
    if support is not None and not isinstance(support, constraints.Constraint):
        raise TargetError(f"{spec}: the attribute `support` is one of torch.distributions.constraints; got {support!r}")
    return support


def _names(spec: str, target: Any) -> tuple[str, ...] | None:
    names = getattr(target, "names", None)
    if names is None:
        return None
    if isinstance(names, Mapping) and all(_is_shape(shape) for shape in names.values()):
        return named(names, sum(math.prod(shape) for shape in names.values()))
    if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise TargetError(
            f"{spec}: the attribute `names` is a list of text, one for every parameter, or a dict from names to the "
            f"shapes of arrays; got {names!r}"
        )
    return tuple(names)


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, (tuple, list)) and all(isinstance(size, int) for size in shape)
