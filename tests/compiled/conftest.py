"""Compiled steps of the tests go to a folder of their own, so that every run compiles anew."""

import sys
from pathlib import Path

import pytest

from torchsrk.compiled import stored

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "scripts"))  # where the fuzzer is


@pytest.fixture(scope="session", autouse=True)
def _fresh_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHSRK_CACHE", str(tmp_path_factory.mktemp("compiled")))
        yield


@pytest.fixture
def programs_on_disk():
    """A test that takes this takes up programs from disk; all others trace what they test."""


@pytest.fixture(autouse=True)
def _traced(request, monkeypatch):
    if "programs_on_disk" not in request.fixturenames:
        monkeypatch.setattr(stored, "lasting", lambda problem: None)
