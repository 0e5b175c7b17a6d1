"""Names of schemes in settings: those that ``integrator=`` takes, checked when a config is read."""

from __future__ import annotations

from typing import Annotated

from ..integrators.base import registered
from .config import OneOf


def _names() -> list[str]:
    return sorted(registered())


SchemeName = Annotated[str, OneOf(_names)]
