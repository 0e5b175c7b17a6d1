"""Every test starts from float64 and the thread count the machine has."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _clean_torch_state() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
    assert torch.get_num_threads() == threads, "a test, or the code under it, left torch's thread count changed"
