"""Typed settings from YAML: everything is checked before anything is computed, and nothing in a file can run code."""

from __future__ import annotations

import math
import reprlib
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from ..names import nearest, nearest_of

_LARGEST_FILE = 1 << 20


class ConfigError(ValueError):
    """A config that can't be run; the message says where, what was given, what was expected and the way out."""


@dataclass(frozen=True)
class Range:
    """The numbers that a field takes: from ``least`` (or above it) to ``most``."""

    least: float
    most: float = math.inf
    above: bool = False

    def __contains__(self, value: float) -> bool:
        return (self.least < value if self.above else self.least <= value) and value <= self.most

    def __str__(self) -> str:
        low = f"above {self.least:g}" if self.above else f"from {self.least:g}"
        return low if self.most == math.inf else f"{low} to {self.most:g}"


@dataclass(frozen=True)
class OneOf:
    """The names that a field takes; asked for when a config is read, as users may add some."""

    names: Callable[[], Sequence[str]]


def check_known(given: Sequence[str], known: Sequence[str], *, key: str) -> None:
    """Refuse schemes by name, where a law is needed and theirs is not known."""
    for name in given:
        if name not in known:
            raise ConfigError(
                f"{key}: laws are known of {', '.join(known)}; got {name!r}, which has none here{nearest(name, known)}"
            )


Count = Annotated[int, Range(1, 10**9)]
Dimension = Annotated[int, Range(1, 10**4)]
Positive = Annotated[float, Range(0.0, 1e9, above=True)]
Seed = Annotated[int, Range(0, 2**63 - 1)]


def read_yaml(file: Path) -> dict[str, Any]:
    """The mapping in a file, of plain values alone: no tags, no anchors, no key twice."""
    try:
        if file.stat().st_size > _LARGEST_FILE:
            raise ConfigError(f"{file}: a config is at most {_LARGEST_FILE} bytes long; this has {file.stat().st_size}")
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"{file}: there is no such file{nearest_file(file)}; `torchsrk list` shows the shipped configs"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: can't be read as text ({error})") from None
    content = parse_yaml(text, str(file))
    if not isinstance(content, dict):
        raise ConfigError(f"{file}: expected `key: value` lines; got {_shown(content)}")
    return content


def nearest_file(file: Path, shipped: Sequence[str] = ()) -> str:
    """Which YAML file beside one that is missing, or which shipped config, was meant, in words, if one is close."""
    beside = {yaml.stem: yaml for kind in ("*.yaml", "*.yml") for yaml in sorted(file.parent.glob(kind))}
    return nearest_of(file.stem, {**beside, **{name: name for name in shipped}})


def parse_yaml(text: str, where: str) -> Any:
    from .plain_yaml import NotPlain, read

    try:
        return read(text)
    except NotPlain as error:
        raise ConfigError(f"{where}: not plain YAML: {' '.join(str(error).split())}") from None
    except (ValueError, RecursionError) as error:  # a date that is none; brackets a thousand deep
        raise ConfigError(f"{where}: not plain YAML: {type(error).__name__} {error}") from None


def build(kind: Any, value: Any, *, file: str, key: str = "") -> Any:
    """The value as an instance of a type: a dataclass, a tuple, a Literal, a number in a range, text or a flag."""

    def wrong(expected: str) -> ConfigError:
        return ConfigError(f"{file}: {key or 'the config'}: expected {expected}; got {_shown(value)}")

    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated and isinstance(arguments[1], OneOf):
        names = arguments[1].names()
        if value not in names:
            raise wrong(f"one of {', '.join(names)}{nearest(value, names)}, or a name that --import MODULE registers")
        return value
    if origin is Annotated:
        number = build(arguments[0], value, file=file, key=key)
        if number not in arguments[1]:
            raise wrong(f"a number {arguments[1]}")
        return number
    if origin in (Union, types.UnionType):
        (some,) = (argument for argument in arguments if argument is not type(None))
        return None if value is None else build(some, value, file=file, key=key)
    if origin is Literal:
        if isinstance(value, bool) or value not in arguments:
            raise wrong(f"one of {', '.join(map(str, arguments))}{nearest(value, arguments)}")
        return value
    if origin is tuple:
        if not isinstance(value, (list, tuple)) or not value:
            raise wrong("a list, such as [1, 2]")
        parts = tuple(build(arguments[0], part, file=file, key=f"{key}[{i}]") for i, part in enumerate(value))
        # Six digits, as units are named by.
        if len({f"{part:g}" if isinstance(part, float) else part for part in parts}) < len(parts):
            raise wrong("a list without repetitions (to six digits)")
        return parts
    if is_dataclass(kind):
        return _build_dataclass(kind, value, file=file, key=key, wrong=wrong)
    return _build_scalar(kind, value, wrong)


def check_keys(given: Mapping[str, Any], known: Sequence[str], *, where: str) -> None:
    for name in given:
        if name not in known:
            raise ConfigError(
                f"{where}{name}: there is no such key{nearest(name, known)}; the keys here are {', '.join(known)}"
            )


def _build_dataclass(kind: Any, value: Any, *, file: str, key: str, wrong: Any) -> Any:
    if not isinstance(value, Mapping):
        raise wrong("`key: value` lines")
    hints = get_type_hints(kind, include_extras=True)
    known = [field.name for field in fields(kind)]
    prefix = f"{key}." if key else ""
    check_keys(value, known, where=f"{file}: {prefix}")
    for field in fields(kind):
        if field.name not in value and field.default is MISSING and field.default_factory is MISSING:
            raise ConfigError(f"{file}: {prefix}{field.name}: this key is missing")
    values = {name: build(hints[name], part, file=file, key=prefix + name) for name, part in value.items()}
    try:
        return kind(**values)
    except ConfigError as error:  # values that do not go together
        raise ConfigError(f"{file}: {prefix}{error}") from None
    except ValueError as error:  # the same, of a user's own settings
        raise ConfigError(f"{file}: {key or 'the config'}: {error}") from error


def _build_scalar(kind: Any, value: Any, wrong: Any) -> Any:
    if kind is float:
        # YAML reads 1e-3 as text.
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise wrong("a number")
        try:
            number = float(value)
        except (ValueError, OverflowError):
            raise wrong("a number") from None
        if not math.isfinite(number):
            raise wrong("a finite number")
        return number
    if kind is bool and not isinstance(value, bool):
        raise wrong("true or false")
    if kind is int and (isinstance(value, bool) or not isinstance(value, int)):
        raise wrong("a whole number")
    if kind is str and not isinstance(value, str):
        raise wrong("text")
    return value


def plain(value: Any) -> Any:
    """A built value as YAML has it: dicts, lists, numbers and text."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    return [plain(part) for part in value] if isinstance(value, tuple) else value


def to_yaml(value: Any) -> str:
    from .plain_yaml import written

    return written(plain(value))


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with the entries of ``changes``, which may be nested."""
    merged = dict(base)
    for key, change in changes.items():
        old = merged.get(key)
        merged[key] = merge(old, change) if isinstance(old, Mapping) and isinstance(change, Mapping) else change
    return merged


def parse_overrides(arguments: Sequence[str]) -> dict[str, Any]:
    """``--a.b 3 --c=[1,2]`` as {"a": {"b": 3}, "c": [1, 2]}."""
    changes: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        name, given, value = rest.pop(0).partition("=")
        if not name.startswith("--") or len(name) < 3:
            raise ConfigError(f"expected --key value after the config; got {name!r}")
        if not given:
            if not rest:
                raise ConfigError(f"{name}: expected a value after it")
            value = rest.pop(0)
        change = parse_yaml(value, name)
        for part in reversed(name[2:].split(".")):
            change = {part: change}
        changes = merge(changes, change)
    return changes


def _shown(value: Any) -> str:
    return f"{reprlib.repr(value)} ({type(value).__name__})"
