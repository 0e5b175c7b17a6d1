"""Packages that not everybody needs: installed by an extra, which the error for a missing one names."""

from __future__ import annotations

from importlib.util import find_spec


class MissingPackageError(ImportError):
    """A package of an extra is not installed; the message says which, and how it is."""


def missing(package: str, extra: str) -> MissingPackageError:
    """What to raise where a package of an extra can't be imported."""
    return MissingPackageError(f'this needs {package}: pip install "torchsrk[{extra}]"')


def require(module: str, package: str, extra: str) -> None:
    """Raise if a module can't be found: before what is computed for it, without loading it."""
    if find_spec(module) is None:
        raise missing(package, extra)
