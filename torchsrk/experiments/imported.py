"""The user's own code that a run imports, with digests of its files: of the module, and of what it imports from beside
itself."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

_INSTALLED = ("site-packages", "dist-packages")  # others that lie there are known by their versions
_KNOWN_BY_VERSION = ("torchsrk", "torch")


@dataclass(frozen=True)
class Imported:
    """A module of the user's.

    Attributes:
        given: what it was asked for by, MODULE or FILE.py.
        digests: of its files, by their paths from the folder that it is imported from.
    """

    given: str
    digests: Mapping[str, str]

    @classmethod
    def of(cls, given: str, module: ModuleType) -> Imported:
        """What a module is made of. Written in C or made up on the fly, it has no source to tell it by."""
        file = Path(getattr(module, "__file__", None) or "").resolve()
        if file.suffix != ".py":
            return cls(given, {})
        depth = 0 if given.endswith(".py") else module.__name__.count(".") + (file.name == "__init__.py")
        folder = file.parents[depth]
        found: dict[str, str] = {}
        _note(file, folder, found)
        return cls(given, dict(sorted(found.items())))


def _note(file: Path, folder: Path, found: dict[str, str]) -> None:
    """A file and those that it imports from the same folder, each once."""
    name = file.relative_to(folder).as_posix()
    if name in found:
        return
    source = file.read_bytes()
    found[name] = hashlib.sha256(source).hexdigest()
    own = Path(name).parts[0].removesuffix(".py")
    for part in _imports(source, Path(name).parent):
        root = part.parts[0]
        if root in _KNOWN_BY_VERSION or (folder.name in _INSTALLED and root != own):
            continue
        for beside in (folder / part.with_suffix(".py"), folder / part / "__init__.py"):
            if beside.is_file():
                _note(beside, folder, found)


def _imports(source: bytes, package: Path) -> Iterator[Path]:
    """Where modules would lie that a source imports, from the folder that it is imported from; of a.b also a."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # of a file that lies there, and was not imported after all
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [Path(*alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package
            for _ in range(node.level - 1):
                above = above.parent
            base = (above if node.level else Path()) / Path(*(node.module or "").split("."))
            names = [base, *(base / alias.name for alias in node.names if alias.name != "*")]
        else:
            continue
        for name in names:
            yield from (place for place in (name, *name.parents) if place.parts)
