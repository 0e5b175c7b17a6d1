"""Compiled steps of the tests go to a folder of their own: every run compiles anew, and each step once."""

import os
import sys
from pathlib import Path

import pytest

from torchsrk.compiled import stored

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
