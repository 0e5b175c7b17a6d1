"""Packages that not everybody needs: installed by an extra, which the error for a missing one names."""

from __future__ import annotations


def missing(package: str, extra: str) -> ImportError:
    """What to raise where a package of an extra can't be imported."""
    return ImportError(f'this needs {package}: pip install "torchsrk[{extra}]"')
