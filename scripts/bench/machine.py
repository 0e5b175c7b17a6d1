"""What the numbers were measured on, without saying where."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = (
    *("torch", "jax", "jaxlib", "diffrax", "blackjax", "numpyro", "pyro-ppl", "nutpie", "torchsde", "torchebm"),
    *("posteriors", "numpy"),
)


def describe() -> dict[str, str]:
    """Processor, caches, and versions."""
    return {
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "caches": ", ".join(_caches()) or "unknown",
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "versions": ", ".join(_versions()),
    }


def has_avx512() -> bool:
    """Whether the processor has it, used or not."""
    return "avx512f" in _first_core().get("flags", "").split()


def _versions() -> Iterator[str]:
    for name in PACKAGES:
        with suppress(PackageNotFoundError):  # its rows will say so
            yield f"{name} {version(name)}"


def _first_core() -> dict[str, str]:
    """What Linux says of the processor; empty elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    found: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        found.setdefault(name.strip(), value.strip())
    return found


def _processor() -> str:
    found = _first_core()
    if not found:
        return platform.processor() or platform.machine()
    named = found.get("model name", platform.machine())
    return f"{named} (family {found.get('cpu family', '?')}, model {found.get('model', '?')})"


def _caches() -> list[str]:
    """The caches that the first core sees."""
    found = []
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((folder / name).read_text(encoding="utf-8").strip() for name in ("level", "type", "size"))
        if kind != "Instruction":
            found.append(f"L{level} {size}")
    return found
