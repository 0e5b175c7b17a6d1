"""Sinkhorn without matrices of pairs, by KeOps: on the CPU by the code that runs on a GPU."""

import pytest
import torch

from torchsrk.metrics import corrected_wasserstein2_squared, wasserstein2_squared

pytest.importorskip("pykeops")
DIM = 3


def cloud(points, seed, shift=0.0):
    normals = torch.randn(points, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return normals * torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64) + shift


@pytest.mark.parametrize("method", ["sinkhorn-online", "sinkhorn-multiscale"])
def test_the_same_number_without_the_matrix(method):
    x, y = cloud(300, 1), cloud(250, 2, 0.7)
    dense = wasserstein2_squared(x, y, "sinkhorn", blur=0.1, scaling=0.8)
    near = 1e-5 if method == "sinkhorn-online" else 1e-2
    torch.testing.assert_close(wasserstein2_squared(x, y, method, blur=0.1, scaling=0.8), dense, rtol=near, atol=0.0)


def test_the_corrected_estimate_is_near_that_of_exact_transport():
    clouds = [cloud(600, seed, shift) for seed, shift in ((1, 0.0), (2, 0.0), (3, 0.5), (4, 0.5))]
    exact = float(corrected_wasserstein2_squared(*clouds, method="exact"))
    online = float(corrected_wasserstein2_squared(*clouds, method="sinkhorn-online", scaling=0.8))
    assert online == pytest.approx(exact, rel=0.01)


def test_weights_and_gradients():
    x, y = cloud(100, 1).requires_grad_(), cloud(80, 2, 0.7)
    weights = torch.linspace(0.5, 1.5, 100, dtype=torch.float64)
    values = {}
    for method in ("sinkhorn", "sinkhorn-online"):
        value = wasserstein2_squared(x, y, method, x_weights=weights, blur=0.3, scaling=0.7)
        values[method] = (value.detach(), torch.autograd.grad(value, x)[0])
    torch.testing.assert_close(values["sinkhorn-online"], values["sinkhorn"], rtol=1e-5, atol=1e-8)


def test_more_than_three_dimensions_are_not_cut_into_cells():
    x = torch.randn(10, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match=r"up to 3 dimensions; the points have 4: take .sinkhorn-online"):
        wasserstein2_squared(x, x + 1.0, "sinkhorn-multiscale")


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_fifty_thousand_points_on_a_gpu():
    x, y = (cloud(50_000, seed, shift).float().cuda() for seed, shift in ((1, 0.0), (2, 0.7)))
    value = wasserstein2_squared(x, y, "sinkhorn-online", blur=0.05, scaling=0.8)
    assert float(value) == pytest.approx(3 * 0.7**2, rel=0.05)
    assert torch.cuda.max_memory_allocated() < 1 << 30  # the matrix of pairs alone has 10 GB
