"""Compiled steps of the tests go to a folder of their own: every run compiles anew, and each step once."""

import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from torchsrk.compiled import programs, stored

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "scripts"))  # where the fuzzer is


@pytest.fixture(scope="session")
def libraries(tmp_path_factory):
    """The folder, which processes that share out the tests have in common."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "compiled"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@pytest.fixture(scope="package", autouse=True)
def _fresh_cache(libraries):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHSRK_CACHE", str(libraries))
        yield


@pytest.fixture
def programs_on_disk():
    """A test that takes this takes up programs from disk; all others trace what they test."""


@pytest.fixture(autouse=True)
def _traced(request, monkeypatch):
    if "programs_on_disk" not in request.fixturenames:
        monkeypatch.setattr(stored, "lasting", lambda problem: None)


@pytest.fixture
def empty(tmp_path, monkeypatch, programs_on_disk):
    monkeypatch.setenv("TORCHSRK_CACHE", str(tmp_path))
    programs._PROGRAMS.clear()
    stored._REJECTED.clear()
    yield tmp_path
    stored._REJECTED.clear()


@pytest.fixture
def cache(empty, libraries):
    """No program is there. Libraries are, of any C that was compiled before: what is looked for is their names."""
    for library in libraries.glob("*.so"):
        os.link(library, empty / library.name)
    yield empty
    for library in {file.name for file in empty.glob("*.so")} - {file.name for file in libraries.glob("*.so")}:
        with suppress(FileExistsError):  # by another process in the meantime
            os.link(empty / library, libraries / library)
