"""Imports point down only, and importing the package loads nothing heavy."""

import ast
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "torchsrk"
# A part may import from itself and from those named after it.
ALLOWED = {
    "brownian": set(),
    "blocks": set(),
    "files": set(),
    "checkpoints": {"files"},
    "transforms": set(),
    "reads": {"transforms"},
    "recompute": {"reads", "transforms"},
    "starts": set(),
    "potentials": {"brownian", "transforms"},
    "sde": {"potentials", "brownian"},
    "integrators": {"sde", "brownian"},
    "compiled": {"brownian"},
    "sampling": {"compiled", "integrators", "sde", "potentials", "brownian", "blocks", "recompute", "transforms"},
    "coupling": {"integrators", "sde", "brownian", "blocks"},
    "tuning": {
        "targets",
        "coupling",
        "sampling",
        "integrators",
        "sde",
        "potentials",
        "brownian",
        "blocks",
        "transforms",
    },
    "targets": {"integrators", "sde", "potentials"},
    "distributions": {
        *("tuning", "targets", "sampling", "integrators", "sde", "potentials", "brownian", "starts", "transforms"),
    },
    "metrics": {"brownian"},
    "experiments": {
        *("distributions", "reference", "sampling", "integrators", "sde", "potentials", "brownian", "metrics"),
        *("checkpoints", "files", "compiled", "blocks", "targets", "tuning"),
    },
    "cli": {"experiments", "checkpoints", "sampling"},
    "reference": {"integrators", "sde", "brownian"},
}


def imported_parts(file: Path) -> set[str]:
    """The parts of the package that a file imports from."""
    inside = file.relative_to(PACKAGE).parts
    parts = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            climbed = len(inside) - node.level
            target = [*inside[:climbed], *(node.module or "").split(".")]
            parts |= {target[0]} if target[0] else {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torchsrk"):
            parts.add((node.module or "").split(".")[1])
    return parts


def test_imports_point_down_only():
    for file in PACKAGE.rglob("*.py"):
        part = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if part != "__init__":
            assert imported_parts(file) <= ALLOWED[part] | {part}, file


def test_import_loads_nothing_heavy():
    code = """
import sys, torch
before = set(sys.modules)
import torchsrk
heavy = {"torchsde", "scipy", "matplotlib", "tqdm", "ot", "geomloss", "safetensors"}
print(sorted(heavy & (set(sys.modules) - before)))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
