"""Every test starts from float64 and the thread count the machine has, or one where processes share out the tests."""

import os
from collections.abc import Iterator

import pytest
import torch

# Triton's kernels are run by its interpreter where no GPU is: it reads this when a kernel is first made.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"  # for processes of the tests: threads that wait for a busy core burn another


# Folders whose tests compile, start processes, tune or run experiments; others mark what is slow themselves.
SLOW = {"compiled", "distributed", "diagnostics", "experiments", "interop", "theory", "tuning"}
SLOW_FILES = {
    *("test_bayesian_network", "test_bench_posteriors", "test_cost", "test_docs", "test_gradients", "test_pytorch"),
    *("test_readme", "test_recompute", "test_scripts", "test_train_energy_model", "test_train_neural_sde"),
    *("test_training", "test_tuned_distributions", "test_rsample", "test_coupling", "test_signs", "test_distributions"),
    *("test_orders", "test_laws", "test_underdamped", "test_kernels", "test_triton", "test_keops", "test_minibatch"),
    "test_family",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first: at the end one process would wait for them. Long tests are slow ones too."""
    for item in items:
        is_slow = SLOW & set(item.nodeid.split("/")) or item.path.stem in SLOW_FILES
        if is_slow or item.get_closest_marker("long"):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(autouse=True)
def _clean_torch_state() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
    # torch.compile, at its first call, stops distributions from looking at their arguments, for good.
    torch.distributions.Distribution.set_default_validate_args(True)
    assert torch.get_num_threads() == threads, "a test, or the code under it, left torch's thread count changed"
