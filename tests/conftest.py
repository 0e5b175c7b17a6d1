"""Every test starts from float64 and the thread count the machine has, or one where processes share out the tests."""

import os
from collections.abc import Iterator

import pytest
import torch

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first: at the end one process would wait for them."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(autouse=True)
def _clean_torch_state() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
    assert torch.get_num_threads() == threads, "a test, or the code under it, left torch's thread count changed"
