"""Imports point down only, and importing the package loads nothing heavy."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "torchsrk"
# A part may import from itself and from those named after it.
ALLOWED = {
    "derived": set(),
    "extras": set(),
    "names": set(),
    "version": set(),
    "vectors": set(),
    "brownian": {"derived", "vectors"},
    "blocks": set(),
    "dtensors": set(),
    "files": set(),
    "checkpoints": {"files"},
    "transforms": set(),
    "reads": {"transforms"},
    "recompute": {"reads", "transforms"},
    "starts": set(),
    "potentials": {"brownian", "transforms"},
    "sde": {"potentials", "brownian"},
    "integrators": {"sde", "potentials", "brownian", "derived", "names"},
    "compiled": {"brownian", "derived", "vectors"},
    "solving": {"compiled", "brownian", "transforms"},
    "sampling": {
        *("solving", "compiled", "integrators", "sde", "potentials", "brownian", "blocks", "recompute", "transforms"),
        "dtensors",
    },
    "distributed": {
        *("sampling", "compiled", "integrators", "sde", "potentials", "blocks", "checkpoints", "files", "dtensors"),
        *("metrics", "tuning"),
    },
    "coupling": {"sampling", "integrators", "sde"},
    "tuning": {
        *(
            "targets",
            "coupling",
            "sampling",
            "compiled",
            "integrators",
            "sde",
            "potentials",
            "brownian",
            "blocks",
            "transforms",
        ),
    },
    "diagnostics": {"extras", "tuning", "sampling", "integrators", "sde", "potentials"},
    "plots": {"extras", "diagnostics", "sampling"},
    "targets": {"integrators", "sde", "potentials"},
    "distributions": {
        *("diagnostics", "tuning", "targets", "sampling", "integrators", "sde", "potentials", "brownian", "starts"),
        "transforms",
    },
    "metrics": {"brownian", "dtensors", "extras"},
    "interop": {"extras", "distributions", "potentials", "brownian", "transforms"},
    "theory": {"sampling", "integrators", "sde", "potentials", "brownian"},
    "experiments": {
        "coupling",
        *("diagnostics", "extras", "names", "plots", "theory"),
        *("distributions", "reference", "sampling", "integrators", "sde", "potentials", "brownian", "metrics"),
        *("checkpoints", "files", "compiled", "blocks", "targets", "tuning"),
    },
    "cli": {"version", "names", "extras", "experiments", "checkpoints", "distributed", "sampling"},
    "__main__": {"cli"},
    "reference": {"integrators", "sde", "brownian"},
}
# What a part may import from above it, but only within a function or for its annotations: a plan's own
# diagnosis, the explanation of an SDE's compiled step, and what is spread over processes.
ALLOWED_LATE = {
    "tuning": {"diagnostics"},
    "compiled": {"sampling", "integrators", "sde"},
    "sampling": {"distributed"},
    "experiments": {"distributed"},
    "metrics": {"distributed"},
    "distributions": {"distributed"},
}


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def late_nodes(tree: ast.Module) -> set[ast.AST]:
    """What runs after the module has been loaded, or never."""
    late = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    late += [node for node in tree.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    return {inner for node in late for inner in ast.walk(node)}


def imported_parts(file: Path, *, late: bool) -> set[str]:
    """The parts of the package that a file imports from, when it is loaded or later."""
    inside = file.relative_to(PACKAGE).parts
    parts = set()
    tree = parsed(file)
    later = late_nodes(tree)
    for node in (node for node in ast.walk(tree) if (node in later) is late):
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
            assert imported_parts(file, late=False) <= ALLOWED[part] | {part}, file
            assert imported_parts(file, late=True) <= ALLOWED[part] | {part} | ALLOWED_LATE.get(part, set()), file


def test_import_loads_nothing_heavy():
    code = """
import sys, torch
before = set(sys.modules)
import torchsrk
heavy = {"torchsde", "scipy", "matplotlib", "tqdm", "ot", "geomloss", "safetensors", "arviz", "xarray", "pandas"}
heavy |= {"triton", "pykeops", "pyro", "sbi", "torchsrk.compiled.lowering", "torchsrk.compiled.programs"}
heavy |= {name for name in sys.modules if name.startswith(("torch.distributed.checkpoint", "torchsrk.distributed"))}
print(sorted(heavy & (set(sys.modules) - before)))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
