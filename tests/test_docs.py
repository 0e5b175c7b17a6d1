"""Every snippet of the documentation runs, and every public name is in it."""

import importlib
import inspect
import re
from enum import EnumMeta as EnumType  # its new name is of Python 3.11
from pathlib import Path
from types import ModuleType

import pytest
import torch

from torchsrk.integrators import base

DOCS = Path(__file__).parent.parent / "docs"
PAGES = sorted(file for file in DOCS.rglob("*.md") if "_build" not in file.parts and "gallery" not in file.parts)
SNIPPET = re.compile(r"^```python\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
WITH_SNIPPETS = [page for page in PAGES if SNIPPET.search(page.read_text(encoding="utf-8"))]

# Packages say what is public by __all__; of a module it is what it defines.
PUBLIC = (
    *("torchsrk", "torchsrk.potentials", "torchsrk.sde", "torchsrk.brownian", "torchsrk.integrators"),
    *("torchsrk.distributions", "torchsrk.tuning", "torchsrk.diagnostics", "torchsrk.metrics", "torchsrk.reference"),
    *("torchsrk.compiled", "torchsrk.distributed", "torchsrk.theory", "torchsrk.plots", "torchsrk.checkpoints"),
    *("torchsrk.experiments", "torchsrk.interop"),
)
COMMON = ("validate_args",)  # what every torch distribution takes


def public_names(module: ModuleType) -> list[str]:
    def is_own(value: object) -> bool:
        defined = inspect.isroutine(value) or inspect.isclass(value)
        return defined and getattr(value, "__module__", "") == module.__name__

    own = [name for name, value in vars(module).items() if not name.startswith("_") and is_own(value)]
    return [name for name in getattr(module, "__all__", own) if name != "__version__"]


def documented() -> dict[str, Path]:
    """The dotted names that pages document, and where."""
    directive = re.compile(r"^\.\. (?:auto\w+|data):: ([\w.]+)$", flags=re.MULTILINE)
    return {name: page for page in PAGES for name in directive.findall(page.read_text(encoding="utf-8"))}


def value_of(dotted: str) -> object:
    module, name = dotted.rsplit(".", 1)
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("page", WITH_SNIPPETS, ids=lambda page: str(page.relative_to(DOCS)))
def test_snippets_run_one_after_another(page, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(base, "_REGISTRY", dict(base._REGISTRY))  # pages and tests name schemes alike
    torch.set_default_dtype(torch.float32)
    torch.manual_seed(0)
    names: dict[str, object] = {"__name__": "snippet"}
    try:
        for number, snippet in enumerate(SNIPPET.findall(page.read_text(encoding="utf-8"))):
            exec(compile(snippet, f"{page.name}, snippet {number}", "exec"), names)
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
    assert "print(" not in page.read_text(encoding="utf-8") or capsys.readouterr().out


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_documented(module):
    there = [value_of(name) for name in documented()]
    loaded = importlib.import_module(module)
    assert [name for name in public_names(loaded) if not any(getattr(loaded, name) is value for value in there)] == []


@pytest.mark.parametrize("module", PUBLIC)
def test_every_parameter_is_described(module):
    loaded = importlib.import_module(module)
    internal = [value_of(name) for name, page in documented().items() if page.stem == "internals"]
    public = [value for value in (getattr(loaded, name) for name in public_names(loaded)) if callable(value)]
    assert public
    for value in public:
        text = f"{inspect.getdoc(value)} {inspect.isclass(value) and value.__init__.__doc__}"
        if isinstance(value, EnumType):
            given = list(value.__members__)
        elif inspect.isclass(value) and issubclass(value, Exception) and "__init__" not in vars(value):
            given = []  # a message
        else:
            given = [name for name in inspect.signature(value).parameters if name not in (*COMMON, "args", "kwargs")]
        if not any(value is piece for piece in internal):
            assert [name for name in given if not re.search(rf"\b{name}\b", text)] == [], value


def test_every_documented_name_is_used_in_an_example():
    for name, page in documented().items():
        if page.stem != "internals":
            used = "\n".join(SNIPPET.findall(page.read_text(encoding="utf-8")))
            assert re.search(rf"\b{name.rsplit('.', 1)[1]}\b", used), f"{page.name} has no example of {name}"
